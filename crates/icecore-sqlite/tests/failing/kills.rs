//! A process that commits over one to four files, killed at some moment: all files of a commit are there or
//! none, and what was acknowledged as durable is there.

use crate::common::{Place, one, run};
use crate::{FILES, attach};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where the process finds the files, how many there are, and which pragma it sets.
const FOLDER: &str = "ICECORE_TEST_FOLDER";
const COUNT: &str = "ICECORE_TEST_FILES";
const PRAGMA: &str = "ICECORE_TEST_PRAGMA";

#[test]
#[ignore = "a process for other tests"]
fn writing_process() {
    let folder = PathBuf::from(std::env::var(FOLDER).expect("started by a test"));
    let files: usize = std::env::var(COUNT).expect("started by a test").parse().expect("a number");
    let pragma = std::env::var(PRAGMA).expect("started by a test");
    let db = attach(files, |name| icecore_sqlite::uri(&folder.join(name), None));
    for (schema, _) in &FILES[..files] {
        run(&db, &format!("PRAGMA {schema}.{pragma}; PRAGMA {schema}.cache_size=5"));
    }
    loop {
        run(&db, "BEGIN");
        for (schema, _) in &FILES[..files] {
            run(&db, &format!("UPDATE {schema}.t SET x = x + 1"));
        }
        run(&db, "COMMIT");
        let value: i64 = one(&db, "SELECT x FROM t WHERE id = 1");
        // The parent reads up to here when it has killed this process.
        println!("committed {value}");
        std::io::stdout().flush().expect("the parent listens");
    }
}

/// Lets the process commit `commits` times, kills it, and answers the last commit that it acknowledged.
fn commit_and_kill(place: &Place, files: usize, pragma: &str, commits: usize) -> i64 {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "kills::writing_process", "--ignored", "--nocapture"])
        .env(FOLDER, place.path(""))
        .env(COUNT, files.to_string())
        .env(PRAGMA, pragma)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut acknowledged = 0;
    let mut seen = 0;
    for line in lines.map_while(Result::ok) {
        let Some(value) = line.strip_prefix("committed ") else { continue };
        acknowledged = value.parse().expect("a number");
        seen += 1;
        if seen == commits {
            child.kill().expect("it runs");
        }
    }
    child.wait().expect("it was started");
    assert!(seen >= commits, "the process ended by itself after {seen} commits");
    acknowledged
}

#[test]
fn a_killed_commit_is_in_all_files_or_in_none() {
    for files in 1..=4 {
        for pragma in ["synchronous=FULL", "synchronous=OFF", "journal_mode=MEMORY"] {
            let place = Place::new();
            for (_, name) in &FILES[..files] {
                let rows = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 40)";
                let db = place.open(name);
                run(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x, b)");
                run(&db, &format!("INSERT INTO t {rows} SELECT i, 0, zeroblob(1000) FROM s"));
            }
            let mut former = 0;
            for commits in [1, 4, 9] {
                let acknowledged = commit_and_kill(&place, files, pragma, commits);
                let what = format!("{files} files, {pragma}, {acknowledged} acknowledged");
                let found: Vec<i64> = FILES[..files]
                    .iter()
                    .map(|(_, name)| {
                        let db = place.open(name);
                        assert_eq!(one::<String>(&db, "PRAGMA integrity_check"), "ok", "{what}");
                        assert_eq!(one::<i64>(&db, "SELECT count(DISTINCT x) FROM t"), 1, "{what}");
                        one(&db, "SELECT x FROM t WHERE id = 1")
                    })
                    .collect();
                assert!(found.iter().all(|value| *value == found[0]), "{what}: {found:?}");
                let durable = if pragma == "synchronous=OFF" { former } else { acknowledged };
                assert!(found[0] >= durable, "{what}: {found:?}");
                former = found[0];
            }
        }
    }
}

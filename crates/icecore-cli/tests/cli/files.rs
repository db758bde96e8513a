//! Files in and out.

use crate::fixture::{Fixture, complaint, entries};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};

/// Three megabytes with a hole in the middle.
fn sparse(fixture: &Fixture) -> std::path::PathBuf {
    let path = fixture.beside("sparse.bin");
    let file = std::fs::File::create(&path).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(&[9; 70_000], 2_500_001).unwrap();
    file.set_len(3_000_003).unwrap();
    path
}

#[test]
fn files_come_back_as_they_went_in_holes_included() {
    let fixture = Fixture::with_db();
    let source = sparse(&fixture);
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = fixture.done(&["import", "-v", source.to_str().unwrap(), "db"]);
    assert_eq!(said, "imported 2.86M into db/sparse.bin\n");
    let target = fixture.beside("out.bin");
    fixture.done(&["export", "db/sparse.bin", target.to_str().unwrap()]);
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&target).unwrap());
    let metadata = target.metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert!(metadata.blocks() * 512 < 1_000_000, "{} bytes on disk", metadata.blocks() * 512);
    let document = fixture.json(&["ls", "--json", "db/sparse.bin"]);
    assert!(document["files"][0]["stored"].as_u64().unwrap() < 1_000_000, "{document}");
}

#[test]
fn an_import_replaces_only_when_asked_to_and_keeps_the_rest() {
    let fixture = Fixture::with_db();
    let refusal = complaint_of_import(&fixture, &["import", "-", "db/app"], 1);
    assert!(refusal.ends_with("app exists already: -f replaces it\n"), "{refusal}");
    assert!(refusal.contains("-f"), "{refusal}");
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    fixture.import("app", b"");
    assert_eq!(fixture.done(&["cat", "db/app"]), "");
    assert_eq!(fixture.done(&["cat", "db@one/app"]), "first");
    assert_eq!(fixture.done(&["ls", "db"]), "app\n", "no hidden file stays behind");
}

fn complaint_of_import(fixture: &Fixture, arguments: &[&str], code: i32) -> String {
    let mut command = fixture.run(arguments);
    command.write_stdin("content");
    complaint(command, code)
}

#[test]
fn imports_make_directories_only_when_asked_to() {
    let fixture = Fixture::with_db();
    let refusal = complaint_of_import(&fixture, &["import", "-", "db/a/b/c"], 1);
    assert!(refusal.contains("db/a/b") && refusal.contains("-p"), "{refusal}");
    fixture.run(&["import", "-p", "-", "db/a/b/c"]).write_stdin("deep").assert().success();
    assert_eq!(fixture.done(&["cat", "db/a/b/c"]), "deep");
    assert_eq!(fixture.done(&["ls", "db/a"]), "b\n");
    complaint_of_import(&fixture, &["import", "-p", "-", "db/app/x"], 1);
    complaint_of_import(&fixture, &["import", "-", "db/a"], 2);
    for hidden in ["db/.icecore", "db//.icecore/x"] {
        let refusal = complaint_of_import(&fixture, &["import", "-p", "-", hidden], 1);
        assert!(refusal.contains("has the snapshots"), "{refusal}");
    }
    fixture.run(&["import", "-", "db/a/.icecore"]).write_stdin("below").assert().success();
    complaint_of_import(&fixture, &["import", "-", "db@one/x"], 1);
    complaint_of_import(&fixture, &["import", "-", "nothing/x"], 1);
    fixture.refused(1, &["import", "/no/such/file", "db/x"]);
    fixture.refused(1, &["import", "/", "db/x"]);
}

#[test]
fn exports_are_whole_or_not_there() {
    let fixture = Fixture::with_db();
    let target = fixture.beside("out");
    fixture.done(&["export", "db@one/app", target.to_str().unwrap()]);
    assert_eq!(std::fs::read(&target).unwrap(), b"first");
    let refusal = fixture.refused(1, &["export", "db/app", target.to_str().unwrap()]);
    assert!(refusal.contains("-f"), "{refusal}");
    fixture.done(&["export", "-f", "db/app", target.to_str().unwrap()]);
    assert_eq!(std::fs::read(&target).unwrap(), b"second");
    assert_eq!(fixture.done(&["export", "db/app", "-"]), "second");
    let folder = fixture.beside("folder");
    std::fs::create_dir(&folder).unwrap();
    fixture.done(&["export", "db/app", folder.to_str().unwrap()]);
    assert_eq!(entries(&folder), ["app"]);
    fixture.refused(1, &["export", "db/none", folder.to_str().unwrap()]);
    fixture.refused(1, &["export", "db", folder.to_str().unwrap()]);
    fixture.refused(1, &["export", "db/app", "/no/such/folder/x"]);
    assert_eq!(entries(&folder), ["app"]);
}

#[test]
fn odd_names_are_reported_without_loss() {
    let fixture = Fixture::with_db();
    let name = b"odd \n\x1b[31m\xff\\name";
    let mut path = b"db/".to_vec();
    path.extend_from_slice(name);
    let mut import = fixture.run(&["import", "-"]);
    import.arg(OsStr::from_bytes(&path)).write_stdin("odd content").assert().success();
    assert_eq!(fixture.done(&["ls", "db"]), "app\nodd \\n\\033[31m\\377\\\\name\n");
    fixture.run(&["ls", "-0", "db"]).assert().success().stdout([b"app\0".as_slice(), name, b"\0"].concat());
    fixture.run(&["cat"]).arg(OsStr::from_bytes(&path)).assert().success().stdout("odd content");
    let document = fixture.json(&["ls", "--json", "db"]);
    assert_eq!(document["files"][1]["name_hex"], "6f6464200a1b5b33316dff5c6e616d65");
    let long = "n".repeat(256);
    let refusal = complaint_of_import(&fixture, &["import", "-", &format!("db/{long}")], 1);
    assert!(refusal.contains("too long"), "{refusal}");
}

#[test]
fn a_long_listing_has_modes_and_times() {
    let fixture = Fixture::with_db();
    let line = fixture.done(&["ls", "-lp", "db@one"]);
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!((columns[0], columns[1], columns[4], columns[6]), ("-rw-r--r--", "1", "5", "app"));
    assert!(columns[5].ends_with('Z') && columns[5].contains('T'));
    assert_eq!(fixture.done(&["ls", "db@one/app"]), "app\n");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let fixture = Fixture::with_db();
    assert!(fixture.refused(1, &["cat", "db/none"]).contains("db/none: no such file"));
    assert!(fixture.refused(1, &["cat", "db/app/deeper"]).contains("no such file"));
    assert!(fixture.refused(1, &["cat", "db"]).contains("db: is a directory"));
    assert!(fixture.refused(1, &["cat", "db@none/app"]).contains("db@none"));
    assert!(fixture.refused(1, &["ls", "none"]).contains("none"));
    // What comes before the error is printed.
    fixture.run(&["cat", "db/app", "db/none"]).assert().code(1).stdout("second");
}

#[test]
fn a_pool_has_more_files_than_a_process_may_open() {
    let fixture = Fixture::new();
    let pool = fixture.beside("small");
    let shell = |script: &str| {
        let output = std::process::Command::new("sh")
            .args(["-ec", script])
            .env("ICECORE", assert_cmd::cargo::cargo_bin("icecore"))
            .env("ICECORE_POOL", &pool)
            .current_dir(pool.parent().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    };
    shell(
        "\"$ICECORE\" init --segment-size 2M --copies all; \"$ICECORE\" create db; head -c 60M /dev/urandom > f",
    );
    shell(
        "ulimit -n 64; \"$ICECORE\" import f db/f; \"$ICECORE\" export db/f - | cmp - f; \"$ICECORE\" scrub",
    );
    shell("ulimit -n 64; \"$ICECORE\" monitor; \"$ICECORE\" copies | grep 'everything has its copy'");
}

/// A database with a part of it in its journal or log, as a mount has it while a program uses it: put into
/// `db/used.db`, file by file.
fn import_used(fixture: &Fixture, statements: &str, log: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("used.db");
    let user = rusqlite::Connection::open(&path).unwrap();
    user.execute_batch(statements).unwrap();
    for suffix in ["", log] {
        let file = format!("{}{suffix}", path.display());
        fixture.done(&["import", "--raw", &file, "db"]);
    }
}

fn sum_of(path: &std::path::Path) -> i64 {
    let copy = rusqlite::Connection::open(path).unwrap();
    let intact: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(intact, "ok");
    copy.query_row("SELECT sum(x) FROM t", [], |row| row.get(0)).unwrap()
}

const FULL_LOG: &str = "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(x);
                        INSERT INTO t VALUES (1), (2), (4)";
/// What has changed was partly written, as the cache is small.
const HOT_JOURNAL: &str = "PRAGMA cache_size=5; CREATE TABLE t(x, y);
    INSERT INTO t SELECT 1, zeroblob(500) FROM (WITH RECURSIVE s(n) AS
        (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 2000) SELECT n FROM s);
    BEGIN; UPDATE t SET x = 2";

#[test]
fn a_database_is_exported_with_what_its_log_holds() {
    for (statements, log, sum) in [(FULL_LOG, "-wal", 7), (HOT_JOURNAL, "-journal", 2000)] {
        let fixture = Fixture::with_db();
        import_used(&fixture, statements, log);
        fixture.done(&["snapshot", "db@used"]);
        for (number, version) in ["db@used", "db"].into_iter().enumerate() {
            let target = fixture.beside(&format!("copy-{number}"));
            fixture.done(&["export", &format!("{version}/used.db"), target.to_str().unwrap()]);
            assert_eq!(sum_of(&target), sum);
            assert_eq!(entries(fixture.folder.path()).len(), number + 2, "nothing is left beside it");
        }
        let piped = fixture.run(&["export", "db@used/used.db", "-"]).assert().success();
        let target = fixture.beside("piped");
        std::fs::write(&target, &piped.get_output().stdout).unwrap();
        assert_eq!(sum_of(&target), sum);
        let raw = fixture.beside("raw");
        fixture.done(&["export", "--raw", "db@used/used.db", raw.to_str().unwrap()]);
        let stored = fixture.run(&["cat", "db@used/used.db"]).assert().success();
        assert!(std::fs::read(raw).unwrap() == stored.get_output().stdout);
    }
}

#[test]
fn what_a_former_database_has_in_its_log_goes_with_it() {
    for (statements, log) in [(FULL_LOG, "-wal"), (HOT_JOURNAL, "-journal")] {
        let fixture = Fixture::with_db();
        import_used(&fixture, statements, log);
        let good = fixture.beside("used.db");
        let new = rusqlite::Connection::open(&good).unwrap();
        new.execute_batch("CREATE TABLE good(x); INSERT INTO good VALUES (9)").unwrap();
        drop(new);
        let source = good.to_str().unwrap();
        fixture.refused(1, &["import", source, "db/used.db"]);
        fixture.done(&["import", "-f", source, "db/used.db"]);
        assert_eq!(fixture.done(&["ls", "db"]), "app\nused.db\n");
        assert_eq!(fixture.done(&["sql", "-H", "db/used.db", "SELECT x FROM good"]), "9\n");
        // Also where the log alone is left.
        fixture.import(&format!("other.db{log}"), b"log");
        let refusal = fixture.refused(1, &["import", source, "db/other.db"]);
        assert!(refusal.contains(log) && refusal.contains("-f"), "{refusal}");
        fixture.done(&["import", "-f", source, "db/other.db"]);
        assert_eq!(fixture.done(&["ls", "db"]), "app\nother.db\nused.db\n");
    }
}

#[test]
fn an_export_replaces_neither_sockets_nor_files_of_a_pool() {
    let fixture = Fixture::with_db();
    let socket = fixture.beside("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let refusal = fixture.refused(1, &["export", "-f", "db/app", socket.to_str().unwrap()]);
    assert!(refusal.contains("no regular file"), "{refusal}");
    let superblock = fixture.pool.join("superblock.0");
    let refusal = fixture.refused(1, &["export", "-f", "db/app", superblock.to_str().unwrap()]);
    assert!(refusal.contains("those of a pool"), "{refusal}");
    let (target, link) = (fixture.beside("target"), fixture.beside("link"));
    std::fs::write(&target, b"former").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    fixture.done(&["export", "-f", "db/app", link.to_str().unwrap()]);
    assert!(link.is_symlink() && std::fs::read(&target).unwrap() == b"second");
}

//! The loadable form, in programs that have a SQLite of their own.

mod common;

use common::{Place, dump, one, open_uri, run};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The extension that was built together with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let library = test.with_file_name("libicecore_sqlite.so");
    assert!(library.exists(), "{} is missing: cargo builds it together with the tests", library.display());
    library
}

/// The system's shell: not every SQLite can load extensions.
fn shell(script: &str) -> Output {
    fed(Command::new("sqlite3").args(["-batch", ":memory:"]), script)
}

/// The same, in a process that may have so many files open.
fn shell_with_files(files: u32, script: &str) -> Output {
    let start = format!("ulimit -n {files} && exec sqlite3 -batch :memory:");
    fed(Command::new("sh").args(["-c", &start]), script)
}

/// Loads the extension, and then does what the script says.
fn fed(command: &mut Command, script: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs the sqlite3 shell (package sqlite3): {error}"));
    let script = format!(".load {}\n{script}", library().display());
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("writing the script");
    child.wait_with_output().expect("the end of the shell")
}

fn python(script: &str, arguments: &[&str]) -> String {
    let interpreter = "/usr/bin/python3";
    let start = "
import os, sqlite3, sys, threading
library, uri = sys.argv[1], sys.argv[2]
def load(connection, path=library):
    connection.enable_load_extension(True)
    connection.load_extension(path)
    return connection
def connect(uri=uri, **more):
    return sqlite3.connect(uri, uri=True, isolation_level=None, **more)
def reason():
    return sqlite3.connect(':memory:').execute('SELECT icecore_last_error()').fetchone()[0]
";
    let output = Command::new(interpreter)
        .arg("-c")
        .arg(format!("{start}\n{script}"))
        .arg(library())
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("this test needs the system's {interpreter}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_shell() {
    let place = Place::new();
    let uri = place.uri("app.db");
    let past = icecore_sqlite::uri(&place.path("app.db"), Some("monday"));
    let output = shell(&format!(
        ".open '{uri}'
         PRAGMA journal_mode=WAL;
         CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);
         SELECT icecore_snapshot('monday');
         INSERT INTO t VALUES (3);
         ATTACH '{past}' AS monday;
         SELECT (SELECT count(*) FROM t) || '/' || (SELECT count(*) FROM monday.t);
         SELECT name FROM icecore_snapshots;
         SELECT count(*) > 5 FROM icecore_stat;
         VACUUM;
         PRAGMA integrity_check;
        "
    ));
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), "delete\nds@monday\n3/2\nds@monday\n1\nok\n");
    assert_eq!(one::<i64>(&place.open("app.db"), "SELECT sum(a) FROM t"), 6);
}

#[test]
fn the_shell_under_every_name_of_the_entry_point() {
    let place = Place::new();
    let other = place.outside("icecore.so");
    std::fs::copy(library(), &other).expect("a copy");
    // SQLite derives sqlite3_icecore_init from this name, and the usual one from that of the first copy.
    let output = shell(&format!(
        ".load {}\n.open '{}'\nCREATE TABLE t(a); INSERT INTO t VALUES (5); SELECT icecore_snapshot('x');\n",
        other.display(),
        place.uri("app.db")
    ));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("ds@x\n".to_owned(), String::new()));
}

/// Rows of a database, each of which lies in a segment of its own.
const ROWS: u64 = 260;
/// Bytes of such a row.
const ROW_BYTES: usize = 20_000;
const SEGMENT: u64 = 2 << 20;

/// Makes a database of which each row lies in another segment, and a snapshot of its first half.
fn spread(place: &Place) {
    place.with_pool(|pool| {
        icecore_sqlite::register().expect("the VFS");
        let registration = icecore_sqlite::register_pool("spread", pool.clone()).expect("a new name");
        let path = Path::new(&registration.prefix()).join("ds/app.db");
        let db = open_uri(&icecore_sqlite::uri(&path, None));
        run(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT)");
        let dataset = pool.dataset("ds").expect("the dataset");
        let root = icecore::units::InodeNumber::ROOT;
        let between = dataset.create(root, b"between", &icecore::Creation::file()).expect("a file").inode;
        let part = vec![7; SEGMENT as usize / 2];
        for row in 0..ROWS {
            // Zeros, and the number at the end: who compares it has read all of the row.
            let text = format!("{row:0>ROW_BYTES$}");
            db.execute("INSERT INTO t VALUES (?1, ?2)", (row.cast_signed(), text)).expect("a row");
            for half in 0..2 {
                dataset.write(between, row * SEGMENT + half * SEGMENT / 2, &part).expect("a write");
            }
            if row + 1 == ROWS / 2 {
                pool.snapshot(&["ds@half".to_owned()], false, &[]).expect("a snapshot");
            }
        }
    });
}

#[test]
fn a_database_lies_in_more_segments_than_the_process_may_open() {
    const FILES: u32 = 256;
    let place = Place::with_segments_of(SEGMENT);
    spread(&place);
    let entries = std::fs::read_dir(place.pool_path()).expect("a folder").flatten();
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment."));
    let segments = segments.count();
    assert!(segments > FILES as usize, "{segments} segments");
    let past = icecore_sqlite::uri(&place.path("app.db"), Some("half"));
    let whole = format!("length(a) = {ROW_BYTES} AND CAST(substr(a, -10) AS INTEGER) = id");
    let output = shell_with_files(
        FILES,
        &format!(
            ".open '{}'
             ATTACH '{past}' AS past;
             SELECT count(*) FROM past.t WHERE {whole};
             SELECT count(*) FROM t WHERE {whole};
             INSERT INTO t SELECT id + 1000, a FROM t;
             UPDATE t SET a = 'new' WHERE id % 2 = 1;
             SELECT icecore_snapshot('after');
             DELETE FROM t WHERE id < 1000;
             SELECT count(*) FROM t JOIN past.t AS p ON t.id = p.id + 1000 WHERE t.a = p.a;
             PRAGMA integrity_check;
             PRAGMA past.integrity_check;
            ",
            place.uri("app.db")
        ),
    );
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), "130\n260\nds@after\n65\nok\nok\n");
    let db = place.open("app.db");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), ROWS.cast_signed());
    let after = place.open_snapshot("app.db", "after");
    assert_eq!(one::<i64>(&after, "SELECT count(*) FROM t WHERE a <> 'new'"), ROWS.cast_signed());
}

#[test]
fn errors_reach_the_shell() {
    let place = Place::new();
    let output = shell(&format!(
        "ATTACH '{}' AS a;\nSELECT icecore_last_error();\n.open '{}'\nCREATE TABLE t(a);\nSELECT icecore_snapshot('a/b');\n",
        icecore_sqlite::uri(&place.pool_path().join("nothing/app.db"), None),
        place.uri("app.db")
    ));
    assert!(text(&output.stdout).contains("has no dataset nothing"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("not a usable name"), "{}", text(&output.stderr));
}

#[test]
fn python_works_as_with_wal_mode() {
    let place = Place::new();
    let out = python(
        "
load(sqlite3.connect(':memory:'))
a, b = connect(), connect(timeout=0.05)
a.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, a)')
a.executemany('INSERT INTO t VALUES (?, ?)', [(i, 'x' * i) for i in range(200)])
a.execute('BEGIN IMMEDIATE')
try:
    b.execute('BEGIN IMMEDIATE')
except sqlite3.OperationalError as error:
    print(error.sqlite_errorname)
b.execute('BEGIN')
print(b.execute('SELECT count(*) FROM t').fetchone()[0])
a.execute('DELETE FROM t WHERE id >= 100')
a.execute('COMMIT')
print(b.execute('SELECT count(*) FROM t').fetchone()[0])
try:
    b.execute('DELETE FROM t')
except sqlite3.OperationalError as error:
    print(error.sqlite_errorname)
b.execute('ROLLBACK')
print(b.execute('SELECT count(*) FROM t').fetchone()[0])
print(a.execute(\"SELECT icecore_snapshot('s')\").fetchone()[0])
a.execute('DELETE FROM t')
past = connect(uri + '&snapshot=s')
print(past.execute('SELECT count(*) FROM t').fetchone()[0], a.execute('SELECT count(*) FROM t').fetchone()[0])
def count(number):
    connection = connect(timeout=20)
    for _ in range(25):
        connection.execute('INSERT INTO t(a) VALUES (?)', (number,))
    connection.close()
threads = [threading.Thread(target=count, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(a.execute('SELECT count(*) FROM t').fetchone()[0], a.execute('PRAGMA integrity_check').fetchone()[0])
",
        &[&place.uri("app.db")],
    );
    assert_eq!(out, "SQLITE_BUSY\n200\n200\nSQLITE_BUSY_SNAPSHOT\n100\nds@s\n100 0\n100 ok\n");
    assert_eq!(one::<i64>(&place.open("app.db"), "SELECT count(*) FROM t"), 100);
}

#[test]
fn a_forked_child_touches_nothing_of_its_parent() {
    let place = Place::new();
    let out = python(
        "
load(sqlite3.connect(':memory:'))
a, b = connect(), connect()
a.execute('PRAGMA cache_size=2')
a.execute('CREATE TABLE t(a)')
a.execute('INSERT INTO t VALUES (1)')
a.execute('BEGIN')
a.executemany('INSERT INTO t VALUES (?)', [('x' * 5000,)] * 50)
assert b.execute('SELECT count(*) FROM t').fetchone()[0] == 1
child = os.fork()
if child == 0:
    answers = []
    for connection in (a, b):
        try:
            connection.execute('SELECT count(*) FROM t').fetchone()
            answers.append('read')
        except sqlite3.OperationalError as error:
            answers.append(error.sqlite_errorname)
    answers.append('forked' in reason())
    try:
        a.execute('COMMIT')
        answers.append('committed')
    except sqlite3.OperationalError as error:
        answers.append(error.sqlite_errorname)
    try:
        connect().execute('SELECT 1 FROM t')
        answers.append('opened')
    except sqlite3.OperationalError as error:
        answers.append(str(os.getppid()) in reason())
    a.close()
    b.close()
    print(answers, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
a.execute('COMMIT')
print(b.execute('SELECT count(*) FROM t').fetchone()[0], b.execute('PRAGMA integrity_check').fetchone()[0])
",
        &[&place.uri("app.db")],
    );
    // What the child has in its own page cache it may still be shown by SQLite; nothing is read or written.
    let mut lines = out.lines();
    let answers = lines.next().expect("the child's answers");
    assert!(answers.contains("'SQLITE_IOERR'") && answers.ends_with("True]"), "{answers}");
    assert!(!answers.contains("committed") && !answers.contains("opened"), "{answers}");
    assert_eq!(lines.next(), Some("51 ok"));
    assert_eq!(one::<i64>(&place.open("app.db"), "SELECT count(*) FROM t"), 51);
}

/// The pool of the parent is idle at the fork, and its threads wait. What is wrong with that shows in some
/// twentieth of all forks, on a busy machine: hence many, several at a time.
#[test]
fn a_child_forked_before_anything_was_opened_owns_what_it_opens() {
    let fork = || {
        let place = Place::new();
        let out = python(
            "
load(sqlite3.connect(':memory:'))
a = connect()
a.execute('CREATE TABLE t(a)')
a.close()
child = os.fork()
if child == 0:
    b = connect()
    b.execute('INSERT INTO t VALUES (1)')
    b.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(connect().execute('SELECT count(*) FROM t').fetchone()[0])
",
            &[&place.uri("app.db")],
        );
        assert_eq!(out, "1\n");
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..8).for_each(|_| fork()));
        }
    });
}

#[test]
fn two_copies_at_once() {
    let place = Place::new();
    let other = place.outside("copy.so");
    std::fs::copy(library(), &other).expect("a copy");
    let out = python(
        "
copies = [library, sys.argv[3]]
barrier = threading.Barrier(8)
connections, failures = [], []
def work(number):
    try:
        connection = sqlite3.connect(':memory:', check_same_thread=False, isolation_level=None)
        connection.enable_load_extension(True)
        barrier.wait()
        path = copies[number % 2]
        if number % 2:
            connection.execute('SELECT load_extension(?, ?)', (path, 'sqlite3_icecore_init')).fetchone()
        else:
            connection.load_extension(path)
        connections.append(connection)
    except Exception as error:
        failures.append(repr(error))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failures)
connect().execute('CREATE TABLE t(a)')
for number, connection in enumerate(connections):
    connection.execute('ATTACH ? AS app', (uri,))
    connection.execute('INSERT INTO app.t VALUES (1)')
    print(connection.execute('SELECT icecore_snapshot(?, ?)', ('s%d' % number, 'app')).fetchone()[0], end=' ')
print(connections[0].execute('SELECT count(*) FROM app.t').fetchone()[0])
",
        &[&place.uri("app.db"), &other.display().to_string()],
    );
    assert_eq!(out, "[]\nds@s0 ds@s1 ds@s2 ds@s3 ds@s4 ds@s5 ds@s6 ds@s7 8\n");
}

/// The copy of the pool is mounted where nothing else sees it, and goes with the process.
#[test]
fn a_pool_on_a_read_only_medium_is_read() {
    const SCRIPT: &str = r#"
        mount -t tmpfs -o size=64m none "$1" && cp -a "$2" "$1/pool" && mount -o remount,ro "$1" || exit 77
        for mode in '' '&mode=ro' '&pool=ro'; do
            sqlite3 -batch :memory: ".load $3" ".open 'file:$1/pool/ds/app.db?vfs=icecore$mode'" \
                "SELECT a FROM t" "INSERT INTO t VALUES (2)" 2>&1
        done"#;
    for was_closed in [true, false] {
        let place = Place::new();
        let db = place.open("app.db");
        run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
        if was_closed {
            drop(db);
            place.with_pool(|_| ());
        }
        // The copy of an open pool is one that was killed.
        read_from_a_read_only_medium(SCRIPT, &place);
    }
}

fn read_from_a_read_only_medium(script: &str, place: &Place) {
    let mounted = tempfile::tempdir().expect("a folder");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([mounted.path(), &place.pool_path(), &library()])
        .output()
        .expect("unshare");
    let said = text(&output.stdout);
    if output.status.code() == Some(77) || output.stderr.starts_with(b"unshare:") {
        eprintln!("left out: mounting is not allowed here: {}", text(&output.stderr));
        return;
    }
    assert_eq!(said.lines().filter(|line| *line == "1").count(), 3, "{said}");
    assert_eq!(said.matches("readonly database").count(), 3, "{said}");
}

#[test]
fn a_second_process_waits_for_the_first_to_end() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    let script = "load(sqlite3.connect(':memory:'))\nprint(connect().execute('SELECT a FROM t').fetchone())";
    let out = std::thread::scope(|scope| {
        let second = scope.spawn(|| python(script, &[&place.uri("app.db")]));
        // The other comes while it is open, however slow this machine is; if not, it has nothing to wait for.
        std::thread::sleep(std::time::Duration::from_millis(700));
        drop(db);
        second.join().unwrap()
    });
    assert_eq!(out, "(1,)\n");
}

#[test]
fn a_second_process_learns_who_has_the_pool() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    let script = "
load(sqlite3.connect(':memory:'))
try:
    connect().execute('SELECT * FROM t')
    print('opened')
except sqlite3.OperationalError as error:
    print(error.sqlite_errorname, reason())
";
    let out = python(script, &[&place.uri("app.db")]);
    assert!(out.starts_with("SQLITE_CANTOPEN"), "{out}");
    assert!(out.contains(&std::process::id().to_string()) && out.contains("in use"), "{out}");
    let before = dump(&db);
    drop(db);
    assert_eq!(python(script, &[&place.uri("app.db")]), "opened\n");
    assert_eq!(dump(&place.open("app.db")), before);
}

#[test]
fn a_killed_process_leaves_what_it_committed() {
    let place = Place::new();
    python(
        "
load(sqlite3.connect(':memory:'))
a = connect()
a.execute('PRAGMA cache_size=2')
a.execute('CREATE TABLE t(a)')
a.execute('INSERT INTO t VALUES (1)')
child = os.getpid()
a.execute('BEGIN')
a.executemany('INSERT INTO t VALUES (?)', [('x' * 5000,)] * 50)
sys.stdout.flush()
os._exit(0)
",
        &[&place.uri("app.db")],
    );
    let db = place.open("app.db");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 1);
    assert_eq!(one::<String>(&db, "PRAGMA integrity_check"), "ok");
}

#[test]
fn apsw_where_it_is_installed() {
    let place = Place::new();
    let out = python(
        "
try:
    import apsw
except ImportError:
    print('absent')
    sys.exit(0)
loader = apsw.Connection(':memory:')
loader.enable_load_extension(True)
loader.load_extension(library)
flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
a = apsw.Connection(uri, flags=flags)
a.execute('CREATE TABLE t(a); INSERT INTO t VALUES (1)')
print(a.execute(\"SELECT icecore_snapshot('s')\").get)
# A second SQLite in the same process.
load(sqlite3.connect(':memory:'))
b = connect()
print(b.execute('SELECT count(*) FROM t').fetchone()[0])
b.execute('INSERT INTO t VALUES (2)')
print(a.execute('SELECT count(*) FROM t').get)
",
        &[&place.uri("app.db")],
    );
    if out == "absent\n" {
        println!("apsw is not installed for the system's python3: nothing was tried with it");
        return;
    }
    assert_eq!(out, "ds@s\n1\n2\n");
}

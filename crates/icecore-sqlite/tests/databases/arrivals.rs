//! Files that arrive with a journal or a write-ahead log beside them: what plain SQLite makes of them, we
//! make of them, wherever they are cut off or damaged.

use crate::common::{Place, dump, one, open_plain, run, try_open};
use proptest::prelude::*;
use rusqlite::Connection;
use std::path::Path;

/// A database and what lies beside it, as bytes.
#[derive(Clone)]
struct Files {
    database: Vec<u8>,
    suffix: &'static str,
    beside: Vec<u8>,
}

impl Files {
    fn copy(path: &Path, suffix: &'static str) -> Self {
        let beside = path.with_file_name(format!("{}{suffix}", path.file_name().unwrap().to_string_lossy()));
        Self {
            database: std::fs::read(path).expect("the database"),
            suffix,
            beside: std::fs::read(beside).expect("the file beside it"),
        }
    }

    /// A database in WAL mode with three transactions in the log, and a fourth that was not finished.
    fn with_wal(page_bytes: u32) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("app.db");
        let db = open_plain(&path);
        run(
            &db,
            &format!("PRAGMA page_size={page_bytes}; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0"),
        );
        fill(&db);
        run(&db, "PRAGMA wal_checkpoint; UPDATE t SET a = 'first' WHERE id % 2");
        run(&db, "DELETE FROM t WHERE id > 60; PRAGMA incremental_vacuum");
        run(&db, "CREATE TABLE u(x); INSERT INTO u VALUES ('third')");
        run(&db, "PRAGMA cache_size=1; BEGIN; UPDATE t SET b = zeroblob(3000)");
        Self::copy(&path, "-wal")
    }

    /// A database in the middle of a transaction that has changed the file.
    fn with_journal(page_bytes: u32) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("app.db");
        let db = open_plain(&path);
        run(&db, &format!("PRAGMA page_size={page_bytes}"));
        fill(&db);
        run(
            &db,
            "PRAGMA cache_size=1; BEGIN; UPDATE t SET b = zeroblob(3000); DELETE FROM t WHERE id % 3 = 0",
        );
        Self::copy(&path, "-journal")
    }

    fn put_plain(&self, path: &Path) {
        std::fs::write(path, &self.database).expect("the database");
        let name = format!("{}{}", path.file_name().unwrap().to_string_lossy(), self.suffix);
        std::fs::write(path.with_file_name(name), &self.beside).expect("the file beside it");
    }

    fn put(&self, place: &Place) {
        place.put_raw("app.db", &self.database);
        place.put_raw(&format!("app.db{}", self.suffix), &self.beside);
    }

    /// What plain SQLite reads.
    fn expected(&self) -> Option<String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("app.db");
        self.put_plain(&path);
        content(&open_plain(&path))
    }
}

fn fill(db: &Connection) {
    run(db, "PRAGMA auto_vacuum=INCREMENTAL; CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB)");
    let rows = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 90) SELECT i FROM s";
    run(db, &format!("INSERT INTO t SELECT i, 'row ' || i, zeroblob(i * 20) FROM ({rows})"));
}

/// Everything in a database; `None` if it cannot be read.
fn content(db: &Connection) -> Option<String> {
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).ok()?;
    (check == "ok").then(|| dump(db))
}

/// Opens the files in every way there is and compares.
fn check_everywhere(files: &Files) {
    let expected = files.expected();
    let place = Place::new();
    files.put(&place);
    place.with_pool(|pool| {
        pool.snapshot(&["ds@before".to_owned()], false, &[]).expect("a snapshot");
    });
    let past = place.open_snapshot("app.db", "before");
    assert_eq!(content(&past), expected, "in a snapshot");
    let reading = try_open(&format!("{}&mode=ro", place.uri("app.db"))).expect("the database");
    assert_eq!(content(&reading), expected, "for reading only");
    let db = place.open("app.db");
    assert_eq!(content(&db), expected, "for writing");
    assert_eq!(content(&reading), expected, "for reading only, afterwards");
    assert_eq!(content(&past), expected, "in a snapshot, afterwards");
    drop((past, reading, db));
    let past = place.open_snapshot("app.db", "before");
    assert_eq!(content(&past), expected, "in a snapshot, later");
    drop(past);
    assert_eq!(content(&place.open("app.db")), expected, "later");
    if expected.is_some() {
        assert!(!place.has_file(&format!("app.db{}", files.suffix)), "what was used up is gone");
    }
}

#[test]
fn a_log_is_replayed() {
    for page_bytes in [512, 4096, 65536] {
        let files = Files::with_wal(page_bytes);
        assert!(files.expected().expect("plain SQLite reads it").contains("third"));
        check_everywhere(&files);
    }
}

#[test]
fn a_journal_is_rolled_back() {
    for page_bytes in [512, 4096, 65536] {
        let files = Files::with_journal(page_bytes);
        assert!(files.expected().expect("plain SQLite reads it").contains("row 90"));
        check_everywhere(&files);
    }
}

#[test]
fn a_journal_is_rolled_back_in_every_mode() {
    let files = Files::with_journal(4096);
    let expected = files.expected();
    for pragma in [
        "journal_mode=TRUNCATE",
        "journal_mode=PERSIST",
        "journal_mode=MEMORY",
        "locking_mode=EXCLUSIVE",
        "synchronous=OFF",
    ] {
        let place = Place::new();
        files.put(&place);
        let db = place.open("app.db");
        let _ = db.query_row(&format!("PRAGMA {pragma}"), [], |_| Ok(()));
        assert_eq!(content(&db), expected, "{pragma}");
        run(&db, "DELETE FROM t WHERE id > 5; UPDATE t SET a = 'kept'");
        let after = dump(&db);
        drop(db);
        assert_eq!(dump(&place.open("app.db")), after, "{pragma}");
        assert!(!place.has_file("app.db-journal"), "{pragma}");
    }
}

#[test]
fn two_connections_meet_a_journal() {
    let files = Files::with_journal(1024);
    let expected = files.expected();
    let place = Place::new();
    files.put(&place);
    let keep = place.open("other.db");
    run(&keep, "CREATE TABLE o(a)");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let db = place.open("app.db");
                db.busy_timeout(crate::common::PATIENCE).expect("a timeout");
                assert_eq!(content(&db), expected);
            });
        }
    });
}

#[test]
fn a_header_alone_is_accepted() {
    let place = Place::new();
    let mut files = Files::with_wal(4096);
    files.beside.clear();
    assert_eq!(&files.database[18..20], &[2, 2]);
    place.put_raw("app.db", &files.database);
    let expected = files.expected().expect("plain SQLite reads it");
    let reading = try_open(&format!("{}&mode=ro", place.uri("app.db"))).expect("the database");
    assert_eq!(dump(&reading), expected);
    let db = place.open("app.db");
    assert_eq!(dump(&db), expected);
    assert_eq!(one::<String>(&db, "PRAGMA journal_mode"), "delete");
    run(&db, "DELETE FROM t");
    drop((db, reading));
    let bytes = place.with_pool(|pool| {
        let view = pool.view("ds").expect("the head");
        let inode = view.resolve(b"app.db").expect("a path").expect("the file");
        let mut bytes = [0; 2];
        view.read(inode, 18, &mut bytes).expect("a read");
        bytes
    });
    assert_eq!(bytes, [1, 1]);
}

#[test]
fn an_ended_journal_is_ignored() {
    let place = Place::new();
    let mut files = Files::with_journal(4096);
    files.database = {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("app.db");
        fill(&open_plain(&path));
        std::fs::read(path).expect("the database")
    };
    files.beside[..28].fill(0);
    files.put(&place);
    let expected = files.expected();
    assert!(expected.is_some());
    assert_eq!(content(&place.open("app.db")), expected);
}

/// What happened to a file on its way.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Flip(usize, u8),
    CutAndFlip(usize, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        match *self {
            Self::Cut(at) => bytes.truncate(at % length),
            Self::Flip(at, mask) => bytes[at % length] ^= mask,
            Self::CutAndFlip(cut, flip) => {
                bytes.truncate(1 + cut % length);
                let length = bytes.len();
                bytes[flip % length] ^= 0x10;
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let anywhere = prop_oneof![0..64_usize, any::<usize>()];
    prop_oneof![
        any::<usize>().prop_map(Damage::Cut),
        (anywhere, 1..=255_u8).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        (any::<usize>(), any::<usize>()).prop_map(|(cut, flip)| Damage::CutAndFlip(cut, flip)),
    ]
}

fn cases() -> u32 {
    std::env::var("ICECORE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_log_is_read_as_sqlite_reads_it(damage in damage()) {
        static FILES: std::sync::OnceLock<Files> = std::sync::OnceLock::new();
        let mut files = FILES.get_or_init(|| Files::with_wal(1024)).clone();
        damage.apply(&mut files.beside);
        check_everywhere(&files);
    }

    #[test]
    fn a_damaged_journal_is_read_as_sqlite_reads_it(damage in damage()) {
        static FILES: std::sync::OnceLock<Files> = std::sync::OnceLock::new();
        let mut files = FILES.get_or_init(|| Files::with_journal(1024)).clone();
        damage.apply(&mut files.beside);
        check_everywhere(&files);
    }
}

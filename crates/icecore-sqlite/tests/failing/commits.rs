//! Every call of a transaction over one to four files fails in turn, and every allocation.

use crate::common::{Place, code_of, one, run};
use crate::{FILES, attach, memory, shim};
use rusqlite::Connection;

/// How the transactions of a test are made.
#[derive(Clone, Copy, Debug)]
struct Shape {
    files: usize,
    synchronous: &'static str,
    journal: &'static str,
    locking: &'static str,
    /// The page cache holds less than a transaction changes.
    spills: bool,
}

/// A connection with its files attached, and another one for each file.
struct Site {
    place: Place,
    shape: Shape,
    db: Connection,
    /// What each file holds in its column `x`.
    value: i64,
}

impl Site {
    fn make(shape: Shape) -> Self {
        memory::install();
        shim::install();
        let place = Place::new();
        let db = connect(&place, shape);
        for (schema, _) in &FILES[..shape.files] {
            // Of 4,000 pages, SQLite notes in memory that it allocates which it has journaled: page 1 in the
            // commit.
            let pages = "page_size=512; CREATE TABLE";
            run(&db, &format!("PRAGMA {schema}.{pages} {schema}.filler AS SELECT zeroblob(2200000)"));
            run(&db, &format!("CREATE TABLE {schema}.t(id INTEGER PRIMARY KEY, x, b)"));
            let rows = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 150) SELECT i FROM s";
            run(&db, &format!("INSERT INTO {schema}.t SELECT i, 0, zeroblob(300) FROM ({rows})"));
        }
        Self { place, shape, db, value: 0 }
    }

    fn reconnect(&mut self) {
        let nothing = Connection::open_in_memory().expect("memory");
        drop(std::mem::replace(&mut self.db, nothing));
        self.db = connect(&self.place, self.shape);
    }

    /// A transaction that adds one to every row of every file. Its first failure, if any.
    fn transact(&self) -> rusqlite::Result<()> {
        let outcome = self.statements();
        if outcome.is_err() && !self.db.is_autocommit() {
            // May fail as well, if calls fail for good: the next statement then finds out.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        outcome
    }

    fn statements(&self) -> rusqlite::Result<()> {
        self.db.execute_batch("BEGIN")?;
        for (schema, _) in &FILES[..self.shape.files] {
            // In small transactions one page of each file changes, in those that spill all of them.
            let which = if self.shape.spills { "" } else { "WHERE id = 5" };
            self.db.execute_batch(&format!("UPDATE {schema}.t SET x = x + 1 {which}"))?;
        }
        self.db.execute_batch("COMMIT")
    }

    /// Without a super-journal SQLite goes on after the commit, and reports what fails then.
    fn may_be_committed(&self) -> bool {
        self.shape.files > 1 && (self.shape.synchronous == "OFF" || self.shape.journal == "MEMORY")
    }

    /// All files hold what they should, as this connection and as another one sees it.
    fn check(&mut self, outcome: &rusqlite::Result<()>, what: &str) {
        let reported = outcome.is_err() && self.may_be_committed();
        let first = if reported { self.seen_of("main") - self.value } else { i64::from(outcome.is_ok()) };
        assert!(matches!(first, 0 | 1));
        self.value += first;
        let expected = vec![self.value; self.shape.files];
        assert_eq!(self.seen(), expected, "{what}, on the same connection: {:?}", self.shape);
        if self.shape.locking == "NORMAL" {
            assert_eq!(self.stored(), expected, "{what}, on another connection: {:?}", self.shape);
        }
    }

    fn seen_of(&self, schema: &str) -> i64 {
        one(&self.db, &format!("SELECT x FROM {schema}.t WHERE id = 5"))
    }

    fn seen(&self) -> Vec<i64> {
        FILES[..self.shape.files].iter().map(|(schema, _)| self.seen_of(schema)).collect()
    }

    fn stored(&self) -> Vec<i64> {
        let files = &FILES[..self.shape.files];
        files.iter().map(|(_, name)| one(&self.place.open(name), "SELECT x FROM t WHERE id = 5")).collect()
    }

    /// After all connections were closed: the same, and every file is sound.
    fn check_reopened(&mut self) {
        self.reconnect();
        let expected = vec![self.value; self.shape.files];
        assert_eq!(self.seen(), expected, "after reopening: {:?}", self.shape);
        for (schema, _) in &FILES[..self.shape.files] {
            assert_eq!(one::<String>(&self.db, &format!("PRAGMA {schema}.integrity_check")), "ok");
        }
    }
}

fn connect(place: &Place, shape: Shape) -> Connection {
    let db = attach(shape.files, |name| place.uri(name).replace("vfs=icecore", "vfs=failing"));
    for (schema, _) in &FILES[..shape.files] {
        let Shape { synchronous, journal, locking, spills, .. } = shape;
        run(
            &db,
            &format!("PRAGMA {schema}.synchronous={synchronous}; PRAGMA {schema}.journal_mode={journal}"),
        );
        run(&db, &format!("PRAGMA {schema}.locking_mode={locking}"));
        run(&db, &format!("PRAGMA {schema}.cache_size={}", if spills { 5 } else { 2000 }));
    }
    db
}

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for files in 1..=4 {
        for (synchronous, journal, locking) in [
            ("FULL", "DELETE", "NORMAL"),
            ("NORMAL", "PERSIST", "NORMAL"),
            ("FULL", "TRUNCATE", "EXCLUSIVE"),
            ("OFF", "DELETE", "NORMAL"),
            ("FULL", "MEMORY", "NORMAL"),
        ] {
            for spills in [false, true] {
                shapes.push(Shape { files, synchronous, journal, locking, spills });
            }
        }
    }
    shapes
}

/// Each so many-th failure is tried: all of them where `ICECORE_CASES` asks for many cases.
fn stride(total: u64) -> u64 {
    let all = std::env::var("ICECORE_CASES").is_ok();
    if all { 1 } else { total.div_ceil(100).max(1) }
}

#[test]
fn a_call_that_fails_leaves_all_files_or_none() {
    for shape in shapes() {
        for for_good in [false, true] {
            let mut site = Site::make(shape);
            site.transact().expect("nothing fails");
            site.value += 1;
            let before = shim::made();
            site.transact().expect("nothing fails");
            site.value += 1;
            let total = shim::made() - before;
            for number in (0..total).step_by(usize::try_from(stride(total)).expect("a small number")) {
                shim::fail_after(number, for_good);
                let outcome = site.transact();
                let struck = shim::disarm();
                assert!(outcome.is_ok() || struck, "{outcome:?} although nothing failed");
                site.check(&outcome, &format!("call {number} of {total} fails ({outcome:?})"));
            }
            site.check_reopened();
        }
    }
}

#[test]
fn an_allocation_that_fails_leaves_all_files_or_none() {
    for shape in shapes() {
        let mut site = Site::make(shape);
        site.transact().expect("nothing fails");
        site.value += 1;
        let before = memory::made();
        site.transact().expect("nothing fails");
        site.value += 1;
        let total = memory::made() - before;
        for number in (0..total).step_by(usize::try_from(stride(total)).expect("a small number")) {
            memory::fail_after(number);
            let outcome = site.transact();
            memory::disarm();
            if let Err(error) = &outcome {
                let code = code_of(error) & 0xff;
                assert!(matches!(code, 7 | 10 | 14), "{error:?}");
            }
            site.check(&outcome, &format!("allocation {number} of {total} fails ({outcome:?})"));
        }
        site.check_reopened();
    }
}

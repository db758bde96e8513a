//! Transactions larger than what is left: SQLite's "full", nothing lost, and space that comes back when
//! something goes.

use crate::history::{Action, Setting, Statement};
use crate::life::{Failure, Life, new_disk};
use icecore::DestroyTarget;
use icecore_sim::cases::{Context, for_each_seed};
use icecore_sim::{CrashMode, Random, SimulatedDisk};

const FULL: i32 = 13;
const LIMIT: u64 = 40 << 20;

fn setting(random: &mut Random) -> Setting {
    Setting { page_bytes: 1024 << random.below(4), cache_pages: 10, vacuum: "NONE", ..Setting::draw(random) }
}

/// The limit is the pool's own, or the medium's.
fn small_disk(seed: u64, random: &mut Random) -> SimulatedDisk {
    if random.chance(50) { new_disk(seed, 1 << 30, Some(LIMIT)) } else { new_disk(seed, LIMIT, None) }
}

fn begin(disk: &SimulatedDisk, setting: &Setting) -> Life {
    Life::begin(disk, setting).unwrap_or_else(|failure| panic!("cannot open: {failure:?}"))
}

fn sql(statements: &[&str]) -> Action {
    Action::Sql(statements.iter().map(|sql| Statement::new(*sql)).collect())
}

/// A transaction that writes so many rows of 30 KB.
fn large(rows: u32, ending: &str, random: &mut Random) -> Action {
    let mut blob = vec![0; 30_000];
    random.fill(&mut blob);
    let series =
        format!("WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {rows}) SELECT");
    let insert = format!("INSERT OR REPLACE INTO t {series} i, ?1 || i FROM s");
    Action::Sql(vec![Statement::new("BEGIN"), Statement::with_blob(insert, blob), Statement::new(ending)])
}

fn must_do(life: &mut Life, action: &Action) {
    life.perform(action).unwrap_or_else(|failure| panic!("{}", life.explain(&failure)));
}

fn is_full(failure: &Failure, life: &Life) -> bool {
    // An SQL function has no codes of its own.
    failure.code() == Some(FULL) || life.explain(failure).contains("no space left")
}

fn state(life: &Life) -> u64 {
    life.look(None).unwrap_or_else(|failure| panic!("cannot read: {}", life.explain(&failure)))
}

/// Ends a life in one way or another, and begins the next.
fn again(life: Life, disk: &SimulatedDisk, setting: &Setting, random: &mut Random) -> Life {
    match random.below(3) {
        0 => life.close().expect("a clean close of a full pool"),
        1 => disk.kill(),
        _ => disk.crash_as(CrashMode::ALL_MODES[random.index(6)]),
    }
    begin(disk, setting)
}

#[test]
fn huge_transactions_rolled_back_leave_no_trace() {
    for_each_seed("rolled_back", 4, |seed| {
        let mut random = Random::new(seed);
        let setting = setting(&mut random);
        let _context = Context(format!("{setting:?}"));
        let disk = small_disk(seed, &mut random);
        let mut life = begin(&disk, &setting);
        must_do(&mut life, &sql(&["CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)"]));
        must_do(&mut life, &large(20, "COMMIT", &mut random));
        let before = state(&life);
        // Together several times what there is room for.
        for round in 0..10 {
            let _context = Context(format!("round {round}"));
            must_do(&mut life, &large(300, "ROLLBACK", &mut random));
        }
        assert_eq!(state(&life), before);
        life = again(life, &disk, &setting, &mut random);
        assert_eq!(state(&life), before);
        must_do(&mut life, &large(300, "COMMIT", &mut random));
        let after = state(&life);
        assert_ne!(after, before);
        life = again(life, &disk, &setting, &mut random);
        assert_eq!(state(&life), after);
        life.close().expect("a clean close");
    });
}

#[test]
fn a_transaction_that_does_not_fit_is_refused_whole() {
    for_each_seed("too_large", 4, |seed| {
        let mut random = Random::new(seed);
        let setting = setting(&mut random);
        let _context = Context(format!("{setting:?}"));
        let disk = small_disk(seed, &mut random);
        let mut life = begin(&disk, &setting);
        must_do(&mut life, &sql(&["CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)"]));
        for round in 0..2 {
            let _context = Context(format!("round {round}"));
            must_do(&mut life, &large(60, "COMMIT", &mut random));
            let mut before = state(&life);
            // Every version is kept, until there is no room for another one.
            let mut snapshots: Vec<(String, u64)> = Vec::new();
            let refused = loop {
                let name = format!("s{round}-{}", snapshots.len());
                if let Err(failure) = life.perform(&Action::Snapshot(name.clone())) {
                    break failure;
                }
                snapshots.push((name, before));
                if let Err(failure) = life.perform(&large(60, "COMMIT", &mut random)) {
                    break failure;
                }
                before = state(&life);
                assert!(snapshots.len() < 100, "it never gets full");
            };
            assert!(is_full(&refused, &life), "{}", life.explain(&refused));
            for rows in [1000, 300, 2000] {
                let refused =
                    life.perform(&large(rows, "COMMIT", &mut random)).expect_err("there is no room");
                assert!(is_full(&refused, &life), "{}", life.explain(&refused));
                assert!(!life.pool.is_read_only(), "{:?}", life.pool.statistics().failure);
                assert_eq!(state(&life), before, "after a transaction of {rows} rows was refused");
            }
            life = again(life, &disk, &setting, &mut random);
            assert_eq!(state(&life), before);
            for (name, state) in &snapshots {
                let found =
                    life.look(Some(name)).unwrap_or_else(|failure| panic!("{}", life.explain(&failure)));
                assert_eq!(found, *state, "snapshot {name}");
            }
            // In the same process: a snapshot goes, and there is room again.
            let refused = life.perform(&large(1000, "COMMIT", &mut random)).expect_err("there is no room");
            assert!(is_full(&refused, &life), "{}", life.explain(&refused));
            for (name, _) in snapshots {
                life.pool
                    .destroy(&DestroyTarget::Snapshot(format!("ds@{name}")))
                    .expect("destroyed on a full pool");
            }
            must_do(&mut life, &large(60, "COMMIT", &mut random));
            must_do(&mut life, &large(60, "ROLLBACK", &mut random));
            life.pool.verify().expect("the books");
        }
        life.close().expect("a clean close");
    });
}

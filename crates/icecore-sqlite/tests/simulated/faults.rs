//! Calls that fail: the application gets an error of SQLite, nothing acknowledged is lost, and the process
//! goes on where it can.

use crate::crashes::io_count;
use crate::history::{Action, History, Setting};
use crate::life::{Failure, Life, new_disk};
use icecore_sim::cases::{Context, for_each_seed, is_long, must};
use icecore_sim::{CrashMode, FaultKind, Random, SimulatedDisk};

const ERROR: i32 = 1;
const IO_ERROR: i32 = 10;
const FULL: i32 = 13;
const CANNOT_OPEN: i32 = 14;

/// A failure as applications know them, of the kind that was ordered.
fn check_failure(failure: &Failure, action: &Action, kind: FaultKind) {
    let known = match (action, failure) {
        (Action::Checkpoint, Failure::Store(_)) => true,
        // An SQL function has no codes of its own.
        (Action::Snapshot(_), _) => {
            matches!(failure.code(), Some(ERROR | IO_ERROR | FULL | CANNOT_OPEN))
        }
        (_, _) if kind == FaultKind::NoSpace => matches!(failure.code(), Some(FULL | CANNOT_OPEN | IO_ERROR)),
        (_, _) => matches!(failure.code(), Some(IO_ERROR | CANNOT_OPEN)),
    };
    assert!(known, "{failure:?} of {action:?} after {kind:?}");
}

/// After a failure: what can be read is what was acknowledged, and a pool that takes no writes says why.
fn bear(life: &Life, history: &History, done: usize, kind: FaultKind) {
    let failure = life.pool.statistics().failure;
    assert_eq!(life.pool.is_read_only(), failure.is_some(), "{failure:?}");
    assert!(kind != FaultKind::SyncError || failure.is_some(), "a flush failed and the pool goes on");
    assert!(kind != FaultKind::NoSpace || failure.is_none(), "a full disk is no reason to stop: {failure:?}");
    must(life.find(history, done, done..=done));
}

struct Case<'case> {
    disk: SimulatedDisk,
    history: &'case History,
    kind: FaultKind,
    random: Random,
}

impl Case<'_> {
    /// Begins anew after a failure that the pool did not get over.
    fn restart(&mut self, done: usize) -> (Life, usize) {
        if self.random.chance(50) {
            self.disk.crash_as(CrashMode::ALL_MODES[self.random.index(6)]);
        } else {
            self.disk.kill();
        }
        let life = Life::begin(&self.disk, &self.history.setting).expect("the pool opens again");
        let found = must(life.find(self.history, done, done..=done + 1));
        (life, found)
    }

    /// Lives through the whole history, whatever fails on the way. Whether anything did.
    fn live(&mut self, number: u64, persistent: bool) -> bool {
        self.disk.fail_at(number, self.kind, persistent);
        let mut done = 0;
        let mut life = match Life::begin(&self.disk, &self.history.setting) {
            Ok(life) => life,
            Err(_) => {
                self.disk.clear_faults();
                self.restart(0).0
            }
        };
        loop {
            let (now, failure) = life.live(self.history, done, usize::MAX);
            done = now;
            let Some(failure) = failure else { break };
            let _context =
                Context(format!("action {done} failed: {failure:?}\n{}", self.history.recent(done)));
            assert!(self.disk.faults_struck() > 0, "no call has failed");
            check_failure(&failure, &self.history.actions[done], self.kind);
            self.disk.clear_faults();
            bear(&life, self.history, done, self.kind);
            if life.pool.is_read_only() {
                // Nor does it show to connections of later what it could not make durable.
                life.hang_up();
                bear(&life, self.history, done, self.kind);
                let refused =
                    life.perform(&Action::Sql(vec![crate::history::Statement::new("CREATE TABLE no(x)")]));
                assert!(refused.is_err(), "the pool is read-only and a table was made");
                (life, done) = self.restart(done);
            }
        }
        self.disk.clear_faults();
        must(life.find(self.history, done, done..=done));
        if life.pool.is_read_only() {
            // A failure in the background, after all was done.
            (life, done) = self.restart(done);
        }
        life.close().expect("a clean close");
        let life = Life::begin(&self.disk, &self.history.setting).expect("the pool opens again");
        must(life.find(self.history, done, done..=done));
        self.disk.faults_struck() > 0
    }
}

#[test]
fn every_call_that_fails_is_an_error_of_sqlite() {
    let mut struck = 0;
    for_each_seed("sql_faults", 3, |seed| {
        let mut random = Random::new(seed);
        let attached = random.chance(30);
        let journal = ["DELETE", "TRUNCATE", "PERSIST"][random.index(3)];
        // Without caches, so that there are reads to fail.
        let setting = Setting { attached, journal, caches: false, ..Setting::draw(&mut random) };
        let history = History::generate(setting, 20, &mut random);
        let base = new_disk(seed, 256 << 20, None);
        let calls = io_count(&base, &history);
        for kind in [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace] {
            // Calls that need space are few; of the others there are about as many of each sort.
            let last = if kind == FaultKind::NoSpace { 12 } else { calls * 2 / 3 };
            let numbers = if is_long() { last } else { 5 };
            for number in 1..=numbers {
                let number = if is_long() { number } else { random.between(1, last) };
                let persistent = random.chance(30);
                let _context = Context(format!(
                    "{kind:?} at call {number}, persistent: {persistent}, {:?}",
                    history.setting
                ));
                let disk = base.duplicate(random.next());
                let mut case = Case { disk, history: &history, kind, random: random.fork() };
                struck += u32::from(case.live(number, persistent));
            }
        }
    });
    println!("{struck} of the faults struck");
    assert!(struck > 10, "only {struck} of the faults struck");
}

//! The power fails at any I/O, also while what it left is being repaired: the database is sound and holds
//! exactly what was acknowledged, or one transaction more.

use crate::history::{Action, History, Setting, Statement};
use crate::life::{Life, new_disk};
use icecore_sim::cases::{Context, for_each_seed, is_long, must, sample};
use icecore_sim::{CrashMode, Random, SimulatedDisk};
use std::ops::RangeInclusive;

const CAPACITY: u64 = 256 << 20;

/// I/Os of a whole life.
pub fn io_count(disk: &SimulatedDisk, history: &History) -> u64 {
    let disk = disk.duplicate(0);
    let before = disk.io_count();
    let mut life = Life::begin(&disk, &history.setting).expect("a new database");
    let (done, failure) = life.live(history, 0, usize::MAX);
    assert!(failure.is_none(), "action {done} failed: {failure:?}");
    must(life.find(history, done, done..=done));
    life.close().expect("a clean close");
    disk.io_count() - before
}

/// Lives until the crash comes: how many actions were acknowledged.
fn live_to_crash(disk: &SimulatedDisk, history: &History) -> usize {
    let (done, failure) = match Life::begin(disk, &history.setting) {
        Ok(mut life) => life.live(history, 0, usize::MAX),
        Err(failure) => (0, Some(failure)),
    };
    assert!(disk.is_cut() || failure.is_none(), "action {done} failed without a crash: {failure:?}");
    done
}

/// Opens a disk that was crashed.
fn recover(disk: &SimulatedDisk, setting: &Setting) -> Life {
    Life::begin(disk, setting).unwrap_or_else(|failure| panic!("cannot open after a crash: {failure:?}"))
}

/// What may be found after a crash: what was acknowledged as durable, at most one more.
fn allowed(history: &History, done: usize) -> RangeInclusive<usize> {
    let durable = |action: &Action| matches!(action, Action::Snapshot(_) | Action::Checkpoint);
    let least = if history.setting.synchronous == "OFF" {
        history.actions[..done].iter().rposition(durable).map_or(0, |index| index + 1)
    } else {
        done
    };
    least..=done + 1
}

/// The pool is opened, cut off at an I/O of the opening, and again: the same is found in the end.
fn crash_while_recovering(disk: &SimulatedDisk, history: &History, found: usize, random: &mut Random) {
    let reference = disk.duplicate(0);
    let before = reference.io_count();
    drop(recover(&reference, &history.setting));
    let count = reference.io_count() - before;
    let disk = disk.duplicate(random.next());
    for _ in 0..2 {
        let number = random.between(1, count.max(1));
        let _context = Context(format!("crash at I/O {number} of {count} of the recovery"));
        disk.crash_at(number);
        drop(Life::begin(&disk, &history.setting));
        disk.crash_as(CrashMode::ALL_MODES[random.index(6)]);
    }
    let life = recover(&disk, &history.setting);
    let state = life.look(None).expect("a readable database");
    assert!(state == history.states[found], "a crash during recovery changed what is found");
}

/// Everything that a crash may do to one history.
fn crash_everywhere(seed: u64, history: &History, most: u64, random: &mut Random) -> u64 {
    let base = new_disk(seed, CAPACITY, None);
    let mut crashes = 0;
    for number in sample(io_count(&base, history), most, random) {
        let _context = Context(format!("crash at I/O {number}, {:?}", history.setting));
        let first = base.duplicate(seed ^ number);
        first.crash_at(number);
        let done = live_to_crash(&first, history);
        let _context = Context(format!("{done} of {} actions were done", history.actions.len()));
        let modes =
            if is_long() { &CrashMode::ALL_MODES[..] } else { &CrashMode::ALL_MODES[random.index(4)..][..3] };
        for mode in modes {
            let _context = Context(format!("mode {mode:?}"));
            let disk = first.duplicate(random.next());
            disk.crash_as(*mode);
            let crashed = disk.duplicate(random.next());
            let mut life = recover(&disk, &history.setting);
            let found = must(life.find(history, done, allowed(history, done)));
            crash_while_recovering(&crashed, history, found, random);
            // Life goes on.
            let (done, failure) = life.live(history, found, found + 4);
            assert!(failure.is_none(), "action {done} failed after recovery: {failure:?}");
            must(life.find(history, done, done..=done));
            life.close().expect("a clean close");
            must(recover(&disk, &history.setting).find(history, done, done..=done));
            crashes += 1;
        }
    }
    crashes
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_at_any_io() {
    let mut crashes = 0;
    for_each_seed("sql", 5, |seed| {
        let mut random = Random::new(seed);
        let history = History::generate(Setting::draw(&mut random), 24, &mut random);
        crashes += crash_everywhere(seed, &history, 8, &mut random);
    });
    println!("{crashes} crashes");
}

#[test]
fn every_io_of_one_history() {
    // Few actions, so that there is time for each and every I/O.
    for_each_seed("every", 1, |seed| {
        let mut random = Random::new(seed);
        let setting = Setting { page_bytes: 4096, cache_pages: 5, ..Setting::draw(&mut random) };
        let history = History::generate(setting, 7, &mut random);
        let crashes = crash_everywhere(seed, &history, u64::MAX, &mut random);
        println!("{crashes} crashes");
    });
}

#[test]
fn attached_files_commit_together_or_not_at_all() {
    let mut crashes = 0;
    for_each_seed("attached", 4, |seed| {
        let mut random = Random::new(seed);
        let journal = ["DELETE", "TRUNCATE", "PERSIST"][random.index(3)];
        let setting = Setting { attached: true, journal, ..Setting::draw(&mut random) };
        let history = History::generate(setting, 16, &mut random);
        crashes += crash_everywhere(seed, &history, 8, &mut random);
    });
    println!("{crashes} crashes");
}

#[test]
fn without_synchronous_a_prefix_of_the_transactions_is_there() {
    let mut crashes = 0;
    for_each_seed("off", 4, |seed| {
        let mut random = Random::new(seed);
        let attached = random.chance(50);
        let setting = Setting { synchronous: "OFF", attached, ..Setting::draw(&mut random) };
        let history = History::generate(setting, 24, &mut random);
        crashes += crash_everywhere(seed, &history, 8, &mut random);
    });
    println!("{crashes} crashes");
}

/// SQLite truncates a file that shrinks after its sync, just before the end of phase two. Without a
/// super-journal the file left the transaction by that, and was committed alone.
#[test]
fn attached_files_that_shrink_commit_together_without_a_super_journal() {
    for_each_seed("shrink", 1, |seed| {
        let mut random = Random::new(seed);
        for (journal, synchronous) in [("PERSIST", "OFF"), ("MEMORY", "FULL")] {
            let setting = Setting {
                page_bytes: 4096,
                cache_pages: 1000,
                journal,
                synchronous,
                vacuum: "FULL",
                attached: true,
                caches: true,
            };
            let fill =
                "INSERT INTO FILE.t VALUES (1, zeroblob(20000)), (2, zeroblob(20000)), (3, zeroblob(20000))";
            let actions = vec![
                in_both_files(&["CREATE TABLE FILE.t(a INTEGER, b BLOB)", fill]),
                in_both_files(&["DELETE FROM FILE.t WHERE a = 3"]),
                in_both_files(&["DELETE FROM FILE.t WHERE a = 2"]),
            ];
            crash_everywhere(seed, &History::of(setting, actions), u64::MAX, &mut random);
        }
    });
}

/// One transaction that does the same to the main and to the attached file.
fn in_both_files(sql: &[&str]) -> Action {
    let both = ["main", "other"].iter().flat_map(|file| sql.iter().map(|sql| sql.replace("FILE", file)));
    let all = ["BEGIN".to_owned()].into_iter().chain(both).chain(["COMMIT".to_owned()]);
    Action::Sql(all.map(Statement::new).collect())
}

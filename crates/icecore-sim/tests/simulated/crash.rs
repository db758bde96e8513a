//! Crashes: at every I/O, in every mode, also during recovery, several lives in a row. What is found is
//! always a state that the model allows, and life goes on from there.

use crate::common::{Context, cases, for_each_seed, must, open, sample};
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::{CrashMode, Random};

/// Lives until the scheduled crash comes; false if it did not within these steps.
fn live_to_crash(explorer: &mut Explorer, steps: usize) -> bool {
    match must(explorer.live(steps)) {
        Verdict::Cut => true,
        Verdict::Agreed => false,
        Verdict::Failed(error) => panic!("failed without a fault: {error}\n  {}", explorer.recent()),
    }
}

fn agree(explorer: &mut Explorer, steps: usize) {
    assert!(!live_to_crash(explorer, steps), "a crash that was not ordered");
    must(explorer.check());
}

/// A pool with some history, killed: every case begins with a copy of it.
fn beginning(seed: u64, steps: usize) -> Explorer {
    let mut explorer = Explorer::new(seed, &Setting::draw(seed)).unwrap();
    explorer.open().unwrap();
    agree(&mut explorer, steps);
    explorer.crash(None);
    explorer
}

/// I/Os that opening and so many steps take.
fn io_count(base: &Explorer, steps: usize) -> u64 {
    let mut explorer = base.fork(0);
    let before = explorer.disk.io_count();
    open(&mut explorer);
    must(explorer.find());
    agree(&mut explorer, steps);
    let count = explorer.disk.io_count() - before;
    explorer.crash(None);
    count
}

#[test]
fn a_crash_at_every_io_leaves_a_state_that_the_model_allows() {
    let mut points = 0;
    for_each_seed("every_io", 3, |seed| {
        let mut random = Random::new(seed);
        let steps = 40;
        let base = beginning(seed, random.index(60));
        for number in sample(io_count(&base, steps), 24, &mut random) {
            let _context = Context(format!("crash at I/O {number}"));
            let mut first = base.fork(seed ^ number);
            first.disk.crash_at(number);
            // The crash may come while the pool is being opened.
            if first.open().is_ok() {
                must(first.find());
                if !live_to_crash(&mut first, steps) {
                    continue;
                }
            } else {
                assert!(first.disk.is_cut(), "opening failed and there was no crash");
            }
            for mode in CrashMode::ALL_MODES {
                let _context = Context(format!("mode {mode:?}"));
                let mut explorer = first.fork(random.next());
                explorer.crash(Some(mode));
                open(&mut explorer);
                must(explorer.find());
                agree(&mut explorer, 12);
                explorer.close().unwrap();
                open(&mut explorer);
                must(explorer.check());
                points += 1;
            }
        }
    });
    println!("{points} crashes");
}

#[test]
fn a_crash_at_every_io_of_a_recovery_changes_nothing() {
    let mut points = 0;
    for_each_seed("recovery", 4, |seed| {
        let mut random = Random::new(seed);
        let mut base = beginning(seed, 20 + random.index(60));
        base.disk.crash_at(random.between(5, 60));
        if base.open().is_ok() {
            must(base.find());
            must(base.live(200));
        }
        base.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
        // What the first recovery would find is what every later one has to find.
        let mut reference = base.fork(1);
        let before = reference.disk.io_count();
        open(&mut reference);
        let found = must(reference.find());
        let count = reference.disk.io_count() - before;
        reference.crash(None);
        for number in sample(count, 12, &mut random) {
            for mode in [CrashMode::None, CrashMode::Sectors, CrashMode::Mixed] {
                let _context =
                    Context(format!("crash at I/O {number} of {count} of the recovery, mode {mode:?}"));
                let mut explorer = base.fork(random.next());
                for again in [number, random.between(1, count)] {
                    explorer.disk.crash_at(again);
                    if explorer.open().is_ok() {
                        explorer.disk.crash();
                        explorer.forget();
                        continue;
                    }
                    assert!(explorer.disk.is_cut(), "opening failed and there was no crash");
                    explorer.crash(Some(mode));
                }
                open(&mut explorer);
                assert_eq!(must(explorer.find()), found, "a crash during recovery changed what is found");
                agree(&mut explorer, 8);
                points += 1;
            }
        }
    });
    println!("{points} crashes");
}

#[test]
fn many_lives_in_a_row() {
    let mut lives = 0;
    for_each_seed("many_lives", 6, |seed| {
        let mut random = Random::new(seed);
        let mut explorer = Explorer::new(seed, &Setting::draw(seed)).unwrap();
        for life in 0..cases(12).clamp(12, 40) {
            let _context = Context(format!("life {life}"));
            let soon = random.chance(30);
            explorer.disk.crash_at(if soon { random.between(1, 12) } else { random.between(1, 150) });
            let mode = CrashMode::ALL_MODES[random.index(6)];
            match explorer.open() {
                Ok(()) => {
                    must(explorer.find());
                    if !live_to_crash(&mut explorer, 60) {
                        must(explorer.check());
                        let kill = random.chance(50);
                        explorer.crash((!kill).then_some(mode));
                        // A killed process loses nothing that is in the files; a scheduled crash stays
                        // scheduled.
                        lives += 1;
                        continue;
                    }
                }
                Err(error) => {
                    assert!(explorer.disk.is_cut(), "cannot open: {error}\n  {}", explorer.recent())
                }
            }
            explorer.crash(Some(mode));
            lives += 1;
        }
        explorer.disk.crash();
        open(&mut explorer);
        must(explorer.find());
        agree(&mut explorer, 20);
    });
    println!("{lives} lives");
}

#[test]
fn a_killed_process_loses_nothing_that_it_wrote() {
    for_each_seed("killed", 4, |seed| {
        let mut random = Random::new(seed);
        let mut explorer = beginning(seed, 30);
        for _ in 0..8 {
            open(&mut explorer);
            must(explorer.find());
            agree(&mut explorer, 1 + random.index(20));
            explorer.crash(None);
        }
        open(&mut explorer);
        must(explorer.find());
    });
}

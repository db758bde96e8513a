//! Collection, struck by crashes and failures at every single I/O.

mod common;

use common::{Told, for_each_seed, is_long, must};
use icecore::Error;
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::model::Step;
use icecore_sim::{CrashMode, FaultKind, Random};

const COLLECT: Step = Step::Collect { segments: 6 };

fn open(explorer: &mut Explorer) {
    if let Err(error) = explorer.open() {
        panic!("cannot open: {error}\n  {}", explorer.recent());
    }
    must(explorer.find());
}

fn agree(explorer: &mut Explorer, steps: usize) {
    let verdict = must(explorer.live(steps));
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
    must(explorer.check());
}

/// Much is written, little of it lives long, and nothing was collected so far.
fn setting(seed: u64) -> Setting {
    let mut setting = Setting::draw(seed);
    setting.weights.collect = 0;
    setting.weights.write = 80;
    setting.weights.write_bytes_max = 256 << 10;
    setting.weights.offset_max = 512 << 10;
    setting.options.log_bytes_max = 4 << 20;
    // So that what is compared comes from the disk.
    setting.options.block_cache_bytes = 0;
    setting.options.node_cache_bytes = 0;
    setting
}

/// A pool with something to collect, open.
fn beginning(seed: u64) -> Explorer {
    let mut explorer = Explorer::new(seed, &setting(seed)).unwrap();
    open(&mut explorer);
    agree(&mut explorer, 150);
    explorer
}

fn collect(explorer: &mut Explorer) -> Verdict {
    must(explorer.perform(COLLECT))
}

/// The numbers of the I/Os of a collection: all of them in a long run, else a sample.
fn numbers(base: &Explorer, random: &mut Random) -> Vec<u64> {
    let mut explorer = base.fork(0);
    open(&mut explorer);
    let before = explorer.disk.io_count();
    let verdict = collect(&mut explorer);
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}");
    let statistics = explorer.pool().statistics();
    assert!(statistics.segments_collected > 0, "there was nothing to collect");
    let last = explorer.disk.io_count() - before;
    must(explorer.check());
    explorer.crash(None);
    if is_long() {
        return (1..=last).collect();
    }
    (0..8).map(|_| random.between(1, last)).collect()
}

#[test]
fn a_crash_at_every_io_of_a_collection() {
    for_each_seed("collect_crash", 2, |seed| {
        let mut random = Random::new(seed);
        let mut base = beginning(seed);
        base.crash(None);
        for number in numbers(&base, &mut random) {
            let mut first = base.fork(seed ^ number);
            open(&mut first);
            first.disk.crash_at(number);
            if matches!(collect(&mut first), Verdict::Agreed) {
                // What recovery wrote differs a little from life to life.
                first.disk.crash();
            }
            for mode in CrashMode::ALL_MODES {
                let _told = Told(format!("crash at I/O {number} of a collection, mode {mode:?}"));
                let mut explorer = first.fork(random.next());
                explorer.crash(Some(mode));
                open(&mut explorer);
                agree(&mut explorer, 5);
                assert!(matches!(collect(&mut explorer), Verdict::Agreed));
                must(explorer.check());
                explorer.crash(Some(mode));
                open(&mut explorer);
            }
        }
    });
}

/// Space that was freed is used again at once, so that whatever still looks for a moved block at its old place
/// finds something else there.
#[test]
fn collections_and_crashes_in_turns() {
    for_each_seed("collect_turns", 3, |seed| {
        let mut random = Random::new(seed);
        let mut explorer = beginning(seed);
        for _ in 0..6 {
            assert!(matches!(collect(&mut explorer), Verdict::Agreed));
            agree(&mut explorer, 20);
            if random.chance(50) {
                let mode = CrashMode::ALL_MODES[random.index(6)];
                explorer.crash(Some(mode));
                open(&mut explorer);
            }
        }
        let report = explorer.pool().scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
    });
}

#[test]
fn every_call_of_a_collection_that_fails_is_borne() {
    for_each_seed("collect_faults", 2, |seed| {
        let mut random = Random::new(seed);
        let mut base = beginning(seed);
        base.crash(None);
        let numbers = numbers(&base, &mut random);
        for kind in [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace] {
            for number in numbers.iter().copied().take(if is_long() { usize::MAX } else { 6 }) {
                let _told = Told(format!("{kind:?} at call {number} of a collection"));
                let mut explorer = base.fork(random.next());
                open(&mut explorer);
                explorer.disk.fail_at(number, kind, false);
                match collect(&mut explorer) {
                    Verdict::Failed(error) => {
                        let told = explorer.pool().statistics().failure;
                        let is_known = matches!(error, Error::Io { .. } | Error::ReadOnlyAfterFailure { .. });
                        assert!(is_known, "{error}");
                        assert_ne!(kind, FaultKind::ReadError, "a failed read is reported: {error}");
                        assert!(kind != FaultKind::SyncError || told.is_some(), "a flush failed: {error}");
                    }
                    Verdict::Agreed => {}
                    Verdict::Cut => panic!("nobody ordered a crash"),
                }
                explorer.disk.clear_faults();
                if explorer.pool().is_read_only() {
                    explorer.crash(random.chance(50).then_some(CrashMode::ALL_MODES[random.index(6)]));
                    open(&mut explorer);
                } else {
                    must(explorer.check());
                }
                agree(&mut explorer, 5);
                explorer.crash(None);
                open(&mut explorer);
            }
        }
    });
}

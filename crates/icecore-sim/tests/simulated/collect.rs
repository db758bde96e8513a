//! Collection, and giving back what it freed, struck by crashes and failures at every single I/O.

use crate::common::{self, Context, for_each_seed, is_long, must};
use icecore::{Error, Statistics};
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::model::{Data, FileChange, Step};
use icecore_sim::{CrashMode, FaultKind, Random};

const COLLECT: Step = Step::Collect { segments: 6, checkpoint: true };
/// Nothing becomes durable but where blocks lie.
const MOVE: Step = Step::Collect { segments: 6, checkpoint: false };

fn open(explorer: &mut Explorer) {
    common::open(explorer);
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
fn numbers(base: &Explorer, random: &mut Random, step: &Step) -> Vec<u64> {
    let mut explorer = base.fork(0);
    open(&mut explorer);
    let (before, segments) = (explorer.disk.io_count(), explorer.pool().statistics().segments);
    let verdict = must(explorer.perform(step.clone()));
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}");
    let Statistics { segments_collected, segments: left, .. } = explorer.pool().statistics();
    let is_done = if *step == Step::Trim { left < segments } else { segments_collected > 0 };
    assert!(is_done, "there was nothing to do: {segments} segments, {segments_collected} collected");
    let last = explorer.disk.io_count() - before;
    must(explorer.check());
    explorer.crash(None);
    if is_long() {
        return (1..=last).collect();
    }
    (0..8).map(|_| random.between(1, last)).collect()
}

/// A pool in which much died since the last checkpoint, and not all of what happened since is durable.
fn beginning_within_the_log(seed: u64) -> Explorer {
    let mut explorer = beginning(seed);
    must(explorer.perform(Step::Checkpoint));
    agree(&mut explorer, 40);
    explorer
}

fn crash_at_every_io(name: &str, beginning: fn(u64) -> Explorer, step: &Step) {
    for_each_seed(name, 2, |seed| {
        let mut random = Random::new(seed);
        let mut base = beginning(seed);
        base.crash(None);
        for number in numbers(&base, &mut random, step) {
            let mut first = base.fork(seed ^ number);
            open(&mut first);
            first.disk.crash_at(number);
            if matches!(must(first.perform(step.clone())), Verdict::Agreed) {
                // What recovery wrote differs a little from life to life.
                first.disk.crash();
            }
            for mode in CrashMode::ALL_MODES {
                let _context = Context(format!("crash at I/O {number} of a collection, mode {mode:?}"));
                let mut explorer = first.fork(random.next());
                explorer.crash(Some(mode));
                open(&mut explorer);
                agree(&mut explorer, 5);
                assert!(matches!(must(explorer.perform(step.clone())), Verdict::Agreed));
                must(explorer.check());
                explorer.crash(Some(mode));
                open(&mut explorer);
            }
        }
    });
}

#[test]
fn a_crash_at_every_io_of_a_collection() {
    crash_at_every_io("collect_crash", beginning, &COLLECT);
}

/// Replay goes on from the checkpoint before, and finds everything at its new place.
#[test]
fn a_crash_at_every_io_of_moves_recorded_alone() {
    crash_at_every_io("moves_crash", beginning_within_the_log, &MOVE);
}

/// A pool with segments in which nothing lives any more.
fn beginning_with_free_segments(seed: u64) -> Explorer {
    let mut explorer = beginning(seed);
    let path = "gone".to_owned();
    must(explorer.perform(Step::CreateDataset { name: "trim".to_owned(), parents: false }));
    let mut change = |change| {
        let step = Step::Change { dataset: "trim".to_owned(), change };
        assert!(matches!(must(explorer.perform(step)), Verdict::Agreed));
    };
    change(FileChange::CreateFile { path: path.clone(), mode: 0o644 });
    for number in 0..16 {
        let data = Data { seed: seed ^ number | 1, length: 1 << 20 };
        change(FileChange::Write { path: path.clone(), offset: number << 20, data });
    }
    change(FileChange::Truncate { path, size: 0 });
    agree(&mut explorer, 10);
    explorer
}

#[test]
fn a_crash_at_every_io_of_a_trim() {
    crash_at_every_io("trim_crash", beginning_with_free_segments, &Step::Trim);
}

/// Space that was freed is used again at once, so that whatever still looks for a moved block at its old
/// place finds something else there.
#[test]
fn collections_and_crashes_in_turns() {
    for_each_seed("collect_turns", 4, |seed| {
        let mut random = Random::new(seed);
        let mut explorer = beginning(seed);
        for _ in 0..6 {
            let step = if random.chance(50) { COLLECT } else { MOVE };
            assert!(matches!(must(explorer.perform(step)), Verdict::Agreed));
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
        let numbers = numbers(&base, &mut random, &COLLECT);
        for kind in [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace] {
            for number in numbers.iter().copied().take(if is_long() { usize::MAX } else { 6 }) {
                let _context = Context(format!("{kind:?} at call {number} of a collection"));
                let mut explorer = base.fork(random.next());
                open(&mut explorer);
                explorer.disk.fail_at(number, kind, false);
                match collect(&mut explorer) {
                    Verdict::Failed(error) => {
                        let said = explorer.pool().statistics().failure;
                        let is_known = matches!(error, Error::Io { .. } | Error::ReadOnlyAfterFailure { .. });
                        assert!(is_known, "{error}");
                        assert_ne!(kind, FaultKind::ReadError, "a failed read is reported: {error}");
                        assert!(kind != FaultKind::SyncError || said.is_some(), "a flush failed: {error}");
                    }
                    Verdict::Agreed => {}
                    Verdict::Cut => panic!("no crash was ordered"),
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

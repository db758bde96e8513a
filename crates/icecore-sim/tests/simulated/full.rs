//! Pools at 90, 95, 99 and 100 % of what they can hold: whatever looks, frees or goes back works at each of
//! them, and nothing is ever lost. Full is the size limit, the medium, or a quota on it.

use crate::common::{Context, SEGMENT, STEPS_MAX, filling, for_each_seed, must, open};
use icecore::{DestroyTarget, Error, ListFilter};
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::model::{FileChange, Step};
use icecore_sim::{CrashMode, Random};

/// What there is no more of.
#[derive(Clone, Copy, Debug)]
enum End {
    Limit,
    Medium,
    Quota,
}

fn setting(seed: u64, end: End, segments: u64) -> Setting {
    let mut setting = filling(seed);
    setting.segment_bytes = SEGMENT;
    setting.weights.far_percent = 0;
    let bytes = segments * SEGMENT;
    match end {
        End::Limit => setting.size_limit = Some(bytes),
        End::Medium => setting.disk.capacity = bytes + 12_288,
        End::Quota => {
            setting.disk.capacity = bytes + 12_288;
            setting.disk.full_is_quota = true;
        }
    }
    setting
}

fn beginning(seed: u64, setting: &Setting) -> Explorer {
    let mut explorer = Explorer::new(seed, setting).unwrap();
    open(&mut explorer);
    explorer
}

fn used(explorer: &Explorer) -> u64 {
    explorer.pool().statistics().used_bytes
}

/// Lives until so much is used, or the pool is full: true if it is.
fn fill(explorer: &mut Explorer, bytes: u64) -> bool {
    for _ in 0..STEPS_MAX {
        match must(explorer.step()) {
            Verdict::Agreed if used(explorer) >= bytes => return false,
            Verdict::Agreed => {}
            Verdict::Failed(Error::NoSpace { .. }) => return true,
            other => panic!("{other:?}\n  {}", explorer.recent()),
        }
    }
    panic!("it never gets full: {:?}", explorer.pool().statistics());
}

/// Goes on until nothing that adds something finds room any more, and nothing is said to be available.
fn squeeze(explorer: &mut Explorer, end: End) {
    let mut refused_in_a_row = 0;
    for _ in 0..STEPS_MAX {
        let name = explorer.history.current().datasets().keys().next().expect("a dataset").clone();
        let number = explorer.history.length();
        let steps = [
            Step::Snapshot { names: vec![format!("{name}@squeeze{number}")], recursive: false },
            Step::Change {
                dataset: name,
                change: FileChange::CreateFile { path: format!("squeeze{number}"), mode: 0o644 },
            },
        ];
        for step in steps {
            match must(explorer.perform(step)) {
                Verdict::Failed(Error::NoSpace { .. }) => refused_in_a_row += 1,
                Verdict::Agreed => refused_in_a_row = 0,
                other => panic!("{other:?}\n  {}", explorer.recent()),
            }
        }
        if refused_in_a_row >= 6 {
            let available = explorer.pool().statistics().available_bytes;
            // No program can ask for a quota of the filesystem.
            assert!(
                available == 0 || matches!(end, End::Quota),
                "{available} bytes are said to be available"
            );
            return;
        }
    }
    panic!("there is always room for more");
}

fn agree(explorer: &mut Explorer, step: Step) {
    let shown = format!("{step:?}");
    let verdict = must(explorer.perform(step));
    let statistics = explorer.pool().statistics();
    assert!(
        matches!(verdict, Verdict::Agreed),
        "{shown}: {verdict:?}\n  {statistics:?}\n  {}",
        explorer.recent()
    );
}

/// Visible snapshots whose name is known, newest first.
fn snapshots(explorer: &Explorer) -> Vec<String> {
    let mut names: Vec<String> = explorer.history.current().named_snapshots().map(|(name, _)| name).collect();
    names.reverse();
    names
}

/// Everything that must work however full a pool is.
fn administer(explorer: &mut Explorer, random: &mut Random) {
    let everything = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    assert!(!explorer.pool().list(&everything).unwrap().is_empty());
    must(explorer.check());
    let report = explorer.pool().scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
    agree(explorer, Step::Checkpoint);
    // There, and back again.
    for _ in 0..3 {
        let names = snapshots(explorer);
        let Some(snapshot) = random.pick(&names).cloned() else { break };
        let dataset = snapshot.split('@').next().expect("a dataset").to_owned();
        agree(explorer, Step::Rollback { snapshot });
        let (saved, _) = explorer
            .history
            .current()
            .named_snapshots()
            .filter(|(name, _)| name.starts_with(&format!("{dataset}@rollback-")))
            .last()
            .expect("what a rollback keeps has a name");
        agree(explorer, Step::Rollback { snapshot: saved });
    }
    must(explorer.check());
    match random.below(3) {
        0 => {
            explorer.close().unwrap();
            open(explorer);
            must(explorer.check());
        }
        1 => {
            explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
            open(explorer);
            must(explorer.find());
        }
        _ => {}
    }
}

/// Destroys snapshots, as a policy does that gives up everything, and removes files.
fn empty(explorer: &mut Explorer) {
    for name in snapshots(explorer) {
        agree(explorer, Step::Destroy(DestroyTarget::Snapshot(name)));
    }
    let files: Vec<(String, String)> = {
        let datasets = explorer.history.current().datasets().iter();
        datasets
            .flat_map(|(name, one)| one.head.paths().into_iter().map(|(path, _)| (name.clone(), path)))
            .collect()
    };
    for (dataset, path) in files.into_iter().filter(|(_, path)| !path.is_empty()) {
        // Directories, and what is gone with another name, are refused by the model as well.
        agree(explorer, Step::Change { dataset, change: FileChange::Unlink { path } });
    }
}

#[test]
fn everything_that_looks_frees_or_goes_back_works_at_every_level() {
    for_each_seed("levels", 2, |seed| {
        let mut random = Random::new(seed);
        let end = [End::Limit, End::Medium, End::Quota][random.index(3)];
        let setting = setting(seed, end, random.between(14, 26));
        let _context = Context(format!("{end:?}"));
        // The same life twice: the first says where the end is.
        let mut first = beginning(seed, &setting);
        assert!(fill(&mut first, u64::MAX), "it is full now");
        let full = used(&first);
        first.crash(None);
        let mut explorer = beginning(seed, &setting);
        for percent in [90, 95, 99, 100] {
            let _context = Context(format!("at {percent} % of {full} bytes"));
            let bytes = if percent == 100 { u64::MAX } else { full / 100 * percent };
            fill(&mut explorer, bytes);
            if percent == 100 {
                squeeze(&mut explorer, end);
            }
            administer(&mut explorer, &mut random);
        }
        let _context = Context("when all is destroyed".to_owned());
        empty(&mut explorer);
        must(explorer.check());
        // In the same process, as full as before.
        let mut done = 0;
        for _ in 0..60 {
            done += usize::from(matches!(must(explorer.step()), Verdict::Agreed));
        }
        assert!(done >= 50, "space was given back and {done} of 60 steps are done");
        must(explorer.check());
        explorer.close().unwrap();
    });
}

/// What a rollback takes of the reserve, a checkpoint gives back: it may be done again and again.
#[test]
fn rollbacks_on_a_full_pool_do_not_use_up_the_room_that_destroying_needs() {
    for_each_seed("rollbacks", 2, |seed| {
        let mut random = Random::new(seed);
        let end = [End::Limit, End::Quota][(seed % 2) as usize];
        let setting = setting(seed, end, 16);
        let mut explorer = beginning(seed, &setting);
        fill(&mut explorer, u64::MAX);
        squeeze(&mut explorer, end);
        let names = snapshots(&explorer);
        // More than the log has room for without a new stretch.
        for _ in 0..550 {
            let snapshot = random.pick(&names).expect("a snapshot").clone();
            agree(&mut explorer, Step::Rollback { snapshot });
        }
        must(explorer.check());
        explorer.close().unwrap();
        open(&mut explorer);
        empty(&mut explorer);
        must(explorer.check());
        assert!(!fill(&mut explorer, 4 * SEGMENT), "space was given back");
    });
}

/// Space that others take on the same medium, and give back: nothing has to be restarted.
#[test]
fn a_medium_that_others_fill_and_empty_again() {
    for_each_seed("others", 2, |seed| {
        let mut random = Random::new(seed);
        let end = if random.chance(50) { End::Medium } else { End::Quota };
        let setting = setting(seed, end, 24);
        let mut explorer = beginning(seed, &setting);
        fill(&mut explorer, 4 * SEGMENT);
        for round in 0..2 {
            let _context = Context(format!("round {round}, {end:?}"));
            // Files that are there stay; there is nothing beyond them.
            explorer.disk.set_capacity(0);
            fill(&mut explorer, u64::MAX);
            squeeze(&mut explorer, end);
            administer(&mut explorer, &mut random);
            // As closed while the medium is full, as in a crash.
            if random.chance(50) {
                explorer.crash(None);
                open(&mut explorer);
                must(explorer.find());
            }
            explorer.disk.set_capacity(setting.disk.capacity + (round + 1) * 8 * SEGMENT);
            let more = used(&explorer) + 3 * SEGMENT;
            let is_full = fill(&mut explorer, more);
            let statistics = explorer.pool().statistics();
            assert!(!is_full, "the medium has room again: {statistics:?}\n  {}", explorer.recent());
            must(explorer.check());
        }
        explorer.close().unwrap();
    });
}

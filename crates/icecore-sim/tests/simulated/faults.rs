//! Calls that fail: reads, writes, flushes, space. An operation errs cleanly, or the pool takes no more
//! writes and says why. Nothing acknowledged is lost. A full pool can be listed, closed, opened and made less
//! full.

use crate::common::{Context, for_each_seed, is_long, must, open};
use icecore::units::InodeNumber;
use icecore::{Creation, Dataset, DestroyTarget, Error, ListFilter, RenameHow, View};
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::model::{FileChange, Step};
use icecore_sim::{CrashMode, DiskConfig, FaultKind, Random};

fn beginning(seed: u64, setting: &Setting, steps: usize) -> Explorer {
    let mut explorer = Explorer::new(seed, setting).unwrap();
    open(&mut explorer);
    let verdict = must(explorer.live(steps));
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
    explorer.crash(None);
    explorer
}

/// A pool that met a failure: it is as it was, or takes no more writes and says why. Afterwards it is open
/// and well.
fn overcome(explorer: &mut Explorer, kind: FaultKind, error: &Error, random: &mut Random) {
    explorer.disk.clear_faults();
    if explorer.is_open() && !explorer.pool().is_read_only() {
        assert_ne!(kind, FaultKind::SyncError, "a flush failed ({error}) and the pool goes on");
        must(explorer.check());
        return;
    }
    if explorer.is_open() {
        let failure = explorer.pool().statistics().failure;
        assert!(failure.is_some(), "it takes no writes and does not say why, after {error}");
        let refused = explorer.pool().create_dataset("refused", false, &[]);
        assert!(matches!(refused, Err(Error::ReadOnlyAfterFailure { .. })), "{refused:?}");
        let everything = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        explorer.pool().list(&everything).unwrap();
        if random.chance(50) {
            // What was done and is not durable is lost, and closing the pool reports that; else all of it has
            // to be found.
            let closed = explorer.close();
            assert!(matches!(closed, Ok(()) | Err(Error::ReadOnlyAfterFailure { .. })), "{closed:?}");
        }
    }
    let mode = CrashMode::ALL_MODES[random.index(6)];
    explorer.crash(random.chance(50).then_some(mode));
    open(explorer);
    must(explorer.find());
}

#[test]
fn every_call_that_fails_is_borne() {
    let mut struck = 0;
    for_each_seed("faults", 4, |seed| {
        let mut random = Random::new(seed);
        let mut setting = Setting::draw(seed);
        // Small caches, so that reads fail in the middle of things.
        setting.options.node_cache_bytes = 0;
        setting.options.block_cache_bytes = 0;
        let mut base = beginning(seed, &setting, 40);
        open(&mut base);
        must(base.find());
        must(base.live(5));
        base.close().unwrap();
        for kind in [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace] {
            let numbers = if is_long() { 60 } else { 10 };
            for number in 0..numbers {
                let number = if is_long() { number + 1 } else { random.between(1, 60) };
                let persistent = random.chance(30);
                let _context = Context(format!("{kind:?} at call {number}, persistent: {persistent}"));
                let mut explorer = base.fork(random.next());
                explorer.disk.fail_at(number, kind, persistent);
                match explorer.open() {
                    Ok(()) => {
                        if let Verdict::Failed(error) = must(explorer.live(30)) {
                            overcome(&mut explorer, kind, &error, &mut random);
                        }
                    }
                    Err(error) => overcome(&mut explorer, kind, &error, &mut random),
                }
                explorer.disk.clear_faults();
                struck += explorer.disk.faults_struck();
                if explorer.pool().is_read_only() {
                    explorer.crash(None);
                    open(&mut explorer);
                    must(explorer.find());
                }
                let verdict = must(explorer.live(10));
                assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
                must(explorer.check());
            }
        }
    });
    println!("{struck} failed calls");
}

/// Destroys whatever can be destroyed, until there is little left.
fn destroy_something(explorer: &mut Explorer) {
    let names: Vec<String> = explorer.history.current().named_snapshots().map(|(name, _)| name).collect();
    for name in names.iter().rev() {
        let target = DestroyTarget::Snapshot(name.clone());
        let verdict = must(explorer.perform(Step::Destroy(target)));
        assert!(matches!(verdict, Verdict::Agreed), "destroying {name} on a full pool: {verdict:?}");
    }
    let files: Vec<(String, String)> = {
        let model = explorer.history.current();
        let all = model.datasets().iter().flat_map(|(name, dataset)| {
            dataset.head.paths().into_iter().map(move |(path, _)| (name.clone(), path))
        });
        all.filter(|(_, path)| !path.is_empty()).collect()
    };
    for (dataset, path) in files {
        let change = FileChange::Unlink { path };
        let verdict = must(explorer.perform(Step::Change { dataset, change }));
        assert!(matches!(verdict, Verdict::Agreed), "unlinking on a full pool: {verdict:?}");
    }
}

/// Lives until the pool is full, a number of times.
fn fill(explorer: &mut Explorer, most: usize) -> bool {
    for _ in 0..most {
        match must(explorer.step()) {
            Verdict::Agreed => {}
            Verdict::Cut => panic!("no crash was ordered"),
            Verdict::Failed(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}\n  {}", explorer.recent());
                assert!(!explorer.pool().is_read_only(), "{:?}", explorer.pool().statistics().failure);
                return true;
            }
        }
    }
    false
}

#[test]
fn a_full_pool_can_be_emptied_and_goes_on() {
    for_each_seed("full", 4, |seed| {
        let mut random = Random::new(seed);
        let mut setting = Setting::draw(seed);
        setting.weights.write = 80;
        setting.weights.far_percent = 0;
        setting.weights.write_bytes_max = 256 << 10;
        setting.weights.offset_max = 512 << 10;
        let bytes = random.between(16, 24) * setting.segment_bytes;
        // The limit of the pool, or the medium itself.
        if random.chance(50) {
            setting.size_limit = Some(bytes);
        } else {
            setting.disk = DiskConfig { capacity: bytes + 8192 + 4096, ..setting.disk };
        }
        let mut explorer = Explorer::new(seed, &setting).unwrap();
        open(&mut explorer);
        for round in 0..2 {
            let _context = Context(format!("round {round}, {bytes} bytes, {:?}", setting.size_limit));
            assert!(fill(&mut explorer, 8000), "it never gets full");
            must(explorer.check());
            // It stays what it is, and can be closed, opened, killed.
            for _ in 0..5 {
                match must(explorer.step()) {
                    Verdict::Agreed | Verdict::Failed(Error::NoSpace { .. }) => {}
                    other => panic!("{other:?}\n  {}", explorer.recent()),
                }
            }
            must(explorer.check());
            if random.chance(50) {
                explorer.close().unwrap();
            } else {
                explorer.crash(None);
            }
            open(&mut explorer);
            must(explorer.find());
            fill(&mut explorer, 50);
            destroy_something(&mut explorer);
            must(explorer.check());
            // In the same process.
            let mut done = 0;
            for _ in 0..20 {
                done += usize::from(matches!(must(explorer.step()), Verdict::Agreed));
            }
            assert!(done >= 15, "space was given back and {done} of 20 steps are done");
        }
    });
}

/// Blocks of a file so scattered that its extents fill several nodes.
const SCATTERED: u64 = 3000;

/// A closed pool with a scattered file `gone` and an empty file `other` in dataset `d`.
/// A checkpoint is due after half of `log_bytes_max`.
fn scattered(log_bytes_max: u64) -> Explorer {
    let mut setting = Setting::default();
    setting.options.log_bytes_max = log_bytes_max;
    setting.options.node_cache_bytes = 0;
    setting.options.block_cache_bytes = 0;
    let mut explorer = Explorer::new(1, &setting).unwrap();
    open(&mut explorer);
    explorer.pool().create_dataset("d", false, &[]).unwrap();
    let dataset = explorer.pool().dataset("d").unwrap();
    dataset.open_or_create(b"other", &Creation::file()).unwrap();
    let file = dataset.open_or_create(b"gone", &Creation::file()).unwrap();
    let mut group = dataset.begin().unwrap();
    for block in 0..SCATTERED {
        group.write(file, block * 8192, &[1; 4096]).unwrap();
    }
    explorer.pool().commit(vec![group]).unwrap();
    drop(dataset);
    explorer.close().unwrap();
    explorer
}

/// The call takes the name of the scattered file away, and every read of it fails once. An error says that
/// nothing was done. A success says that the name is gone, and a later opening frees the file.
fn answers_what_it_did(call: fn(&Dataset) -> icecore::Result<()>, is_done: fn(&View) -> bool) {
    let base = scattered(2 << 20);
    let (mut refused, mut left) = (0, 0);
    for number in 1.. {
        let mut explorer = base.fork(number);
        open(&mut explorer);
        let dataset = explorer.pool().dataset("d").unwrap();
        let view = dataset.view().unwrap();
        explorer.disk.fail_at(number, FaultKind::ReadError, false);
        let outcome = call(&dataset);
        explorer.disk.clear_faults();
        let is_struck = explorer.disk.faults_struck() > 0;
        drop(view);
        assert_eq!(outcome.is_ok(), is_done(&dataset.view().unwrap()), "read {number}: {outcome:?}");
        refused += u64::from(outcome.is_err());
        left += u64::from(outcome.is_ok() && explorer.pool().statistics().used_bytes > SCATTERED * 4096);
        dataset.sync().unwrap();
        drop(dataset);
        explorer.crash(None);
        open(&mut explorer);
        explorer.pool().verify().unwrap();
        let used = explorer.pool().statistics().used_bytes;
        assert_eq!(outcome.is_ok(), used < SCATTERED * 4096, "read {number}: {used} bytes are used");
        if !is_struck {
            assert!(refused > 0 && left > 0, "{refused} were refused, {left} left the file to be freed");
            return;
        }
    }
}

#[test]
fn a_name_that_is_gone_is_answered_so_whatever_read_fails() {
    answers_what_it_did(
        |dataset| dataset.unlink(InodeNumber::ROOT, b"gone").map(drop),
        |view| view.lookup(InodeNumber::ROOT, b"gone").unwrap().is_none(),
    );
}

#[test]
fn a_renaming_that_is_done_is_answered_so_whatever_read_fails() {
    answers_what_it_did(
        |dataset| {
            let (from, to) = ((InodeNumber::ROOT, &b"other"[..]), (InodeNumber::ROOT, &b"gone"[..]));
            dataset.rename(from, to, RenameHow::Replace).map(drop)
        },
        |view| view.lookup(InodeNumber::ROOT, b"other").unwrap().is_none(),
    );
}

/// Each step is followed by a checkpoint, and every write of them fails once.
#[test]
fn a_pool_that_fails_while_it_frees_a_file_answers_an_error() {
    let base = scattered(8192);
    let mut failed_freeing = 0;
    for number in 1.. {
        let mut explorer = base.fork(number);
        open(&mut explorer);
        let dataset = explorer.pool().dataset("d").unwrap();
        explorer.disk.fail_at(number, FaultKind::WriteError, false);
        let outcome = dataset.unlink(InodeNumber::ROOT, b"gone");
        assert_eq!(outcome.is_err(), explorer.pool().is_read_only(), "write {number}: {outcome:?}");
        let is_freed = explorer.pool().statistics().used_bytes < SCATTERED * 4096;
        failed_freeing += u64::from(outcome.is_err() && is_freed);
        drop(dataset);
        if explorer.disk.faults_struck() == 0 {
            assert!(failed_freeing > 0, "no write failed after the name was gone");
            return;
        }
    }
}

//! Snapshots that are destroyed and not yet taken apart, struck by a crash at every I/O. What is left is
//! right, nothing that was destroyed comes back, and all that it held alone is freed in the end.

use crate::common::{Context, for_each_seed, sample};
use icecore::units::InodeNumber;
use icecore::{Creation, Dataset, DestroyTarget, ListFilter, Pool, Result};
use icecore_sim::explorer::{Explorer, Setting};
use icecore_sim::{CrashMode, FaultKind, Random};

const SNAPSHOTS: u64 = 24;
/// The range that is destroyed.
const FIRST: u64 = 3;
const LAST: u64 = 20;
const FILE_BYTES: u64 = 1 << 20;
const WRITE_BYTES: usize = 32 << 10;

fn open_file(pool: &Pool) -> Result<(Dataset, InodeNumber)> {
    let dataset = pool.dataset("d")?;
    let file = dataset.open_or_create(b"f", &Creation::file())?;
    Ok((dataset, file))
}

fn change(pool: &Pool, random: &mut Random) -> Result<()> {
    let (dataset, file) = open_file(pool)?;
    let offset = random.between(0, FILE_BYTES - WRITE_BYTES as u64) / 512 * 512;
    dataset.write(file, offset, &vec![random.next() as u8; WRITE_BYTES])
}

/// A pool with snapshots, a fork by rollback among them, killed.
fn beginning(seed: u64) -> Explorer {
    let mut setting = Setting::default();
    // A checkpoint every few writes.
    setting.options.log_bytes_max = 256 << 10;
    let mut explorer = Explorer::new(seed, &setting).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    pool.create_dataset("d", false, &[]).unwrap();
    let mut random = Random::new(seed);
    for number in 1..=SNAPSHOTS {
        for _ in 0..1 + random.index(3) {
            change(pool, &mut random).unwrap();
        }
        pool.snapshot(&[format!("d@{number}")], false, &[]).unwrap();
        if number == LAST - 4 {
            pool.rollback(&format!("d@{}", number - 3), false).unwrap();
        }
    }
    explorer.crash(None);
    explorer
}

fn names(pool: &Pool) -> Vec<String> {
    let filter = ListFilter { snapshots: true, ..ListFilter::default() };
    pool.list(&filter).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Destroys many, then writes, each call taking a little of them apart. Answers in how many checkpoints some
/// of them were still there, as far as it came.
fn destroy_and_go_on(pool: &Pool, chosen: &[String], random: &mut Random, met: &mut u64) -> Result<()> {
    let shorts = chosen.iter().filter_map(|name| name.split_once('@')).map(|(_, short)| short.to_owned());
    pool.destroy(&DestroyTarget::Snapshots { of: vec![("d".to_owned(), shorts.collect())] })?;
    for _ in 0..12 {
        let before = pool.statistics();
        change(pool, random)?;
        pool.sync()?;
        let after = pool.statistics();
        *met += u64::from(after.freeing_versions > 0 && after.checkpoints > before.checkpoints);
    }
    Ok(())
}

#[test]
fn what_was_destroyed_is_freed_whenever_a_crash_comes() {
    let mut points = 0;
    for_each_seed("freeing", 3, |seed| {
        let base = beginning(seed);
        let mut reference = base.fork(0);
        reference.open().unwrap();
        let all = names(reference.pool());
        let chosen: Vec<String> = (FIRST..=LAST).map(|number| format!("d@{number}")).collect();
        let left: Vec<String> = all.iter().filter(|name| !chosen.contains(name)).cloned().collect();
        let before = reference.disk.io_count();
        let mut met = 0;
        destroy_and_go_on(reference.pool(), &chosen, &mut Random::new(seed), &mut met).unwrap();
        let count = reference.disk.io_count() - before;
        assert!(met > 1, "checkpoints are made while destroyed versions are there");
        reference.crash(None);

        let mut random = Random::new(seed);
        for number in sample(count, 16, &mut random) {
            let _context = Context(format!("crash at I/O {number} of {count}"));
            let mut first = base.fork(seed ^ number);
            first.open().unwrap();
            first.disk.crash_at(number);
            let outcome = destroy_and_go_on(first.pool(), &chosen, &mut Random::new(seed), &mut 0);
            assert!(outcome.is_err() || !first.disk.is_cut());
            for mode in CrashMode::ALL_MODES {
                let _context = Context(format!("mode {mode:?}"));
                let mut explorer = first.fork(random.next());
                explorer.crash(Some(mode));
                explorer.open().unwrap();
                let pool = explorer.pool();
                let found = names(pool);
                assert!(found == all || found == left, "all or nothing: {found:?}");
                pool.verify().unwrap();
                if found == all {
                    destroy_and_go_on(pool, &chosen, &mut Random::new(seed), &mut 0).unwrap();
                }
                pool.checkpoint().unwrap();
                assert_eq!(pool.statistics().freeing_versions, 0);
                assert_eq!(pool.statistics().freeing_bytes, 0);
                pool.verify().unwrap();
                assert_eq!(names(pool), left);
                points += 1;
            }
        }
    });
    println!("{points} crashes");
}

#[test]
fn what_is_being_freed_is_reported_and_not_counted_as_used() {
    let mut explorer = beginning(5);
    explorer.open().unwrap();
    let pool = explorer.pool();
    let before = pool.statistics().used_bytes;
    let first = format!("{FIRST}");
    let target = DestroyTarget::Range { dataset: "d".to_owned(), first, last: format!("{}", FIRST + 8) };
    let planned = pool.plan_destroy(&target).unwrap();
    assert!(planned.frees.0 > 0);
    assert_eq!(pool.destroy(&target).unwrap(), planned);
    let after = pool.statistics();
    assert!(after.freeing_versions > 1, "some wait to be taken apart");
    assert!(after.freeing_bytes > 0 && after.freeing_bytes <= planned.frees.0);
    assert_eq!(before - after.used_bytes, planned.frees.0);
    // Names are free at once.
    pool.snapshot(&[format!("d@{FIRST}")], false, &[]).unwrap();
    assert!(pool.view(&format!("d@{}", FIRST + 1)).is_err());
    pool.verify().unwrap();
    assert_eq!(pool.statistics().freeing_versions, 0);
}

/// A pool with snapshots between scattered writes, whose sets lie in parts on disk, killed.
fn in_parts(seed: u64) -> Explorer {
    let mut explorer = Explorer::new(seed, &Setting::default()).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    pool.create_dataset("d", false, &[]).unwrap();
    let mut random = Random::new(seed);
    for round in 1..=6 {
        let (dataset, file) = open_file(pool).unwrap();
        let mut group = dataset.begin().unwrap();
        for block in (0..1200).filter(|_| round == 1 || random.chance(25)) {
            group.write(file, block * 4096, &[round; 4096]).unwrap();
        }
        pool.commit(vec![group]).unwrap();
        pool.snapshot(&[format!("d@{round}")], false, &[]).unwrap();
    }
    // One of them is a picture of everything.
    for _ in 0..70 {
        change(pool, &mut random).unwrap();
        pool.checkpoint().unwrap();
    }
    explorer.crash(None);
    explorer
}

/// What all datasets hold in a pool whose figures were not asked for before.
fn held(pool: &Pool) -> u64 {
    let filter = ListFilter { datasets: true, depth: Some(0), ..ListFilter::default() };
    pool.list(&filter).unwrap().iter().map(|entry| entry.used.0).sum()
}

/// A destruction that meets a read that fails is refused as a whole, or done. Where it is done, what it could
/// not read is freed as soon as a caller asks for figures and it can be read. All together is what was
/// planned.
#[test]
fn what_a_destruction_could_not_read_is_freed_when_it_can_be() {
    let base = in_parts(7);
    let (first, last) = ("2".to_owned(), "5".to_owned());
    let target = DestroyTarget::Range { dataset: "d".to_owned(), first, last };
    let mut reference = base.fork(0);
    reference.open().unwrap();
    let (planned, before) = (reference.pool().plan_destroy(&target).unwrap(), held(reference.pool()));
    let (mut struck, mut unsaid) = (0, 0);
    for number in 1..100 {
        let _context = Context(format!("read {number} fails"));
        let mut explorer = base.fork(number);
        explorer.open().unwrap();
        let (pool, disk) = (explorer.pool(), &explorer.disk);
        disk.fail_at(number, FaultKind::ReadError, false);
        let done = pool.destroy(&target);
        let is_struck = disk.faults_struck() > 0;
        disk.clear_faults();
        match done {
            Ok(done) => {
                assert_eq!(done.names, planned.names);
                assert!(done.frees == planned.frees || (is_struck && done.frees.0 == 0), "{done:?}");
                unsaid += u64::from(done.frees.0 == 0);
            }
            Err(error) => {
                assert!(is_struck, "{error}");
                assert_eq!(pool.destroy(&target).unwrap(), planned);
            }
        }
        assert_eq!(before - held(pool), planned.frees.0);
        pool.verify().unwrap();
        assert_eq!(pool.statistics().freeing_versions, 0);
        if !is_struck {
            break;
        }
        struck += 1;
    }
    assert!(
        struck > 2 && unsaid > 0,
        "{struck} met a read that failed, {unsaid} could not say what they free"
    );
}

//! Snapshots that are destroyed and not yet taken apart, struck by a crash at every I/O: what is left is right, nothing
//! that was destroyed comes back, and all that it held alone is freed in the end.

mod common;

use common::{Told, for_each_seed, sample};
use icecore::units::InodeNumber;
use icecore::{Creation, Dataset, DestroyTarget, ListFilter, Pool, Result};
use icecore_sim::explorer::{Explorer, Setting};
use icecore_sim::{CrashMode, Random};

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

/// Destroys many, then writes, each call taking a little of them apart; answers in how many checkpoints some of them were
/// still there, as far as it came.
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
            let _told = Told(format!("crash at I/O {number} of {count}"));
            let mut first = base.fork(seed ^ number);
            first.open().unwrap();
            first.disk.crash_at(number);
            let outcome = destroy_and_go_on(first.pool(), &chosen, &mut Random::new(seed), &mut 0);
            assert!(outcome.is_err() || !first.disk.is_cut());
            for mode in CrashMode::ALL_MODES {
                let _told = Told(format!("mode {mode:?}"));
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
fn what_is_being_freed_is_told_and_not_counted_as_used() {
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

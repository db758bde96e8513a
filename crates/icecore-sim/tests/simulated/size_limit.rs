//! The size limit is changed, and the power fails: at every I/O of it the pool is whole, and has one limit or
//! the other.

use crate::common::{Context, SEGMENT, STEPS_MAX, filling, for_each_seed, must, open, sample};
use icecore::units::ByteLength;
use icecore::{CopyMode, Error};
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::{CrashMode, Random};

fn setting(seed: u64, random: &mut Random) -> Setting {
    let mut setting = filling(seed);
    setting.size_limit = Some(random.between(16, 22) * SEGMENT);
    setting.copies = [CopyMode::None, CopyMode::Metadata, CopyMode::All][random.index(3)];
    if setting.copies != CopyMode::None && random.chance(30) {
        setting.mirror = Some("/mirror".to_owned());
    }
    setting
}

/// Lives until there is no room for more.
fn fill(explorer: &mut Explorer) {
    for _ in 0..STEPS_MAX {
        match must(explorer.step()) {
            Verdict::Agreed => {}
            Verdict::Failed(Error::NoSpace { .. }) => return,
            other => panic!("{other:?}\n  {}", explorer.recent()),
        }
    }
    panic!("it never gets full: {:?}", explorer.pool().statistics());
}

fn limit(explorer: &Explorer) -> u64 {
    explorer.pool().statistics().size_limit_bytes
}

/// Of so many steps some are done, where none was before.
fn goes_on(explorer: &mut Explorer) {
    let done = (0..40).filter(|_| matches!(must(explorer.step()), Verdict::Agreed)).count();
    assert!(done >= 30, "there is room, and {done} of 40 steps are done\n  {}", explorer.recent());
}

#[test]
fn a_crash_leaves_the_former_limit_or_the_new_one() {
    let mut points = 0;
    let mut found_new = 0;
    for_each_seed("size_limit", 2, |seed| {
        let mut random = Random::new(seed);
        let setting = setting(seed, &mut random);
        let former = setting.size_limit.expect("drawn");
        let wanted = if random.chance(30) { 0 } else { former + random.between(10, 20) * SEGMENT };
        let _context = Context(format!("from {former} to {wanted} bytes, {:?}", setting.copies));
        let mut base = Explorer::new(seed, &setting).unwrap();
        open(&mut base);
        fill(&mut base);
        base.crash(None);
        let change = |explorer: &Explorer| {
            explorer.pool().set_size_limit(Some(ByteLength(wanted)).filter(|limit| limit.0 > 0))
        };
        // Without a crash: how long it takes, and that it helps.
        let mut reference = base.fork(seed);
        open(&mut reference);
        must(reference.find());
        let before = reference.disk.io_count();
        change(&reference).unwrap();
        let count = reference.disk.io_count() - before;
        goes_on(&mut reference);
        reference.crash(None);
        for number in sample(count, 8, &mut random) {
            for mode in CrashMode::ALL_MODES {
                let _context = Context(format!("crash at I/O {number} of {count}, mode {mode:?}"));
                let mut explorer = base.fork(random.next());
                open(&mut explorer);
                must(explorer.find());
                explorer.disk.crash_at(number);
                let changed = change(&explorer);
                assert!(changed.is_err() || !explorer.disk.is_cut(), "it was cut off and said to be done");
                explorer.crash(Some(mode));
                open(&mut explorer);
                must(explorer.find());
                let found = limit(&explorer);
                assert!([former, wanted].contains(&found), "{found}");
                assert!(changed.is_err() || found == wanted, "it was durable");
                if found == wanted {
                    goes_on(&mut explorer);
                    found_new += 1;
                }
                // From here on it stays.
                explorer.close().unwrap();
                for lost in ["superblock.0", "superblock.1"] {
                    let mut twin = explorer.fork(random.next());
                    twin.disk.lose(lost).unwrap();
                    open(&mut twin);
                    assert_eq!(limit(&twin), found, "without {lost}");
                    twin.crash(None);
                }
                open(&mut explorer);
                assert_eq!(limit(&explorer), found);
                must(explorer.check());
                points += 1;
            }
        }
    });
    println!("{points} crashes, {found_new} after which the limit was the new one");
}

/// Raised and lowered again and again while it is filled, with crashes between: what the limit allows is
/// never exceeded.
#[test]
fn a_pool_keeps_to_a_limit_that_changes() {
    for_each_seed("changing_limit", 2, |seed| {
        let mut random = Random::new(seed);
        let mut setting = setting(seed, &mut random);
        setting.mirror = None;
        let mut explorer = Explorer::new(seed, &setting).unwrap();
        open(&mut explorer);
        let mut largest = setting.size_limit.expect("drawn");
        for round in 0..12 {
            let _context = Context(format!("round {round}, {:?}", setting.copies));
            let wanted = random.between(12, 60) * SEGMENT;
            match explorer.pool().set_size_limit(Some(ByteLength(wanted))) {
                Ok(()) => assert_eq!(limit(&explorer), wanted),
                Err(Error::Invalid(_)) => assert!(wanted < limit(&explorer), "it was not less than before"),
                Err(error) => panic!("{error}"),
            }
            largest = largest.max(limit(&explorer));
            for _ in 0..60 {
                match must(explorer.step()) {
                    Verdict::Agreed | Verdict::Failed(Error::NoSpace { .. }) => {}
                    other => panic!("{other:?}\n  {}", explorer.recent()),
                }
            }
            let taken: u64 = explorer
                .disk
                .files()
                .iter()
                .map(|(_, length)| length)
                .filter(|length| **length >= SEGMENT)
                .sum();
            assert!(taken <= limit(&explorer), "{taken} bytes are taken of {}", limit(&explorer));
            if random.chance(30) {
                explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
                open(&mut explorer);
                must(explorer.find());
            }
        }
        must(explorer.check());
        explorer.close().unwrap();
    });
}

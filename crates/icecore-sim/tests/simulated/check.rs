//! Check and repair on histories: what is sound is found sound whatever happened to it, nothing is written by
//! looking, and a repaired pool is one that the model allows.

use crate::common::{Context, beginning, for_each_seed, is_long, must};
use icecore::check::{CheckOptions, RepairOptions, check, repair};
use icecore_sim::driver::compare_damaged;
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::{CrashMode, Random};
use std::collections::BTreeMap;

fn contents(explorer: &Explorer) -> Vec<(String, Vec<u8>)> {
    let files = explorer.disk.files().into_iter();
    files.map(|(name, _)| (name.clone(), explorer.disk.contents(&name).unwrap())).collect()
}

#[test]
fn what_is_sound_is_found_sound_and_stays_as_it_is() {
    for_each_seed("check", 6, |seed| {
        for closed in [true, false] {
            let _context = Context(format!("closed: {closed}"));
            let explorer = beginning(seed, closed);
            let before = contents(&explorer);
            let report = check(explorer.disk.storage(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
            assert!(report.opened && report.is_sound(), "{report:?}");
            let lost = report.problems.iter().find(|problem| !problem.harmless);
            assert!(lost.is_none(), "{lost:?}");
            let report = check(explorer.disk.storage(), &CheckOptions::default(), &mut |_| {}).unwrap();
            assert!(report.opened && report.is_sound(), "without data: {report:?}");
            assert!(contents(&explorer) == before, "looking changed something");
        }
    });
}

/// Where the newest ledger blob lies, by the superblock.
fn ledger(explorer: &Explorer) -> (String, u64, u64) {
    let block = explorer.disk.contents("superblock.0").unwrap();
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    (format!("segment.{:08}", word(88)), u64::from(word(92)) * 4096, u64::from(word(96)) * 4096)
}

#[test]
fn a_checkpoint_that_is_lost_comes_back_whole_or_not_at_all() {
    let mut outcomes: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    for_each_seed("former", if is_long() { 40 } else { 8 }, |seed| {
        let mut random = Random::new(seed);
        for closed in [true, false] {
            let _context = Context(format!("closed: {closed}"));
            let mut explorer = beginning(seed, closed);
            let (name, offset, length) = ledger(&explorer);
            let at = offset + random.below(length);
            explorer.disk.flip_bit(&name, at, random.below(8) as u32).unwrap();
            assert!(explorer.open().is_err());
            explorer.crash(None);
            let before = contents(&explorer);
            let dry = RepairOptions { dry_run: true, data: true, ..RepairOptions::default() };
            let planned = repair(explorer.disk.storage(), &dry, &mut |_| {}).unwrap();
            assert!(contents(&explorer) == before, "a dry run wrote something");
            let report = repair(explorer.disk.storage(), &RepairOptions::default(), &mut |_| {}).unwrap();
            assert_eq!(planned.steps, report.steps);
            if report.steps.is_empty() {
                assert!(!report.refused.is_empty() && !report.after.opened, "{report:?}");
                assert!(contents(&explorer) == before, "nothing was mended, and something was written");
                *outcomes.entry((closed, "refused")).or_default() += 1;
                continue;
            }
            assert!(report.after.is_sound() && report.kept_aside.is_some(), "{report:?}");
            explorer.open().unwrap();
            must(explorer.find());
            must(explorer.check());
            let verdict = must(explorer.live(30));
            assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
            *outcomes.entry((closed, "whole")).or_default() += 1;
        }
    });
    println!("{outcomes:?}");
    // Nothing comes after the last checkpoint of a pool that was closed.
    assert!(
        !outcomes.contains_key(&(true, "refused")) && outcomes.contains_key(&(true, "whole")),
        "{outcomes:?}"
    );
}

/// Calls that change something, of a whole repair; none if not everything can be repaired.
fn calls_of_repair(base: &Explorer) -> Option<u64> {
    let whole = base.fork(1);
    let before = whole.disk.io_count();
    let report = repair(whole.disk.storage(), &RepairOptions::default(), &mut |_| {}).unwrap();
    report.after.is_sound().then(|| whole.disk.io_count() - before)
}

/// Cuts a repair short at a call, and repairs again.
fn cut_short(base: &Explorer, luck: u64, number: u64, mode: CrashMode) {
    let _context = Context(format!("cut at call {number}, {mode:?}, luck {luck}"));
    let mut explorer = base.fork(luck);
    explorer.disk.crash_at(number);
    let outcome = repair(explorer.disk.storage(), &RepairOptions::default(), &mut |_| {});
    assert!(explorer.disk.is_cut(), "{outcome:?}");
    explorer.crash(Some(mode));
    let again = repair(explorer.disk.storage(), &RepairOptions::default(), &mut |_| {}).unwrap();
    assert!(again.after.opened && again.after.is_sound(), "{again:?}");
    explorer.open().unwrap();
    must(explorer.find());
    explorer.crash(None);
}

#[test]
fn a_repair_that_is_cut_short_leaves_a_pool_that_can_be_repaired() {
    for_each_seed("cut", 3, |seed| {
        let mut base = beginning(seed, true);
        let (name, offset, _) = ledger(&base);
        base.disk.flip_bit(&name, offset + 5, 1).unwrap();
        base.crash(None);
        for number in 1..=calls_of_repair(&base).unwrap().min(40) {
            cut_short(&base, number, number, CrashMode::ALL_MODES[number as usize % 6]);
        }
    });
}

/// The only good superblock was written over before its twin was whole.
#[test]
fn a_repair_that_is_cut_short_leaves_one_superblock_whole() {
    let mut cut = 0;
    for_each_seed("twins", 3, |seed| {
        let mut closed = beginning(seed, true);
        let (name, offset, _) = ledger(&closed);
        closed.disk.flip_bit(&name, offset + 5, 1).unwrap();
        closed.crash(None);
        for twin in ["superblock.0", "superblock.1"] {
            let base = closed.fork(seed);
            base.disk.corrupt(twin, 0..512).unwrap();
            // Superblocks come last, those in another folder behind those of the pool.
            let Some(calls) = calls_of_repair(&base) else { continue };
            for number in calls.saturating_sub(13).max(1)..=calls {
                let _context = Context(format!("{twin} is corrupt"));
                (0..4).for_each(|luck| cut_short(&base, luck, number, CrashMode::Sectors));
                cut += 1;
            }
        }
    });
    assert!(cut > 10, "{cut}");
}

/// A pool of several lives, most of which were cut short at any I/O, at the end of which it is closed or
/// killed.
fn several_lives(seed: u64, closed: bool) -> Explorer {
    let mut random = Random::new(seed ^ 0x11fe);
    let mut setting = Setting::draw(seed);
    setting.weights.write_bytes_max = 32 << 10;
    setting.options.map_memory_bytes = 0;
    let mut explorer = Explorer::new(seed, &setting).unwrap();
    for _ in 0..6 {
        explorer.disk.crash_at(random.between(1, 400));
        if explorer.open().is_ok() {
            must(explorer.live(60));
        }
        explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
        explorer.open().unwrap();
        must(explorer.find());
        let verdict = must(explorer.live(30));
        assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
        explorer.close().unwrap();
    }
    if !closed {
        explorer.open().unwrap();
        must(explorer.live(40));
        explorer.crash(None);
    }
    explorer
}

#[test]
fn data_segments_that_were_wiped_are_noticed_without_reading_data() {
    let mut outcomes: BTreeMap<(bool, bool), u64> = BTreeMap::new();
    for_each_seed("wiped", 3, |seed| {
        for closed in [true, false] {
            let _context = Context(format!("closed: {closed}"));
            let base = several_lives(seed, closed);
            let look = |explorer: &Explorer, data: bool| {
                check(explorer.disk.storage(), &CheckOptions { data }, &mut |_| {}).unwrap()
            };
            let sound = [false, true].map(|data| look(&base, data));
            assert!(sound.iter().all(|report| report.opened && report.is_sound()), "{sound:?}");
            for (name, bytes) in contents(&base) {
                if !name.starts_with("segment.")
                    || !bytes.starts_with(b"ICESEGM\n")
                    || !matches!(bytes[12], 1 | 2)
                {
                    continue;
                }
                for first in [0, 4096] {
                    let explorer = base.fork(seed);
                    explorer.disk.overwrite(&name, first, &vec![0; bytes.len() - first as usize]).unwrap();
                    let _context = Context(format!("{name} from {first} on"));
                    let [quick, thorough] = [false, true].map(|data| look(&explorer, data));
                    assert_eq!(quick.is_sound(), thorough.is_sound(), "{quick:?}\n{thorough:?}");
                    *outcomes.entry((closed, quick.is_sound())).or_default() += 1;
                }
            }
        }
    });
    println!("{outcomes:?}");
    assert!(outcomes.contains_key(&(true, false)) && outcomes.contains_key(&(true, true)), "{outcomes:?}");
}

/// All chunks of the location map that are on disk, those of former maps as well.
fn chunks(explorer: &Explorer) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for (name, bytes) in contents(explorer).into_iter().filter(|(name, _)| name.starts_with("segment.")) {
        let chunks = bytes.chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"ICECHNK\n"));
        found.extend(chunks.map(|(index, _)| (name.clone(), index as u64 * 4096)));
    }
    found
}

#[test]
fn a_location_map_that_is_lost_is_made_again_from_the_headers_of_segments() {
    let mut outcomes: BTreeMap<(bool, bool, &str), u64> = BTreeMap::new();
    for_each_seed("places", if is_long() { 40 } else { 8 }, |seed| {
        let mut random = Random::new(seed);
        for closed in [true, false] {
            let base = several_lives(seed, closed);
            let places = chunks(&base);
            for all in [true, false] {
                let _context = Context(format!("closed: {closed}, all: {all}"));
                let mut explorer = base.fork(random.next());
                for (name, at) in places.iter().filter(|_| all || random.chance(20)) {
                    explorer.disk.corrupt(name, at + 16..at + 300).unwrap();
                }
                let options = RepairOptions { data: true, ..RepairOptions::default() };
                let report = repair(explorer.disk.storage(), &options, &mut |_| {}).unwrap();
                assert!(report.after.opened, "{report:?}");
                let unnamed = |text: &String| text.contains("in no header that is left");
                if report.refused.iter().any(unnamed) {
                    assert!(!report.after.is_sound(), "{report:?}");
                    *outcomes.entry((closed, all, "in part")).or_default() += 1;
                    explorer.open().unwrap();
                    compare_damaged(explorer.pool(), explorer.history.current()).unwrap();
                    continue;
                }
                assert!(report.after.is_sound() && report.refused.is_empty(), "{report:?}");
                let again = repair(explorer.disk.storage(), &options, &mut |_| {}).unwrap();
                assert!(again.changed_blocks == 0 && again.before.is_sound(), "{again:?}");
                explorer.open().unwrap();
                must(explorer.find());
                must(explorer.check());
                let verdict = must(explorer.live(60));
                assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
                explorer.close().unwrap();
                explorer.open().unwrap();
                must(explorer.check());
                let sort = if report.steps.is_empty() { "not needed" } else { "whole" };
                *outcomes.entry((closed, all, sort)).or_default() += 1;
            }
        }
    });
    println!("{outcomes:?}");
    assert!(outcomes.contains_key(&(true, true, "whole")), "{outcomes:?}");
}

/// Places of ledger blobs that are on disk, those of former checkpoints as well.
fn ledgers(explorer: &Explorer) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for (name, bytes) in contents(explorer).into_iter().filter(|(name, _)| name.starts_with("segment.")) {
        let blobs = bytes.chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"ICELEDG\n"));
        found.extend(blobs.map(|(index, _)| (name.clone(), index as u64 * 4096)));
    }
    found
}

/// Any byte of several blobs of the ledger: what comes back is what was there, or nothing is written and the
/// report says why.
#[test]
fn a_ledger_that_is_damaged_in_several_places_comes_back_whole_or_not_at_all() {
    let mut outcomes: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    for_each_seed("ledgers", if is_long() { 40 } else { 6 }, |seed| {
        let mut random = Random::new(seed);
        for closed in [true, false] {
            let base = several_lives(seed, closed);
            let (newest, offset, length) = ledger(&base);
            let blobs = ledgers(&base);
            for _ in 0..4 {
                let _context = Context(format!("closed: {closed}"));
                let mut explorer = base.fork(random.next());
                let at = offset + random.below(length);
                explorer.disk.flip_bit(&newest, at, random.below(8) as u32).unwrap();
                let others = random.index(4);
                for (name, at) in &blobs {
                    let within = at + random.below(5000);
                    if random.index(4) < others {
                        explorer.disk.flip_bit(name, within, 2).unwrap();
                    }
                }
                explorer.crash(None);
                let before = contents(&explorer);
                let report = repair(explorer.disk.storage(), &RepairOptions::default(), &mut |_| {}).unwrap();
                if report.steps.is_empty() {
                    assert!(!report.refused.is_empty() && !report.after.opened, "{report:?}");
                    assert!(contents(&explorer) == before, "nothing was mended, and something was written");
                    *outcomes.entry((closed, "refused")).or_default() += 1;
                    continue;
                }
                if !report.refused.is_empty() {
                    explorer.open().unwrap();
                    compare_damaged(explorer.pool(), explorer.history.current()).unwrap();
                    *outcomes.entry((closed, "in part")).or_default() += 1;
                    continue;
                }
                assert!(report.after.is_sound() && report.kept_aside.is_some(), "{report:?}");
                explorer.open().unwrap();
                must(explorer.find());
                must(explorer.check());
                let verdict = must(explorer.live(40));
                assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
                explorer.close().unwrap();
                explorer.open().unwrap();
                must(explorer.check());
                let sort = |text: &str| report.steps.iter().any(|step| step.contains(text));
                let sort = if sort("headers") {
                    "from headers"
                } else if sort("earlier") {
                    "from an earlier one"
                } else {
                    "from the one before"
                };
                *outcomes.entry((closed, sort)).or_default() += 1;
            }
        }
    });
    println!("{outcomes:?}");
    assert!(outcomes.contains_key(&(true, "from the one before")), "{outcomes:?}");
}

/// A checkpoint that took new segments to be written counted as one that needs what was used again since.
#[test]
fn what_a_checkpoint_took_for_itself_is_no_other_use() {
    let mut closed = beginning(292_191_741, true);
    let (name, offset, _) = ledger(&closed);
    closed.disk.flip_bit(&name, offset + 5, 1).unwrap();
    closed.crash(None);
    let report = repair(closed.disk.storage(), &RepairOptions::default(), &mut |_| {}).unwrap();
    assert!(report.after.opened && report.after.is_sound() && report.refused.is_empty(), "{report:?}");
}

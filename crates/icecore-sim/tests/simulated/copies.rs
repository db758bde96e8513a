//! Second copies: what is damaged is read from them and written again. A copy that was left behind is never
//! taken for what it should be. Whatever happens to copies, the pool goes on.

use crate::common::{Context, for_each_seed, is_long, must, open, sample};
use icecore::check::{CheckOptions, RepairOptions, check, repair};
use icecore::{CopyMode, Error, Pool};
use icecore_sim::explorer::{Explorer, Setting, Verdict, small_options};
use icecore_sim::{CrashMode, DiskConfig, FaultKind, Random, SimulatedDisk};

const BLOCK: usize = 4096;

fn setting(seed: u64, copies: CopyMode, mirrored: bool) -> Setting {
    let mut setting = Setting::draw(seed);
    setting.weights.write_bytes_max = 32 << 10;
    setting.copies = copies;
    setting.mirror = mirrored.then(|| "/mirror".to_owned());
    setting
}

fn agree(explorer: &mut Explorer, steps: usize) {
    let verdict = must(explorer.live(steps));
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
}

/// A pool with a history that was closed.
fn closed(seed: u64, copies: CopyMode, mirrored: bool) -> Explorer {
    let mut explorer = Explorer::new(seed, &setting(seed, copies, mirrored)).unwrap();
    explorer.open().unwrap();
    agree(&mut explorer, 120);
    explorer.close().unwrap();
    explorer
}

/// Files of segments that are used for one of these kinds, by their headers.
fn segments(disk: &SimulatedDisk, kinds: &[u8]) -> Vec<(String, Vec<u8>)> {
    let files = disk.files().into_iter().filter(|(name, _)| name.starts_with("segment."));
    let contents = files.map(|(name, _)| (name.clone(), disk.contents(&name).unwrap()));
    contents.filter(|(_, bytes)| bytes.starts_with(b"ICESEGM\n") && kinds.contains(&bytes[12])).collect()
}

/// Blocks in them that are not empty.
fn blocks(disk: &SimulatedDisk, kinds: &[u8]) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for (name, bytes) in segments(disk, kinds) {
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                found.push((name.clone(), (index * BLOCK) as u64));
            }
        }
    }
    found
}

fn kinds(mode: CopyMode) -> &'static [u8] {
    if mode == CopyMode::All { &[1, 2, 3, 4] } else { &[3, 4] }
}

const MODES: [(CopyMode, bool); 4] =
    [(CopyMode::Metadata, false), (CopyMode::Metadata, true), (CopyMode::All, false), (CopyMode::All, true)];

#[test]
fn what_is_damaged_and_has_a_copy_is_healed() {
    for_each_seed("copies_heal", 2, |seed| {
        let mut random = Random::new(seed);
        for (mode, mirrored) in MODES {
            let base = closed(seed, mode, mirrored);
            let places = blocks(&base.disk, kinds(mode));
            let mut healed = 0;
            for _ in 0..if is_long() { 60 } else { 12 } {
                let mut explorer = base.fork(random.next());
                let several = 1 + random.index(40);
                let mut places_hit = Vec::new();
                for _ in 0..several {
                    let (name, at) = random.pick(&places).unwrap();
                    explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
                    places_hit.push(format!("{name} at {at}"));
                }
                let _context = Context(format!("{mode:?} mirrored {mirrored}: {places_hit:?}"));
                let report =
                    check(explorer.disk.storage(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
                assert!(report.opened && report.is_sound(), "{report:?}");
                open(&mut explorer);
                must(explorer.check());
                let report = explorer.pool().scrub(&mut |_| true).unwrap();
                assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
                must(explorer.check());
                let statistics = explorer.pool().statistics();
                healed += statistics.healed_places;
                assert!(statistics.copies.is_whole(), "{:?}", statistics.copies);
                // Nothing is repaired silently.
                let is_reported =
                    explorer.pool().incidents().iter().any(|incident| incident.what.contains("healed"));
                assert!(is_reported || statistics.healed_places == 0);
                let again = explorer.pool().scrub(&mut |_| true).unwrap();
                let left: Vec<_> =
                    again.findings.iter().filter(|it| !it.damage.contains("segment makes up")).collect();
                assert!(left.is_empty(), "{left:?}");
                explorer.close().unwrap();
            }
            assert!(healed > 0, "{mode:?}");
        }
    });
}

/// Nothing has a copy any more.
fn lose_copies(explorer: &Explorer) {
    let disk = explorer.disk.mirror().unwrap_or_else(|| explorer.disk.clone());
    for (name, _) in disk.files().into_iter().filter(|(name, _)| name.starts_with("copy.")) {
        if !name.contains("superblock") {
            disk.lose(&name).unwrap();
        }
    }
}

/// A scrub or a reader heals what it finds damaged. The end of the scrub, or the next checkpoint, makes that
/// durable.
#[test]
fn what_was_healed_is_durable_when_copies_are_lost() {
    for_each_seed("copies_healed_for_good", 2, |seed| {
        let mut random = Random::new(seed);
        for (mode, mirrored) in MODES {
            let base = closed(seed, mode, mirrored);
            let places = blocks(&base.disk, kinds(mode));
            let block = |explorer: &Explorer, (name, at): &(String, u64)| {
                explorer.disk.contents(name).unwrap()[*at as usize..][..BLOCK].to_vec()
            };
            let mut healed = 0;
            for number in 0..if is_long() { 40 } else { 8 } {
                let mut explorer = base.fork(random.next());
                let corrupt: Vec<_> =
                    (0..1 + random.index(20)).map(|_| random.pick(&places).unwrap().clone()).collect();
                for (name, at) in &corrupt {
                    explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
                }
                let scrubbed = number % 2 == 0;
                let _context =
                    Context(format!("{mode:?} mirrored {mirrored} scrubbed {scrubbed}: {corrupt:?}"));
                open(&mut explorer);
                if scrubbed {
                    // What lies behind a header that one scrub heals is looked at by the next.
                    for _ in 0..2 {
                        let report = explorer.pool().scrub(&mut |_| true).unwrap();
                        assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
                    }
                } else {
                    must(explorer.check());
                    explorer.pool().checkpoint().unwrap();
                }
                let is_whole = |explorer: &Explorer, place| block(explorer, place) == block(&base, place);
                let whole: Vec<_> = corrupt.iter().filter(|place| is_whole(&explorer, place)).collect();
                healed += whole.len();
                explorer.crash(Some(CrashMode::None));
                let lost = whole.iter().find(|place| !is_whole(&explorer, place));
                assert!(lost.is_none(), "{lost:?} was healed");
                if scrubbed {
                    lose_copies(&explorer);
                    open(&mut explorer);
                    must(explorer.find());
                    let report = explorer.pool().scrub(&mut |_| true).unwrap();
                    assert_eq!(report.damaged, 0, "{report:?}");
                }
            }
            assert!(healed > 0, "{mode:?}");
        }
    });
}

#[test]
fn a_damaged_copy_is_written_again() {
    for_each_seed("copies_of_copies", 2, |seed| {
        let mut random = Random::new(seed);
        for (mode, mirrored) in MODES {
            let base = closed(seed, mode, mirrored);
            let places = blocks(&base.disk, &[3]);
            let mut explorer = base.fork(random.next());
            let disk = explorer.disk.mirror().unwrap_or_else(|| explorer.disk.clone());
            for (name, at) in &places {
                disk.corrupt(&name.replace("segment", "copy"), *at..*at + BLOCK as u64).unwrap();
            }
            let report = check(explorer.disk.storage(), &CheckOptions::default(), &mut |_| {}).unwrap();
            assert!(report.is_sound() && report.count > 0, "{report:?}");
            open(&mut explorer);
            let report = explorer.pool().scrub(&mut |_| true).unwrap();
            assert!(report.damaged == 0 && report.spare > 0, "{report:?}");
            explorer.crash(Some(CrashMode::None));
            // So that they are good for something now.
            for (name, at) in &places {
                explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
            }
            open(&mut explorer);
            must(explorer.check());
        }
    });
}

#[test]
fn a_segment_that_is_lost_is_made_again() {
    for_each_seed("copies_lost", 2, |seed| {
        let mut random = Random::new(seed);
        for (mode, mirrored) in MODES {
            let base = closed(seed, mode, mirrored);
            for (name, bytes) in segments(&base.disk, kinds(mode)) {
                for cut in [None, Some(0), Some(random.below(bytes.len() as u64))] {
                    let _context = Context(format!("{mode:?} mirrored {mirrored}: {name} cut to {cut:?}"));
                    let mut explorer = base.fork(random.next());
                    match cut {
                        None => explorer.disk.lose(&name).unwrap(),
                        Some(length) => explorer.disk.truncate(&name, length).unwrap(),
                    }
                    open(&mut explorer);
                    must(explorer.check());
                    explorer.close().unwrap();
                }
            }
        }
    });
}

#[test]
fn a_repair_heals_and_makes_superblocks_again_from_the_other_folder() {
    for_each_seed("copies_repair", 2, |seed| {
        let mut random = Random::new(seed);
        for (mode, mirrored) in MODES {
            let base = closed(seed, mode, mirrored);
            let places = blocks(&base.disk, kinds(mode));
            for lost in [false, true] {
                let mut explorer = base.fork(random.next());
                // Without superblocks, as after a crash, the copy of what the log ends in may be behind it.
                let places = if lost { blocks(&base.disk, &[3, 4]) } else { places.clone() };
                for _ in 0..30 {
                    let (name, at) = random.pick(&places).unwrap();
                    explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
                }
                if lost {
                    ["superblock.0", "superblock.1"]
                        .iter()
                        .for_each(|name| explorer.disk.lose(name).unwrap());
                }
                let options = RepairOptions {
                    data: true,
                    mirror: Some("/mirror".to_owned()),
                    ..RepairOptions::default()
                };
                if lost {
                    // Not by itself: the store cannot know whether the other folder is what it was.
                    explorer.open().unwrap_err();
                }
                let outcome = repair(explorer.disk.storage(), &options, &mut |_| {});
                if lost {
                    // A folder without a superblock is no pool to a repair either, unless its options say
                    // where to look.
                    match outcome {
                        Ok(report) if mirrored => assert!(report.after.is_sound(), "{report:?}"),
                        Ok(report) => assert!(!report.refused.is_empty(), "{report:?}"),
                        Err(error) => assert!(!mirrored, "{error}"),
                    }
                    if !mirrored {
                        continue;
                    }
                } else {
                    let report = outcome.unwrap();
                    assert!(report.after.is_sound() && report.refused.is_empty(), "{report:?}");
                    // What was hit may have been dead.
                    let is_reported =
                        report.before.problems.iter().any(|problem| problem.what.ends_with("copy is whole"));
                    let healed = report.steps.iter().any(|step| step.contains("healed"));
                    assert_eq!(is_reported, healed, "{report:?}");
                }
                let report =
                    check(explorer.disk.storage(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
                assert!(report.is_sound(), "{report:?}");
                open(&mut explorer);
                must(explorer.check());
            }
        }
    });
}

/// What is left of a pool whose folder is gone: its copies, under the names of what they are copies of.
#[test]
fn a_folder_with_copies_of_everything_is_as_good_as_the_pool() {
    for_each_seed("copies_salvage", 2, |seed| {
        let base = closed(seed, CopyMode::All, true);
        let mirror = base.disk.mirror().unwrap();
        let disk = SimulatedDisk::new(seed, DiskConfig::default());
        let storage = disk.storage();
        for (name, length) in mirror.files() {
            let name_then = name.replace("copy.superblock", "superblock").replace("copy.", "segment.");
            storage.create(&name_then, length).unwrap().sync().unwrap();
            disk.overwrite(&name_then, 0, &mirror.contents(&name).unwrap()).unwrap();
        }
        storage.sync_directory().unwrap();
        let pool = Pool::open(disk.storage(), &small_options()).unwrap();
        let picture = icecore_sim::driver::Picture::take(&pool).unwrap();
        assert!(picture.difference(base.history.current()).is_none());
        assert!(!pool.copies().is_whole());
        pool.set_copies(CopyMode::Metadata, None).unwrap();
        assert!(pool.copies().is_whole());
        pool.verify().unwrap();
    });
}

#[test]
fn a_mirror_that_fails_is_gone_on_without_and_made_whole_again() {
    let mut degraded = 0;
    for_each_seed("copies_mirror", 3, |seed| {
        let mut random = Random::new(seed);
        let mode = [CopyMode::Metadata, CopyMode::All][random.index(2)];
        let base = closed(seed, mode, true);
        for kind in [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace] {
            for _ in 0..if is_long() { 40 } else { 6 } {
                let (number, persistent) = (random.between(1, 40), random.chance(50));
                let _context =
                    Context(format!("{mode:?}: {kind:?} at call {number}, persistent: {persistent}"));
                let mut explorer = base.fork(random.next());
                let mirror = explorer.disk.mirror().unwrap();
                mirror.fail_at(number, kind, persistent);
                open(&mut explorer);
                agree(&mut explorer, 30);
                explorer.pool().checkpoint().unwrap();
                agree(&mut explorer, 10);
                must(explorer.check());
                degraded += u64::from(!explorer.pool().copies().is_whole());
                if random.chance(70) {
                    let mode = CrashMode::ALL_MODES[random.index(6)];
                    explorer.crash(random.chance(70).then_some(mode));
                    open(&mut explorer);
                    must(explorer.find());
                }
                mirror.clear_faults();
                whole_again(&mut explorer, mode, &mut random);
            }
        }
    });
    assert!(degraded > 0);
}

/// Once copies can be made, all are there, and good for something.
fn whole_again(explorer: &mut Explorer, mode: CopyMode, random: &mut Random) {
    let report = explorer.pool().restore_copies().unwrap();
    assert!(report.is_whole(), "{report:?}");
    let scrubbed = explorer.pool().scrub(&mut |_| true).unwrap();
    assert_eq!((scrubbed.damaged, scrubbed.complete), (0, true), "{scrubbed:?}");
    explorer.close().unwrap();
    let places = blocks(&explorer.disk, kinds(mode));
    for _ in 0..10 {
        let (name, at) = random.pick(&places).unwrap();
        explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
    }
    open(explorer);
    must(explorer.check());
    explorer.close().unwrap();
}

#[test]
fn a_mirror_that_was_away_is_not_believed_until_it_is_made_again() {
    for_each_seed("copies_away", 3, |seed| {
        let mut random = Random::new(seed);
        let mode = [CopyMode::Metadata, CopyMode::All][random.index(2)];
        let mut explorer = closed(seed, mode, true);
        let mirror = explorer.disk.mirror().unwrap();
        // While no process has the pool open, or in the middle of things.
        if random.chance(50) {
            open(&mut explorer);
            agree(&mut explorer, 10);
        }
        mirror.disappear();
        if !explorer.is_open() {
            open(&mut explorer);
        }
        agree(&mut explorer, 40);
        explorer.pool().checkpoint().unwrap();
        assert!(!explorer.pool().copies().is_whole());
        let incidents = explorer.pool().statistics();
        let why = incidents.copies.why.expect("it is known why");
        assert!(incidents.copies.degraded_since.is_some());
        match random.index(3) {
            0 => explorer.close().unwrap(),
            1 => explorer.crash(None),
            _ => explorer.crash(Some(CrashMode::All)),
        }
        mirror.reappear();
        open(&mut explorer);
        must(explorer.find());
        let report = explorer.pool().copies();
        assert!(report.behind && report.degraded_since.is_some(), "{report:?}");
        let still = report.why.clone().unwrap_or_default();
        assert!(still.ends_with(&why), "{still}, and before: {why}");
        explorer.close().unwrap();
        open(&mut explorer);
        assert_eq!(explorer.pool().copies(), report, "nothing came of opening it again");
        explorer.close().unwrap();
        // Nothing of it passes for what it should be, whatever is damaged.
        let places = blocks(&explorer.disk, kinds(mode));
        let mut damaged = explorer.fork(random.next());
        for (name, at) in &places {
            damaged.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
        }
        match damaged.open() {
            Ok(()) => assert!(damaged.pool().statistics().healed_places == 0),
            Err(error) => assert!(matches!(error, Error::Damaged { .. }), "{error}"),
        }
        open(&mut explorer);
        whole_again(&mut explorer, mode, &mut random);
    });
}

/// I/Os of both disks.
fn ios(explorer: &Explorer) -> u64 {
    explorer.disk.io_count()
}

#[test]
fn a_crash_at_every_io_leaves_copies_that_can_be_relied_on() {
    for_each_seed("copies_crash", 3, |seed| {
        let mut random = Random::new(seed);
        let (mode, mirrored) = MODES[random.index(4)];
        let base = closed(seed, mode, mirrored);
        let count = {
            let mut explorer = base.fork(0);
            let before = ios(&explorer);
            open(&mut explorer);
            agree(&mut explorer, 40);
            explorer.pool().checkpoint().unwrap();
            ios(&explorer) - before
        };
        for number in sample(count, 24, &mut random) {
            let _context = Context(format!("{mode:?} mirrored {mirrored}: crash at I/O {number}"));
            let mut explorer = base.fork(random.next());
            explorer.disk.crash_at(number);
            if explorer.open().is_ok() && matches!(must(explorer.live(40)), Verdict::Agreed) {
                let _ = explorer.pool().checkpoint();
            }
            explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
            open(&mut explorer);
            must(explorer.find());
            explorer.close().unwrap();
            let places = blocks(&explorer.disk, &[3, 4]);
            for _ in 0..10 {
                let (name, at) = random.pick(&places).unwrap();
                explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
            }
            open(&mut explorer);
            must(explorer.check());
            agree(&mut explorer, 10);
            explorer.close().unwrap();
        }
    });
}

#[test]
fn what_is_copied_and_where_can_be_changed_whatever_comes_between() {
    for_each_seed("copies_changed", 2, |seed| {
        let mut random = Random::new(seed);
        let mut chosen = || {
            let (mode, mirrored) =
                [MODES[0], MODES[1], MODES[2], MODES[3], (CopyMode::None, false)][random.index(5)];
            (mode, mirrored.then(|| "/mirror".to_owned()))
        };
        let changes: Vec<_> = (0..6).map(|_| chosen()).collect();
        let first = setting(seed, CopyMode::Metadata, true);
        let mut base = Explorer::new(seed, &Setting { mirror: None, ..first.clone() }).unwrap();
        base.disk.add_mirror(SimulatedDisk::new(seed, first.disk));
        open(&mut base);
        agree(&mut base, 80);
        base.close().unwrap();
        let all = |explorer: &mut Explorer| -> icecore::Result<()> {
            for (mode, folder) in &changes {
                let report = explorer.pool().set_copies(*mode, folder.clone())?;
                assert!(
                    report.is_whole() && report.mode == mode.name() && report.folder == *folder,
                    "{report:?}"
                );
                if explorer.disk.is_cut() || !matches!(must(explorer.live(5)), Verdict::Agreed) {
                    break;
                }
            }
            Ok(())
        };
        let mut explorer = base.fork(1);
        open(&mut explorer);
        let before = ios(&explorer);
        all(&mut explorer).unwrap();
        let count = ios(&explorer) - before;
        must(explorer.check());
        explorer.close().unwrap();
        let mut random = Random::new(seed ^ 1);
        for number in sample(count, 20, &mut random) {
            let _context = Context(format!("{changes:?}: crash at I/O {number}"));
            let mut explorer = base.fork(random.next());
            open(&mut explorer);
            explorer.disk.crash_at(number);
            let _ = all(&mut explorer);
            explorer.crash(Some(CrashMode::ALL_MODES[random.index(6)]));
            open(&mut explorer);
            must(explorer.find());
            let report = explorer.pool().restore_copies().unwrap();
            assert!(report.is_whole(), "{report:?}");
            let mode = CopyMode::from_name(&report.mode).unwrap();
            if mode == CopyMode::None {
                explorer.close().unwrap();
            } else {
                whole_again(&mut explorer, mode, &mut random);
            }
        }
    });
}

#[test]
fn copies_in_the_folder_of_the_pool_count_in_its_size_limit() {
    for_each_seed("copies_limit", 3, |seed| {
        for mode in [CopyMode::Metadata, CopyMode::All] {
            let mut setting = setting(seed, mode, false);
            setting.size_limit = Some(if mode == CopyMode::All { 40 << 20 } else { 24 << 20 });
            let mut explorer = Explorer::new(seed, &setting).unwrap();
            open(&mut explorer);
            for _ in 0..200 {
                // Full at times: that is an answer.
                let verdict = must(explorer.step());
                assert!(!matches!(verdict, Verdict::Cut));
                if let Verdict::Failed(error) = verdict {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                }
                let taken: u64 = explorer.disk.files().iter().map(|(_, length)| length).sum();
                assert!(
                    taken <= setting.size_limit.unwrap() + 2 * BLOCK as u64,
                    "{:?}",
                    explorer.disk.files()
                );
            }
            must(explorer.check());
            explorer.close().unwrap();
        }
    });
}

/// A pool with copies of everything that was killed, without anything being lost by that: with so many synced
/// writes since the checkpoint.
fn killed(mirrored: bool) -> Explorer {
    let setting = Setting {
        copies: CopyMode::All,
        mirror: mirrored.then(|| "/mirror".to_owned()),
        ..Setting::default()
    };
    let mut explorer = Explorer::new(1, &setting).unwrap();
    open(&mut explorer);
    let pool = explorer.pool();
    pool.create_dataset("d", false, &[]).unwrap();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &icecore::Creation::file()).unwrap();
    pool.checkpoint().unwrap();
    for part in 0..10_u8 {
        dataset.write(file, u64::from(part) * BLOCK as u64, &[part + 1; BLOCK]).unwrap();
        // Too many for the header: the operation lies in blocks.
        let mut group = dataset.begin().unwrap();
        for index in 0..8 {
            let scattered: Vec<u8> = (0..BLOCK).map(|at| (at as u8).wrapping_mul(part + 3)).collect();
            group.write(file, 100_000 + index * 9000, &scattered[..700]).unwrap();
        }
        pool.commit(vec![group]).unwrap();
        dataset.sync().unwrap();
    }
    drop(dataset);
    explorer.crash(None);
    explorer
}

fn content(explorer: &Explorer) -> Vec<u8> {
    let view = explorer.pool().view("d").unwrap();
    let file = view.resolve(b"f").unwrap().unwrap();
    let mut bytes = vec![0; view.attributes(file).unwrap().size as usize];
    view.read(file, 0, &mut bytes).unwrap();
    bytes
}

/// A damaged record below a mark is taken from its copy, whatever of it is damaged, and so is what it
/// carries.
#[test]
fn a_log_that_is_damaged_is_replayed_from_its_copy() {
    for mirrored in [false, true] {
        let base = killed(mirrored);
        let mut whole = base.fork(0);
        open(&mut whole);
        let expected = content(&whole);
        let log = blocks(&base.disk, &[1]);
        let records: Vec<_> = log
            .iter()
            .filter(|(name, at)| base.disk.contents(name).unwrap()[*at as usize..].starts_with(b"ICERECD\n"))
            .collect();
        assert!(records.len() > 20);
        let (mut healed, mut cut) = (0, 0);
        let each = log.iter().map(std::slice::from_ref);
        for (number, damaged) in each.chain([&log[..log.len() - 3]]).enumerate() {
            for what in 0..3 {
                let _context = Context(format!("mirrored: {mirrored}, {damaged:?} damaged in way {what}"));
                let mut explorer = base.fork(number as u64);
                for (name, at) in damaged {
                    match what {
                        0 => {
                            explorer.disk.flip_bit(name, at + (number as u64 * 37) % BLOCK as u64, 1).unwrap()
                        }
                        1 => explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap(),
                        _ => explorer.disk.corrupt(name, *at..*at + 512).unwrap(),
                    }
                }
                open(&mut explorer);
                let statistics = explorer.pool().statistics();
                if content(&explorer) != expected {
                    // Of what was flushed last nothing says that it was durable.
                    let last = records[records.len() - 3];
                    assert!(damaged.iter().any(|place| place >= last), "{damaged:?}, last {last:?}");
                    cut += 1;
                    continue;
                }
                if statistics.healed_places > 0 {
                    healed += 1;
                    let incidents = explorer.pool().incidents();
                    assert!(
                        incidents.iter().any(|incident| incident.what.contains("healed")),
                        "{incidents:?}"
                    );
                }
                explorer.pool().verify().unwrap();
                // It is on disk again, and durable, so that copies are not needed any more.
                explorer.crash(Some(CrashMode::None));
                lose_copies(&explorer);
                open(&mut explorer);
                assert!(content(&explorer) == expected);
                let report = explorer.pool().scrub(&mut |_| true).unwrap();
                assert_eq!(report.damaged, 0, "{report:?}");
                explorer.crash(None);
            }
        }
        assert!(healed > 60 && cut <= 30, "{healed} were healed, {cut} ended the log");
    }
}

/// What nothing says was durable ends the log, whether there is a copy of it or not.
#[test]
fn a_copy_does_not_make_a_log_longer() {
    let base = killed(true);
    let log = blocks(&base.disk, &[1]);
    let (name, at) = log
        .iter()
        .rfind(|(name, at)| base.disk.contents(name).unwrap()[*at as usize..].starts_with(b"ICERECD\n"))
        .unwrap();
    let mut explorer = base.fork(3);
    explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
    open(&mut explorer);
    let shorter = content(&explorer);
    explorer.crash(None);
    open(&mut explorer);
    assert!(content(&explorer) == shorter);
    explorer.close().unwrap();
    open(&mut explorer);
    assert!(content(&explorer) == shorter);
}

/// Histories that were killed, with damage to anything in the log: they open, and with a state that there
/// was.
#[test]
fn a_killed_pool_with_copies_of_everything_opens_whatever_is_damaged_in_its_log() {
    for_each_seed("copies_log", 4, |seed| {
        let mut random = Random::new(seed);
        let mirrored = random.chance(50);
        let mut base = Explorer::new(seed, &setting(seed, CopyMode::All, mirrored)).unwrap();
        open(&mut base);
        agree(&mut base, 150);
        base.crash(None);
        let places = blocks(&base.disk, &[1]);
        for _ in 0..if is_long() { 60 } else { 15 } {
            let mut explorer = base.fork(random.next());
            let mut places_hit = Vec::new();
            for _ in 0..1 + random.index(20) {
                let (name, at) = random.pick(&places).unwrap();
                explorer.disk.corrupt(name, *at..*at + BLOCK as u64).unwrap();
                places_hit.push(format!("{name} at {at}"));
            }
            let _context = Context(format!("mirrored {mirrored}: {places_hit:?}"));
            open(&mut explorer);
            let states = (0..explorer.history.length()).rev();
            let found = states.filter_map(|index| explorer.history.state(index));
            let pool = explorer.pool();
            let there =
                found.filter_map(|state| icecore_sim::driver::compare_damaged(pool, state).ok()).next();
            let there = there.expect("what is shown was there");
            assert!(there.is_empty(), "{there:?}");
            explorer.pool().verify().unwrap();
            explorer.crash(None);
        }
    });
}

//! Damage on the medium, to every kind of structure: it is named, or healed, and never shown as content; what
//! it does not touch can be read.

use crate::common::{Context, beginning, for_each_seed, is_long};
use icecore::format::crc32c;
use icecore::{Error, ListFilter};
use icecore_sim::driver::compare_damaged;
use icecore_sim::explorer::{Explorer, Setting};
use icecore_sim::{CrashMode, Random};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// What a block on disk looks to be.
fn sort_of(name: &str, block: &[u8]) -> &'static str {
    match block {
        _ if name.starts_with("superblock") => "superblock",
        [b'I', b'C', b'E', b'S', b'E', b'G', b'M', ..] => "segment header",
        [b'I', b'C', b'E', b'R', b'E', b'C', b'D', ..] => "record header",
        [b'I', b'C', b'E', b'L', b'E', b'D', b'G', ..] => "ledger blob",
        _ if block.windows(7).any(|bytes| bytes == b"ICESUMS") => "checksum table",
        _ => "data or node",
    }
}

/// All blocks that hold anything, by what they look to be.
fn blocks(explorer: &Explorer) -> BTreeMap<&'static str, Vec<(String, u64)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, _) in explorer.disk.files() {
        for (index, block) in explorer.disk.contents(&name).unwrap().chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                let place = (name.clone(), (index * BLOCK) as u64);
                found.entry(sort_of(&name, block)).or_default().push(place);
            }
        }
    }
    found
}

/// The errors that damage may end in when a pool is opened.
fn is_clear(error: &Error) -> bool {
    match error {
        Error::Damaged { place, detail } => !place.is_empty() && !detail.is_empty(),
        Error::NotAPool { .. } => true,
        // A file that is gone.
        Error::Io { what, .. } => what.contains("segment") || what.contains("superblock"),
        _ => false,
    }
}

/// Opens a damaged pool, and compares what can be read: with the newest state if it is `closed`, else with
/// any that there was.
fn examine(explorer: &mut Explorer, closed: bool) -> &'static str {
    if let Err(error) = explorer.open() {
        assert!(is_clear(&error), "opening: {error:?}");
        return "refused";
    }
    let pool = explorer.pool();
    let last = explorer.history.length() - 1;
    let states = if closed { last..=last } else { 0..=last };
    let mut differences = Vec::new();
    let mut found = None;
    for index in states.rev() {
        match compare_damaged(pool, explorer.history.state(index).unwrap()) {
            Ok(damaged) => {
                found = Some(damaged);
                break;
            }
            Err(difference) => differences.push(difference),
        }
    }
    let Some(damaged) = found else { panic!("what is shown was never there: {}", differences[0]) };
    // Verifying and scrubbing say it as well, and do not trip over it.
    match pool.verify() {
        Ok(()) | Err(Error::Damaged { .. }) => {}
        Err(error) => panic!("verify: {error:?}"),
    }
    let report = match pool.scrub(&mut |_| true) {
        Ok(report) => report,
        Err(Error::Damaged { .. } | Error::ReadOnlyAfterFailure { .. }) => return "reported",
        Err(error) => panic!("scrub: {error:?}"),
    };
    let named: BTreeSet<&String> = report.findings.iter().flat_map(|finding| &finding.versions).collect();
    if let Some(unexpected) = damaged.iter().find(|name| !named.contains(name)) {
        panic!("{unexpected} cannot be read, and the scrub names {named:?}: {:?}", report.findings);
    }
    if damaged.is_empty() { "harmless or healed" } else { "reported" }
}

fn corrupt_at_random(closed: bool, name: &str) {
    let mut outcomes: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for_each_seed(name, 3, |seed| {
        let mut random = Random::new(seed);
        let base = beginning(seed, closed);
        for (sort, places) in blocks(&base) {
            for _ in 0..if is_long() { 100 } else { 7 } {
                let Some((file, offset)) = random.pick(&places).cloned() else { continue };
                let mut explorer = base.fork(random.next());
                let start = offset + random.below(8) * 512;
                let (what, range) = match random.below(3) {
                    0 => ("a bit", start..start + 1),
                    1 => ("a sector", start..start + 512),
                    _ => ("a block", offset..offset + BLOCK as u64),
                };
                let _context = Context(format!("{what} of a {sort}: {file} at {range:?}"));
                if what == "a bit" {
                    explorer.disk.flip_bit(&file, start + random.below(512), random.below(8) as u32).unwrap();
                } else {
                    explorer.disk.corrupt(&file, range).unwrap();
                }
                *outcomes.entry((sort, examine(&mut explorer, closed))).or_default() += 1;
                explorer.crash(None);
            }
        }
    });
    println!("{outcomes:#?}");
    assert!(outcomes.keys().all(|(sort, outcome)| *sort != "superblock" || *outcome == "harmless or healed"));
}

#[test]
fn damage_to_a_closed_pool_is_named_or_healed() {
    corrupt_at_random(true, "damage_closed");
}

#[test]
fn damage_to_a_killed_pool_is_named_or_healed() {
    corrupt_at_random(false, "damage_killed");
}

#[test]
fn files_that_are_lost_or_cut_short_are_named() {
    for_each_seed("files", 2, |seed| {
        let mut random = Random::new(seed);
        for closed in [true, false] {
            let base = beginning(seed, closed);
            for (name, length) in base.disk.files() {
                for cut in [None, Some(0), Some(random.below(length)), Some(length - 512)] {
                    let _context = Context(format!("{name} cut to {cut:?}, closed: {closed}"));
                    let mut explorer = base.fork(random.next());
                    match cut {
                        None => explorer.disk.lose(&name).unwrap(),
                        Some(length) => explorer.disk.truncate(&name, length).unwrap(),
                    }
                    let outcome = examine(&mut explorer, closed);
                    if name.starts_with("superblock") {
                        assert_eq!(outcome, "harmless or healed");
                    }
                    explorer.crash(None);
                }
            }
        }
    });
}

#[test]
fn a_pool_without_superblocks_is_none() {
    let base = beginning(1, true);
    for lose in [true, false] {
        let mut explorer = base.fork(2);
        for name in ["superblock.0", "superblock.1"] {
            if lose {
                explorer.disk.lose(name).unwrap();
            } else {
                explorer.disk.corrupt(name, 0..BLOCK as u64).unwrap();
            }
        }
        let error = explorer.open().unwrap_err();
        assert!(matches!(error, Error::NotAPool { .. } | Error::Damaged { .. }), "{error:?}");
    }
}

/// Fields of the superblock that make no sense although the checksum fits: as a program with a fault would
/// write.
#[test]
fn a_superblock_that_makes_no_sense_is_refused() {
    for closed in [true, false] {
        let base = beginning(1, closed);
        let mut random = Random::new(1);
        let block = base.disk.contents("superblock.0").unwrap();
        for at in (8..160).step_by(4).chain((256..320).step_by(4)) {
            for value in [0, 1, u32::MAX, random.next() as u32] {
                let _context = Context(format!("{value} at byte {at}"));
                let mut explorer = base.fork(random.next());
                let mut changed = block.clone();
                changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let crc = crc32c(&changed[..BLOCK - 4]);
                changed[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
                for name in ["superblock.0", "superblock.1"] {
                    explorer.disk.overwrite(name, 0, &changed).unwrap();
                }
                // Some fields may be anything. Whatever is opened can be listed and closed.
                if explorer.open().is_ok() {
                    let everything = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
                    explorer.pool().list(&everything).unwrap();
                }
                explorer.crash(Some(CrashMode::All));
            }
        }
    }
}

/// A record below a mark that is damaged is damage, and not the end of the log.
#[test]
fn a_record_below_a_mark_is_not_taken_for_the_end_of_the_log() {
    let setting = Setting::default();
    let mut explorer = Explorer::new(1, &setting).unwrap();
    explorer.open().unwrap();
    explorer.pool().create_dataset("d", false, &[]).unwrap();
    let dataset = explorer.pool().dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &icecore::Creation::file()).unwrap();
    explorer.pool().checkpoint().unwrap();
    for part in 0..10 {
        dataset.write(file, part * 4096, &[1; 4096]).unwrap();
        dataset.sync().unwrap();
    }
    drop(dataset);
    explorer.crash(None);
    let records = blocks(&explorer).remove("record header").unwrap();
    let mut missed = 0;
    for (name, offset) in records.iter().rev().take(10) {
        let mut explorer = explorer.fork(*offset);
        explorer.disk.flip_bit(name, offset + 100, 1).unwrap();
        match explorer.open() {
            Err(Error::Damaged { place, .. }) => {
                assert!(place.contains(&format!("{name} at offset {offset}")), "{place}");
                missed += 1;
            }
            // The last one, and what a checkpoint made superfluous.
            Ok(()) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(missed >= 8, "{missed} of 10 records are missed");
}

/// A killed pool whose last act was to acknowledge one write of a block full of sevens. `rest`: the log had
/// come to rest.
fn acknowledged(rest: bool) -> Explorer {
    let mut setting = Setting::default();
    setting.options.background = true;
    let mut explorer = Explorer::new(1, &setting).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    pool.create_dataset("d", false, &[]).unwrap();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &icecore::Creation::file()).unwrap();
    pool.checkpoint().unwrap();
    let headers = || pool.statistics().logged_header_bytes;
    let quiet = headers();
    dataset.write(file, 0, &[7; BLOCK]).unwrap();
    dataset.sync().unwrap();
    let written = headers();
    assert!(written > quiet);
    if rest {
        let deadline = Instant::now() + Duration::from_secs(30);
        while headers() == written {
            assert!(Instant::now() < deadline, "the log has come to rest, and nothing says so");
            thread::sleep(Duration::from_millis(20));
        }
        // Once is enough, also where a caller syncs with nothing new to write.
        assert_eq!(headers(), written + BLOCK as u64);
        for _ in 0..2 {
            dataset.sync().unwrap();
            thread::sleep(Duration::from_millis(800));
        }
        assert_eq!(headers(), written + BLOCK as u64);
    }
    drop(dataset);
    explorer.crash(None);
    explorer
}

/// Where the block full of sevens lies.
fn sevens(explorer: &Explorer) -> (String, u64) {
    let found = blocks(explorer).remove("data or node").unwrap();
    let is_it = |(name, offset): &&(String, u64)| {
        explorer.disk.contents(name).unwrap()[*offset as usize..][..BLOCK].iter().all(|byte| *byte == 7)
    };
    found.iter().find(is_it).unwrap().clone()
}

#[test]
fn damage_to_what_was_acknowledged_last_is_damage_once_the_log_has_come_to_rest() {
    let base = acknowledged(true);
    let (name, data) = sevens(&base);
    // The record's header, which lies before the block.
    let mut explorer = base.fork(1);
    explorer.disk.corrupt(&name, data - BLOCK as u64..data).unwrap();
    let error = explorer.open().unwrap_err();
    let Error::Damaged { place, .. } = &error else { panic!("{error:?}") };
    assert!(place.contains(&format!("{name} at offset {}", data - BLOCK as u64)), "{place}");
    // The block itself.
    let mut explorer = base.fork(2);
    explorer.disk.flip_bit(&name, data + 100, 3).unwrap();
    explorer.open().unwrap();
    let view = explorer.pool().view("d").unwrap();
    let file = view.resolve(b"f").unwrap().unwrap();
    let read = view.read(file, 0, &mut [0; BLOCK]);
    assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
    // Without damage it is all there, and so is the mark: there is none to be added.
    let mut explorer = base.fork(3);
    explorer.open().unwrap();
    explorer.pool().verify().unwrap();
    let mut content = [0; BLOCK];
    let view = explorer.pool().view("d").unwrap();
    assert_eq!(view.read(file, 0, &mut content).unwrap(), BLOCK);
    assert_eq!(content, [7; BLOCK]);
}

/// What the mark is for: right after the last flush nothing distinguishes damage from a write that a crash
/// cut short.
#[test]
fn before_that_it_looks_like_the_end_of_the_log() {
    let base = acknowledged(false);
    let (name, data) = sevens(&base);
    let mut explorer = base.fork(1);
    explorer.disk.corrupt(&name, data - BLOCK as u64..data).unwrap();
    explorer.open().unwrap();
}

/// What a few bytes in the log are to be merged into is damaged: that costs the block, which is lost anyway,
/// and neither the pool nor anything else.
#[test]
fn a_damaged_block_below_a_small_write_does_not_keep_a_pool_from_opening() {
    let mut explorer = Explorer::new(1, &Setting::default()).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    pool.create_dataset("d", false, &[]).unwrap();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &icecore::Creation::file()).unwrap();
    dataset.write(file, 0, &[7; BLOCK]).unwrap();
    dataset.write(file, BLOCK as u64, &[8; 2 * BLOCK]).unwrap();
    pool.checkpoint().unwrap();
    // Within the block; across its end; what a cut leaves of it is cleared, too.
    dataset.write(file, 100, b"small").unwrap();
    dataset.write(file, BLOCK as u64 - 2, b"small").unwrap();
    dataset.truncate(file, 50).unwrap();
    dataset.write(file, 3 * BLOCK as u64 - 2, b"small").unwrap();
    dataset.sync().unwrap();
    drop(dataset);
    explorer.crash(None);
    let (name, data) = sevens(&explorer);
    explorer.disk.flip_bit(&name, data + 10, 3).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    let view = pool.view("d").unwrap();
    assert_eq!(view.attributes(file).unwrap().size, 3 * BLOCK as u64 + 3);
    let read = view.read(file, 0, &mut [0; 8]);
    assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
    let mut content = [1; 8];
    assert_eq!(view.read(file, 3 * BLOCK as u64 - 4, &mut content).unwrap(), 7);
    assert_eq!(&content[..7], b"\0\0small");
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!(report.damaged, 1, "{report:?}");
    drop(view);
    // A writer that writes the block anew has it again.
    let dataset = pool.dataset("d").unwrap();
    dataset.write_durable(file, 0, &[9; BLOCK]).unwrap();
    assert_eq!(dataset.view().unwrap().read(file, 0, &mut [0; 8]).unwrap(), 8);
    drop(dataset);
    explorer.close().unwrap();
    explorer.open().unwrap();
    explorer.pool().verify().unwrap();
}

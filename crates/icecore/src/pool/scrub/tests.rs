//! A bit that flips is found wherever it matters, and named with everybody who sees it.

use super::*;
use crate::Creation;
use crate::copies::copy_name;
use crate::format::record::RecordView;
use crate::format::segment::{SegmentHeader, SegmentKind, file_name, from_file_name};
use crate::format::superblock::NAMES;
use crate::liveness::reached;
use crate::options::{InitOptions, OpenOptions};
use crate::storage::memory::MemoryStorage;
use crate::storage::{Kind, Storage};
use crate::units::{SegmentId, Slot};
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn options(read_only: bool) -> OpenOptions {
    OpenOptions {
        read_only,
        background: false,
        control_socket: false,
        block_cache_bytes: 0,
        node_cache_bytes: 0,
        group_memory_bytes: 64 << 10,
        log_bytes_max: 4 << 20,
        ..OpenOptions::default()
    }
}

/// Steps of a sequence of numbers that looks like none.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Large and small writes, a group, snapshots, and segments that collection has emptied.
fn build(pool: &Pool) {
    let mut dice = Dice(7);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for round in 0..5_u8 {
        for _ in 0..60 {
            let bytes = vec![round + 1; [100, 4096, 16 << 10][dice.below(3) as usize]];
            db.write(file, dice.below(4 << 20) / 512 * 512, &bytes).unwrap();
        }
        let mut group = db.begin().unwrap();
        group.write(file, dice.below(1 << 20), &vec![round + 100; 1 << 20]).unwrap();
        pool.commit(vec![group]).unwrap();
        db.sync().unwrap();
        pool.snapshot(&[format!("db@s{round}")], false, &[]).unwrap();
        pool.checkpoint().unwrap();
    }
    pool.destroy(&crate::DestroyTarget::Snapshot("db@s1".to_owned())).unwrap();
    pool.checkpoint().unwrap();
    pool.collect(2).unwrap();
}

fn made() -> Arc<MemoryStorage> {
    made_with(crate::CopyMode::None)
}

fn made_with(copies: crate::CopyMode) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    let init = InitOptions { copies, ..InitOptions::small() };
    Pool::init(storage.clone(), &init).unwrap();
    let pool = Pool::open(storage.clone(), &options(false)).unwrap();
    build(&pool);
    pool.close().unwrap();
    storage
}

fn flip(storage: &MemoryStorage, name: &str, at: u64, bit: u64) {
    let file = storage.open(name, true).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[(Kind::Data, &[byte[0] ^ (1 << bit)])], at).unwrap();
}

/// What is on disk and matters: sort, file, slot. For the blocks of files and nodes also which.
fn places(pool: &Pool) -> Vec<(&'static str, String, u32, Option<Run>)> {
    let engine = pool.engine();
    let mut found: Vec<(&'static str, String, u32, Option<Run>)> =
        NAMES.iter().map(|name| ("superblock", (*name).to_owned(), 0, None)).collect();
    let (all, tail) = {
        let state = engine.state();
        let used = |segment: &SegmentId| state.segments.live(*segment) > 0;
        (state.segments.all().into_iter().filter(used).collect::<Vec<_>>(), state.tail.position())
    };
    let alive = |segment: SegmentId, slot: u32| {
        let entries = engine.blocks.entries_of_segment(segment).unwrap();
        let entry = entries
            .iter()
            .find(|entry| entry.slot.0 <= slot && slot < entry.slot.0 + entry.run.length.0 as u32)?;
        let address = entry.run.start.plus(BlockCount(u64::from(slot - entry.slot.0)));
        let state = engine.state();
        let lives = state.history.live_runs(entry.run.stream);
        let mut lives = lives.map(Result::unwrap).filter(|run| run.start <= address && address < run.end());
        lives.next().map(|_| one(entry.run.stream, address))
    };
    for segment in all {
        let name = file_name(segment);
        let kind = engine.state().segments.kind(segment).unwrap();
        found.push(("segment header", name.clone(), 0, None));
        let mut block = [0; BLOCK_BYTES];
        let mut slot = 1;
        while slot < engine.geometry.slots() {
            engine.blocks.files().read(segment, Slot(slot), &mut block).unwrap();
            if let Some(block) = alive(segment, slot) {
                found.push(("block", name.clone(), slot, Some(block)));
                slot += 1;
                continue;
            }
            let end = if segment == tail.segment { tail.slot.0 } else { engine.geometry.slots() };
            match RecordView::decode(&block).filter(|_| kind.has_table() && slot < end) {
                Some(record) if record.header.run => {
                    let sums = record.sums.len() as u32;
                    if (slot + 1..=slot + sums).any(|slot| alive(segment, slot).is_some()) {
                        found.push(("header of a run", name.clone(), slot, None));
                    }
                }
                Some(_) => found.push(("record header", name.clone(), slot, None)),
                None => {}
            }
            slot += 1;
        }
        if kind.has_table() && segment != tail.segment {
            for slot in engine.geometry.end(SegmentKind::Log).0..engine.geometry.slots() {
                engine.blocks.files().read(segment, Slot(slot), &mut block).unwrap();
                if block.windows(7).any(|part| part == b"ICESUMS") {
                    found.push(("checksum table", name.clone(), slot, None));
                }
            }
        }
    }
    engine.with_books(|_, blobs| Ok(blobs.to_vec())).unwrap().iter().for_each(|(segment, _)| {
        found.push(("ledger", file_name(*segment), 1, None));
    });
    found
}

#[test]
fn every_bit_that_flips_is_found_and_named() {
    let storage = made();
    let pool = Pool::open(storage.clone(), &options(true)).unwrap();
    let clean = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((clean.damaged, clean.spare, clean.complete), (0, 0, true), "{clean:?}");
    let places = places(&pool);
    let mut dice = Dice(11);
    let mut sorts = std::collections::BTreeMap::<&str, usize>::new();
    let names = ["db", "db@s0", "db@s2", "db@s3", "db@s4"];
    for sort in places.iter().map(|place| place.0).collect::<std::collections::BTreeSet<_>>() {
        let of_sort: Vec<_> = places.iter().filter(|place| place.0 == sort).collect();
        for _ in 0..40.min(of_sort.len()) {
            let (_, name, slot, block) = of_sort[dice.below(of_sort.len() as u64) as usize];
            let at = u64::from(*slot) * BLOCK + dice.below(BLOCK);
            let bit = dice.below(8);
            flip(&storage, name, at, bit);
            let report = pool.scrub(&mut |_| true).unwrap();
            flip(&storage, name, at, bit);
            let shown = format!("{sort} in {name} at {at}: {report:?}");
            let finding = report.findings.iter().find(|finding| finding.damage.contains(name)).expect(&shown);
            if !matches!(sort, "superblock" | "ledger" | "checksum table" | "segment header") {
                let offset = format!("at offset {}", u64::from(*slot) * BLOCK);
                assert!(report.findings.iter().any(|finding| finding.damage.contains(&offset)), "{shown}");
            }
            if let Some(block) = block {
                // Every version that reaches the block, by the sets, and no other.
                let state = pool.engine().state();
                let reaches = |name: &&&str| {
                    let version = pool.find_version(&state, name).unwrap();
                    reached(&state.history, version, block.stream).contains(block.start)
                };
                let expected: Vec<&&str> = names.iter().filter(reaches).collect();
                let mut seen: Vec<&str> = finding.versions.iter().map(String::as_str).collect();
                seen.sort_unstable();
                assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "{shown}");
                assert!(!seen.is_empty() && report.damaged == 1, "{shown}");
                if block.stream == Stream::Node {
                    assert!(finding.hides.is_some(), "{shown}");
                } else {
                    assert_eq!(finding.path.as_deref(), Some(&b"a"[..]), "{shown}");
                    // The place in the file is right: reading there fails, in a version that sees it.
                    let (inode, offset) = finding.file.unwrap();
                    drop(state);
                    flip(&storage, name, at, bit);
                    let view = pool.view(seen[0]).unwrap();
                    let read = view.read(crate::units::InodeNumber(inode), offset, &mut [0; 1]);
                    assert!(matches!(read, Err(Error::Damaged { .. })), "{shown}");
                    flip(&storage, name, at, bit);
                }
            }
            *sorts.entry(sort).or_default() += 1;
        }
    }
    println!("{sorts:?}");
    let all = [
        "block",
        "checksum table",
        "header of a run",
        "ledger",
        "record header",
        "segment header",
        "superblock",
    ];
    assert!(sorts.keys().eq(all.iter()), "{sorts:?}");
}

/// What opening a pool reads is healed by that; what it writes, or makes a copy of, too. Who opens it for a
/// scrub wants to know.
#[test]
fn what_flips_while_a_pool_is_closed_is_reported_by_the_scrub_that_opens_it() {
    let mut dice = Dice(13);
    for copies in [crate::CopyMode::None, crate::CopyMode::Metadata, crate::CopyMode::All] {
        let storage = made_with(copies);
        let places = places(&Pool::open(storage.clone(), &options(true)).unwrap());
        for sort in places.iter().map(|place| place.0).collect::<std::collections::BTreeSet<_>>() {
            let of_sort: Vec<_> = places.iter().filter(|place| place.0 == sort).collect();
            for _ in 0..12.min(of_sort.len()) {
                let (_, name, slot, _) = of_sort[dice.below(of_sort.len() as u64) as usize];
                let at = u64::from(*slot) * BLOCK + dice.below(BLOCK);
                let corrupt = storage.copy();
                flip(&corrupt, name, at, dice.below(8));
                let shown = format!("{copies:?}: {sort} in {name} at {at}");
                if copies == crate::CopyMode::All {
                    // A check reports it once, too.
                    let all = crate::check::CheckOptions { data: true };
                    let report = crate::check::check(corrupt.clone(), &all, &mut |_| {}).unwrap();
                    assert!(report.count == 1 && report.is_sound(), "{shown}: {report:?}");
                    assert!(report.problems[0].what.contains(name), "{shown}: {report:?}");
                }
                let pool = match Pool::open(corrupt, &options(false)) {
                    Ok(pool) => pool,
                    Err(error) => {
                        assert!(error.to_string().contains(name.as_str()), "{shown}: {error}");
                        continue;
                    }
                };
                let scrub = ScrubOptions { tells_opening: true, ..ScrubOptions::default() };
                let report = pool.scrub_with(&scrub, &mut |_| true).unwrap();
                let is_named = report.findings.iter().any(|finding| finding.damage.contains(name));
                assert!(is_named, "{shown}: {report:?}");
                if copies == crate::CopyMode::All {
                    assert_eq!((report.damaged, report.spare), (0, 1), "{shown}: {report:?}");
                    let again = pool.scrub_with(&ScrubOptions::default(), &mut |_| true).unwrap();
                    assert_eq!((again.damaged, again.spare), (0, 0), "{shown}: {again:?}");
                }
            }
        }
    }
}

/// The list is bounded, and what it stands for is not.
#[test]
fn more_places_than_are_listed_are_all_counted() {
    let storage = made_with(crate::CopyMode::All);
    let places = places(&Pool::open(storage.clone(), &options(true)).unwrap());
    let blocks: Vec<_> = places.iter().filter(|place| place.0 == "block").collect();
    assert!(blocks.len() > FINDINGS_MAX + 200, "{}", blocks.len());
    for (_, name, slot, _) in &blocks {
        let copy = copy_name(from_file_name(name).unwrap());
        flip(&storage, &copy, u64::from(*slot) * BLOCK + 77, 3);
    }
    let all = crate::check::CheckOptions { data: true };
    let report = crate::check::check(storage.clone(), &all, &mut |_| {}).unwrap();
    assert!(report.is_sound() && report.count > FINDINGS_MAX as u64, "{}", report.count);
    let pool = Pool::open(storage, &options(false)).unwrap();
    let scrub = ScrubOptions { tells_opening: true, ..ScrubOptions::default() };
    let report = pool.scrub_with(&scrub, &mut |_| true).unwrap();
    assert_eq!((report.damaged, report.spare), (0, blocks.len() as u64));
    assert_eq!(report.findings.len(), FINDINGS_MAX);
    assert_eq!(report.unlisted(), (blocks.len() - FINDINGS_MAX) as u64);
    let again = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((again.damaged, again.spare), (0, 0), "{again:?}");
}

/// No record said that they were gone: the scrub makes them again, and says so, once.
#[test]
fn copies_that_vanished_are_reported() {
    for copies in [crate::CopyMode::Metadata, crate::CopyMode::All] {
        let storage = made_with(copies);
        let names: Vec<String> = storage.list().unwrap().into_iter().map(|(name, _)| name).collect();
        let of_copies: Vec<_> = names.iter().filter(|name| name.starts_with("copy.")).collect();
        assert!(of_copies.len() >= 2, "{names:?}");
        for name in of_copies {
            let corrupt = storage.copy();
            corrupt.remove(name).unwrap();
            if name.ends_with('1') {
                corrupt.create(name, 3 * BLOCK).unwrap();
            }
            let report =
                crate::check::check(corrupt.clone(), &crate::check::CheckOptions::default(), &mut |_| {});
            let report = report.unwrap();
            assert!(report.is_sound() && report.count == 1, "{name}: {report:?}");
            let pool = Pool::open(corrupt, &options(false)).unwrap();
            let scrub = ScrubOptions { tells_opening: true, ..ScrubOptions::default() };
            let report = pool.scrub_with(&scrub, &mut |_| true).unwrap();
            assert_eq!((report.damaged, report.spare), (0, 1), "{copies:?}, {name}: {report:?}");
            let shown = format!("damage in {name}: it is missing or cut short; it was written anew");
            assert_eq!(report.findings[0].damage, shown, "{copies:?}");
            assert!(pool.incidents().iter().any(|incident| incident.what.contains(name.as_str())));
            let again = pool.scrub(&mut |_| true).unwrap();
            assert_eq!((again.damaged, again.spare), (0, 0), "{again:?}");
        }
    }
}

/// Also where the pool goes on writing to files that have no name any more.
#[test]
fn copies_that_vanish_while_the_pool_is_open_are_reported() {
    for copies in [crate::CopyMode::Metadata, crate::CopyMode::All] {
        let storage = made_with(copies);
        let pool = Pool::open(storage.clone(), &options(false)).unwrap();
        let names = || storage.list().unwrap().into_iter().map(|(name, _)| name);
        let of_copies: Vec<String> = names().filter(|name| name.starts_with("copy.")).collect();
        for name in &of_copies {
            storage.remove(name).unwrap();
        }
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.spare), (0, of_copies.len() as u64), "{copies:?}: {report:?}");
        let is_reported = |name: &String| {
            let shown = format!("damage in {name}: it is missing or cut short; it was written anew");
            report.findings.iter().any(|finding| finding.damage == shown)
        };
        assert!(of_copies.iter().all(is_reported), "{copies:?}: {report:?}");
        assert!(of_copies.iter().all(|name| names().any(|there| there == *name)));
        let again = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((again.damaged, again.spare), (0, 0), "{again:?}");
        pool.close().unwrap();
        let pool = Pool::open(storage, &options(false)).unwrap();
        assert!(pool.engine().copies().report().is_whole() && pool.incidents().is_empty());
    }
}

/// After a crash, copies of what the log was replayed from are given up. Where it is known that copies are
/// missing, it was reported.
#[test]
fn copies_that_are_known_to_be_missing_are_made_without_a_word() {
    let scrub = |pool: &Pool| {
        let tells = ScrubOptions { tells_opening: true, ..ScrubOptions::default() };
        let report = pool.scrub_with(&tells, &mut |_| true).unwrap();
        assert_eq!((report.damaged, report.spare), (0, 0), "{report:?}");
        assert!(pool.engine().copies().report().is_whole());
    };
    for copies in [crate::CopyMode::Metadata, crate::CopyMode::All] {
        let storage = made_with(copies);
        let pool = Pool::open(storage.clone(), &options(false)).unwrap();
        let db = pool.dataset("db").unwrap();
        let file = db.open_or_create(b"b", &Creation::file()).unwrap();
        for at in 0..500 {
            db.write(file, at * 8192, &[9; 8192]).unwrap();
        }
        db.sync().unwrap();
        scrub(&Pool::open(storage.copy(), &options(false)).unwrap());
        drop(db);
        pool.close().unwrap();
        // What is copied changes, and `set_copies` makes what is missing then.
        let pool = Pool::open(storage.clone(), &options(false)).unwrap();
        for mode in [crate::CopyMode::Metadata, crate::CopyMode::All, copies] {
            pool.set_copies(mode, None).unwrap();
            scrub(&Pool::open(storage.copy(), &options(false)).unwrap());
        }
        pool.close().unwrap();
        // The process that found it did not mend it, but said so.
        let mut names = storage.list().unwrap().into_iter().map(|(name, _)| name);
        let one = names.rfind(|name| name.starts_with("copy.")).unwrap();
        storage.remove(&one).unwrap();
        let pool = Pool::open(storage.clone(), &options(false)).unwrap();
        assert!(pool.incidents().iter().any(|incident| incident.what.contains(&one)));
        pool.close().unwrap();
        scrub(&Pool::open(storage, &options(false)).unwrap());
    }
}

/// What can be written anew is, and is reported.
#[test]
fn superblocks_and_ledger_are_mended_while_the_pool_is_open() {
    for copies in [crate::CopyMode::None, crate::CopyMode::Metadata] {
        superblocks_and_ledger_are_mended(copies);
    }
}

fn superblocks_and_ledger_are_mended(copies: crate::CopyMode) {
    let storage = made_with(copies);
    let pool = Pool::open(storage.clone(), &options(false)).unwrap();
    let ledger = pool.engine().with_books(|_, blobs| Ok(blobs[0].0)).unwrap();
    for (name, at) in [(NAMES[1].to_owned(), 60), (file_name(ledger), BLOCK + 99)] {
        flip(&storage, &name, at, 3);
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.spare), (0, 1), "{report:?}");
        let outcome =
            if copies == crate::CopyMode::None || NAMES.contains(&name.as_str()) { "anew" } else { "healed" };
        assert!(report.findings[0].damage.contains(outcome), "{report:?}");
        let again = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((again.damaged, again.spare), (0, 0), "{again:?}");
        // As it would be found after a crash.
        let copy = storage.copy();
        Pool::open(copy, &options(false)).unwrap().verify().unwrap();
    }
}

#[test]
fn a_scrub_keeps_to_its_rate_and_goes_on_where_it_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions::small()).unwrap();
    let open = || Pool::open_directory(folder.path(), &options(false)).unwrap();
    let pool = open();
    build(&pool);
    let whole = pool.scrub(&mut |_| true).unwrap();
    assert!(whole.verified > 4 << 20, "{whole:?}");
    let rate = whole.verified * 4;
    let began = Instant::now();
    let slow = ScrubOptions { bytes_per_second: Some(rate), yields: true, ..ScrubOptions::default() };
    pool.scrub_with(&slow, &mut |_| true).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    // Cut off half way, twice, with the pool closed in between.
    let kept = ScrubOptions { keeps_position: true, ..ScrubOptions::default() };
    let cut = pool.scrub_with(&kept, &mut |now| now.done < whole.verified / 3).unwrap();
    assert!(!cut.complete && cut.resumed.is_none());
    pool.close().unwrap();
    let pool = open();
    let cut = pool.scrub_with(&kept, &mut |now| now.done < whole.verified * 2 / 3).unwrap();
    assert!(!cut.complete && cut.resumed.is_some(), "{cut:?}");
    let before = pool.statistics().disk_read_bytes_scrub;
    let rest = pool.scrub_with(&kept, &mut |_| true).unwrap();
    assert!(rest.complete && rest.resumed == cut.resumed, "{rest:?}");
    let read = pool.statistics().disk_read_bytes_scrub - before;
    assert!(read < whole.verified / 2, "{read} of {}", whole.verified);
    assert!(rest.verified >= whole.verified / 10 * 9, "{} of {}", rest.verified, whole.verified);
    // It came to its end: the next one begins anew.
    assert_eq!(pool.scrub_with(&kept, &mut |_| true).unwrap().resumed, None);
}

#[test]
fn damage_met_before_it_was_cut_off_is_reported_by_the_one_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions::small()).unwrap();
    let pool = Pool::open_directory(folder.path(), &options(false)).unwrap();
    build(&pool);
    let engine = pool.engine();
    let first = engine.state().history.live_runs(Stream::Data).next().unwrap().unwrap();
    let (segment, slot, _) = engine.blocks.locate(Stream::Data, first.start).unwrap();
    let path = folder.path().join(file_name(segment));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[slot.0 as usize * BLOCK_BYTES + 5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let kept = ScrubOptions { keeps_position: true, ..ScrubOptions::default() };
    let cut = pool.scrub_with(&kept, &mut |now| now.damaged == 0).unwrap();
    assert_eq!((cut.damaged, cut.complete), (1, false));
    let rest = pool.scrub_with(&kept, &mut |_| true).unwrap();
    assert_eq!((rest.damaged, rest.complete), (1, true), "{rest:?}");
    assert!(rest.findings[0].path.is_some());
    // It is in the folder, for a reader that comes when all processes have gone. The process that has the
    // pool open reports it.
    let log = std::fs::read_to_string(folder.path().join(crate::incidents::FILE_NAME)).unwrap();
    assert!(log.contains(&file_name(segment)), "{log}");
    assert!(pool.incidents().iter().any(|incident| incident.what.contains(&file_name(segment))));
    assert!(pool.statistics().damaged_reads > 0);
}

#[test]
fn one_scrub_at_a_time() {
    let pool = Pool::open(made(), &options(false)).unwrap();
    let mut refused = None;
    pool.scrub(&mut |_| {
        refused.get_or_insert_with(|| pool.scrub(&mut |_| true).unwrap_err());
        assert!(pool.scrubbing().is_some());
        true
    })
    .unwrap();
    assert!(matches!(refused, Some(Error::Busy { .. })), "{refused:?}");
    assert_eq!(pool.scrubbing(), None);
}

/// What vouches for blocks has a copy, too: that of a header of a record may be the one that is needed some
/// day.
#[test]
fn copies_of_headers_and_tables_are_compared() {
    let storage = made_with(crate::CopyMode::All);
    let places = places(&Pool::open(storage.clone(), &options(true)).unwrap());
    let vouches = |sort: &str| sort != "block" && sort != "superblock";
    let places: Vec<_> = places.into_iter().filter(|(sort, ..)| vouches(sort)).collect();
    let sorts: std::collections::BTreeSet<&str> = places.iter().map(|(sort, ..)| *sort).collect();
    assert!(sorts.len() >= 4, "{sorts:?}");
    for (sort, name, slot, _) in &places {
        let copy = copy_name(from_file_name(name).unwrap());
        let corrupt = storage.copy();
        flip(&corrupt, &copy, u64::from(*slot) * BLOCK + 77, 3);
        let pool = Pool::open(corrupt, &options(false)).unwrap();
        let scrub = ScrubOptions { tells_opening: true, ..ScrubOptions::default() };
        let report = pool.scrub_with(&scrub, &mut |_| true).unwrap();
        assert_eq!((report.damaged, report.spare), (0, 1), "{sort} in {copy}, slot {slot}: {report:?}");
        let again = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((again.damaged, again.spare), (0, 0), "{sort} in {copy}: {again:?}");
    }
}

/// A segment that lost all that vouches for its blocks is as whole after a scrub as before, and does not need
/// its copy any more.
#[test]
fn all_headers_of_a_segment_come_back_from_its_copy() {
    let storage = made_with(crate::CopyMode::All);
    let places = places(&Pool::open(storage.clone(), &options(true)).unwrap());
    let mut of_segments = std::collections::BTreeMap::<&str, Vec<u32>>::new();
    for (_, name, slot, _) in places.iter().filter(|(sort, ..)| sort.contains("header")) {
        of_segments.entry(name).or_default().push(*slot);
    }
    let block = |storage: &MemoryStorage, name: &str, slot: u32| {
        let mut bytes = vec![0; BLOCK_BYTES];
        storage.open(name, false).unwrap().read_at(&mut bytes, u64::from(slot) * BLOCK).unwrap();
        bytes
    };
    for (name, slots) in &of_segments {
        let corrupt = storage.copy();
        let file = corrupt.open(name, true).unwrap();
        for slot in slots {
            file.write_at(&[(Kind::Data, &[0; BLOCK_BYTES])], u64::from(*slot) * BLOCK).unwrap();
        }
        let pool = Pool::open(corrupt.clone(), &options(false)).unwrap();
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!(report.damaged, 0, "{name}: {report:?}");
        let header = SegmentHeader::of(pool.id(), from_file_name(name).unwrap(), &block(&corrupt, name, 0));
        assert!(header.is_some(), "{name}: {report:?}");
        // That of the segment in which the log ends says where it went on.
        for slot in slots.iter().filter(|slot| **slot > 0) {
            assert!(
                block(&corrupt, name, *slot) == block(&storage, name, *slot),
                "slot {slot} of {name}: {report:?}"
            );
        }
    }
}

/// A scrub that may not write, or whose writes are refused or forgotten, comes to an end: what has a whole
/// copy is not lost by that.
#[test]
fn what_cannot_be_written_again_is_reported_once() {
    let storage = made_with(crate::CopyMode::All);
    let places = places(&Pool::open(storage.clone(), &options(true)).unwrap());
    let vouches = |sort: &str| sort != "block" && sort != "superblock";
    let mut reported = std::collections::BTreeSet::new();
    for (sort, name, slot, _) in places.iter().filter(|(sort, ..)| vouches(sort)) {
        let corrupt = storage.copy();
        flip(&corrupt, name, u64::from(*slot) * BLOCK + 77, 3);
        let pool = Pool::open(corrupt, &options(true)).unwrap();
        let scrub = ScrubOptions { tells_opening: true, ..ScrubOptions::default() };
        let report = pool.scrub_with(&scrub, &mut |_| true).unwrap();
        assert!(report.complete && report.damaged == 0, "{sort} in {name}, slot {slot}: {report:?}");
        // The header of a run that is dead is no loss.
        if report.spare > 0 {
            reported.insert(*sort);
        }
    }
    assert!(reported.len() >= 4, "{reported:?}");
}

/// As root makes them in the pool of another user.
#[test]
fn files_that_may_not_be_opened_are_no_damage() {
    let storage = made().copy();
    let segments: Vec<String> = storage
        .list()
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| from_file_name(name).is_some())
        .collect();
    storage.forbid(segments.last().unwrap());
    let denied = |error: Error| {
        let Error::Io { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
    };
    denied(
        crate::check::check(
            Arc::clone(&storage) as Arc<dyn Storage>,
            &crate::check::CheckOptions::default(),
            &mut |_| (),
        )
        .unwrap_err(),
    );
    let opened = Pool::open(storage, &options(true));
    opened.and_then(|pool| pool.scrub(&mut |_| true)).map(drop).map_err(denied).unwrap_err();
}

//! Pools that lost a file, or part of one: everything else is there, and goes on.

use crate::check::{CheckOptions, Problem, RepairOptions, check, repair};
use crate::format::segment::{SegmentKind, file_name};
use crate::options::{InitOptions, OpenOptions};
use crate::storage::memory::MemoryStorage;
use crate::storage::{Kind, Storage};
use crate::units::{BLOCK_BYTES, InodeNumber, SegmentId, Slot};
use crate::{CopyMode, Creation, Dataset, Error, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = BLOCK_BYTES;
/// Blocks of the file.
const BLOCKS: u64 = 900;
const VERSIONS: [&str; 4] = ["db", "db@s0", "db@s1", "db@s2"];

fn options(read_only: bool) -> OpenOptions {
    OpenOptions {
        read_only,
        background: false,
        control_socket: false,
        block_cache_bytes: 32 << 20,
        node_cache_bytes: 8 << 20,
        group_memory_bytes: 64 << 10,
        ..OpenOptions::default()
    }
}

/// A new pool with an open file.
fn with_file(copies: CopyMode) -> (Arc<MemoryStorage>, Pool, Dataset, InodeNumber) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions { copies, ..InitOptions::small() }).unwrap();
    let pool = Pool::open(storage.clone(), &options(false)).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    (storage, pool, db, file)
}

/// A file in three snapshots and behind them. It is written in parts and as a group, over several segments
/// and without second copies.
fn made() -> (Arc<MemoryStorage>, InodeNumber) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = Pool::open(storage.clone(), &options(false)).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for round in 0..3_u8 {
        for block in (0..BLOCKS).filter(|block| round == 0 || block % (u64::from(round) + 2) == 0) {
            db.write(file, block * BLOCK as u64, &[round + 1; BLOCK]).unwrap();
        }
        let mut group = db.begin().unwrap();
        group.write(file, u64::from(round) << 20, &vec![round + 100; 1 << 20]).unwrap();
        pool.commit(vec![group]).unwrap();
        pool.snapshot(&[format!("db@s{round}")], false, &[]).unwrap();
        pool.checkpoint().unwrap();
    }
    db.write(file, 0, &[9; BLOCK]).unwrap();
    drop(db);
    pool.close().unwrap();
    (storage, file)
}

/// Segments in use, and the one that the log ends in.
fn in_use(storage: &Arc<MemoryStorage>) -> (Vec<(SegmentId, SegmentKind)>, SegmentId) {
    let pool = Pool::open(storage.clone(), &options(true)).unwrap();
    let state = pool.engine().state();
    let kind = |segment: SegmentId| Some((segment, state.segments.kind(segment)?));
    let found = state.segments.all().into_iter().filter_map(kind).collect();
    (found, state.tail.position().segment)
}

/// Leaves so many bytes of a file, or nothing at all.
fn cut(storage: &MemoryStorage, name: &str, left: Option<usize>) {
    let mut bytes = vec![0; left.unwrap_or(0)];
    storage.open(name, false).unwrap().read_at(&mut bytes, 0).unwrap();
    storage.remove(name).unwrap();
    if left.is_some() {
        let file = storage.create(name, bytes.len() as u64).unwrap();
        file.write_at(&[(Kind::Data, &bytes)], 0).unwrap();
    }
}

/// A file as it is in another storage takes the place of what is left of it.
fn put_back(from: &MemoryStorage, to: &MemoryStorage, name: &str) {
    let whole = from.open(name, false).unwrap();
    let mut bytes = vec![0; whole.length().unwrap() as usize];
    whole.read_at(&mut bytes, 0).unwrap();
    let _ = to.remove(name);
    to.create(name, bytes.len() as u64).unwrap().write_at(&[(Kind::Data, &bytes)], 0).unwrap();
}

/// The blocks of the file that can be read, by version and number. Every read error says that there is
/// damage.
fn readable(pool: &Pool, file: InodeNumber) -> BTreeMap<(&'static str, u64), Vec<u8>> {
    let mut found = BTreeMap::new();
    for version in VERSIONS {
        let view = pool.view(version).unwrap();
        for block in (0..BLOCKS).step_by(3) {
            let mut bytes = vec![0; BLOCK];
            match view.read(file, block * BLOCK as u64, &mut bytes) {
                Ok(_) => drop(found.insert((version, block), bytes)),
                Err(Error::Damaged { .. }) => {}
                Err(error) => panic!("{version} block {block}: {error}"),
            }
        }
    }
    found
}

/// Which blocks are left if a segment is zeros from some byte on, in a file of the right length. A file that
/// is cut there has to keep exactly these.
fn left_of_zeros(
    storage: &MemoryStorage,
    name: &str,
    left: usize,
    file: InodeNumber,
) -> BTreeMap<(&'static str, u64), Vec<u8>> {
    let copy = storage.copy();
    let corrupt = copy.open(name, true).unwrap();
    let zeros = vec![0; corrupt.length().unwrap() as usize - left];
    corrupt.write_at(&[(Kind::Data, &zeros)], left as u64).unwrap();
    readable(&Pool::open(copy, &options(true)).unwrap(), file)
}

#[test]
fn a_file_that_is_gone_costs_what_was_in_it_and_nothing_else() {
    let (storage, file) = made();
    let whole = readable(&Pool::open(storage.clone(), &options(true)).unwrap(), file);
    assert_eq!(whole.len() as u64, 4 * BLOCKS / 3);
    let (segments, end) = in_use(&storage);
    let (mut corrupt_data, mut put_back_ends) = (0, 0);
    for (segment, kind) in segments {
        let name = file_name(segment);
        for left in [None, Some(0), Some(BLOCK), Some(100 * BLOCK + 7), Some(300 * BLOCK)] {
            let said = format!("{name} ({kind:?}), {left:?} bytes left");
            let copy = storage.copy();
            cut(&copy, &name, left);
            let opened = Pool::open(copy.clone(), &options(true));
            if kind == SegmentKind::Ledger && opened.is_err() {
                // Nothing is known without it: that is for a repair.
                continue;
            }
            let pool = opened.unwrap_or_else(|error| panic!("{said}: {error}"));
            let found = readable(&pool, file);
            let expected = left_of_zeros(&storage, &name, left.unwrap_or(0) / BLOCK * BLOCK, file);
            assert!(found == expected, "{said}: {} of {}", found.len(), expected.len());
            corrupt_data += usize::from(found.len() < whole.len());
            drop(pool);
            // The owner goes on with it, closes, and comes back.
            let pool = Pool::open(copy.clone(), &options(false)).unwrap();
            pool.create_dataset("more", false, &[]).unwrap();
            let db = pool.dataset("more").unwrap();
            let other = db.open_or_create(b"b", &Creation::file()).unwrap();
            for block in 0..600 {
                db.write(other, block * BLOCK as u64, &[77; BLOCK]).unwrap();
            }
            db.sync().unwrap();
            pool.snapshot(&["more@after".to_owned()], false, &[]).unwrap();
            let is_there = |incident: &crate::Incident| incident.what.contains(&name);
            let incidents = pool.engine().blocks.files().incidents().last();
            assert!(incidents.iter().any(is_there), "{said}: {incidents:?}");
            drop(db);
            pool.close().unwrap();
            let pool = Pool::open(copy.clone(), &options(false)).unwrap();
            assert!(readable(&pool, file) == found, "{said}: afterwards");
            let mut bytes = vec![0; 600 * BLOCK];
            pool.view("more@after").unwrap().read(other, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 77), "{said}");
            pool.close().unwrap();
            // Nothing was written there. Put back, the file has everything again, and nothing is lost of what
            // came since.
            let there = copy.list().unwrap().into_iter().find(|(file, _)| *file == name);
            assert_eq!(there.map(|(_, length)| length as usize), left, "{said}");
            put_back(&storage, &copy, &name);
            let pool = Pool::open(copy, &options(false)).unwrap();
            assert!(readable(&pool, file) == whole, "{said}: put back");
            let mut bytes = vec![0; 600 * BLOCK];
            pool.view("more@after").unwrap().read(other, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 77), "{said}");
            pool.verify().unwrap();
            put_back_ends += usize::from(segment == end);
        }
    }
    assert!(corrupt_data > 10 && put_back_ends == 5, "{corrupt_data} {put_back_ends}");
}

#[test]
fn the_end_of_a_log_that_was_not_closed_is_not_done_without() {
    let (storage, file) = made();
    let pool = Pool::open(storage.clone(), &options(false)).unwrap();
    let db = pool.dataset("db").unwrap();
    db.write(file, 0, &[7; 5 * BLOCK]).unwrap();
    db.sync().unwrap();
    let killed = storage.copy();
    let end = pool.engine().state().tail.position().segment;
    for left in [None, Some(BLOCK), Some(300 * BLOCK)] {
        let copy = killed.copy();
        cut(&copy, &file_name(end), left);
        let refused = Pool::open(copy.clone(), &options(false)).map(drop).unwrap_err();
        assert!(refused.to_string().contains(&file_name(end)), "{refused}");
        let there = copy.list().unwrap().into_iter().find(|(name, _)| *name == file_name(end));
        assert_eq!(there.map(|(_, length)| length as usize), left, "what is left stays as it is");
    }
}

/// What was acknowledged since the last checkpoint need not be in a copy. Once the file is made again from
/// the copy, nothing says so any more. So it must not be made as long as the log needs it.
#[test]
fn the_end_of_a_log_is_not_taken_from_a_copy_that_may_be_behind_however_often_one_tries() {
    let (storage, pool, db, file) = with_file(CopyMode::All);
    db.write(file, 0, &[1; BLOCK]).unwrap();
    pool.checkpoint().unwrap();
    db.write(file, 0, &[7; BLOCK]).unwrap();
    db.sync().unwrap();
    let killed = storage.copy();
    let end = pool.engine().state().tail.position().segment;
    for left in [None, Some(BLOCK)] {
        let copy = killed.copy();
        cut(&copy, &file_name(end), left);
        for attempt in 0..3 {
            let refused = Pool::open(copy.clone(), &options(false)).map(drop).unwrap_err();
            assert!(refused.to_string().contains(&file_name(end)), "attempt {attempt}: {refused}");
            let there = copy.list().unwrap().into_iter().find(|(name, _)| *name == file_name(end));
            assert_eq!(there.map(|(_, length)| length as usize), left, "attempt {attempt}");
        }
    }
}

#[test]
fn a_repair_gives_up_nothing_that_can_be_read_without_it() {
    let (storage, file) = made();
    let (segments, _) = in_use(&storage);
    for (segment, kind) in segments.into_iter().filter(|(_, kind)| *kind != SegmentKind::Ledger) {
        for left in [None, Some(300 * BLOCK)] {
            let copy = storage.copy();
            cut(&copy, &file_name(segment), left);
            let before = readable(&Pool::open(copy.clone(), &options(true)).unwrap(), file);
            let look = CheckOptions { data: true };
            let report = check(copy.clone(), &look, &mut |_| {}).unwrap();
            let said = format!("{} ({kind:?}): {report:?}", file_name(segment));
            assert!(report.opened, "{said}");
            let named = |problem: &Problem| problem.what.contains(&file_name(segment));
            assert!(report.problems.iter().any(named), "{said}");
            let options_of_repair = RepairOptions { data: true, ..RepairOptions::default() };
            repair(copy.clone(), &options_of_repair, &mut |_| {}).unwrap();
            let after = readable(&Pool::open(copy, &options(false)).unwrap(), file);
            assert!(after == before, "{said}");
        }
    }
}

/// Writes a few bytes of a block, which the log has as a change of what was there.
fn patch(pool: &Pool, file: InodeNumber, block: u64) {
    let db = pool.dataset("db").unwrap();
    db.write(file, block * BLOCK as u64 + 100, b"acknowledged").unwrap();
    db.sync().unwrap();
}

/// What a killed pool with acknowledged changes of some blocks leaves behind, and the segment that these lay
/// in before.
fn killed_with_changes(storage: &Arc<MemoryStorage>, file: InodeNumber) -> (Arc<MemoryStorage>, SegmentId) {
    let pool = Pool::open(storage.clone(), &options(false)).unwrap();
    let engine = pool.engine();
    let (end, segment) = {
        let state = engine.state();
        let in_log = |segment: &SegmentId| state.segments.kind(*segment) == Some(SegmentKind::Log);
        let live = |segment: &SegmentId| state.segments.live(*segment);
        let all = state.segments.all().into_iter().filter(in_log);
        let end = state.tail.position().segment;
        (end, all.filter(|segment| *segment != end).max_by_key(live).unwrap())
    };
    assert_ne!(segment, end);
    for block in (0..BLOCKS).step_by(3) {
        patch(&pool, file, block);
    }
    let killed = storage.copy();
    std::mem::forget(pool);
    (killed, segment)
}

/// What the log changes in a file of the pool that is gone is not given up: put back, that file has it. With
/// `cut_log` the change is gone for good, also when the file turns up: the file has what was there before.
#[test]
fn what_was_acknowledged_does_not_go_back_to_what_was_there_before() {
    let (storage, file) = made();
    let (killed, segment) = killed_with_changes(&storage.copy(), file);
    let name = file_name(segment);
    let is_new = |bytes: &Vec<u8>| bytes[100..112] == *b"acknowledged";
    let whole = readable(&Pool::open(killed.copy(), &options(false)).unwrap(), file);
    assert!((0..BLOCKS).step_by(3).all(|block| is_new(&whole[&("db", block)])));

    let copy = killed.copy();
    cut(&copy, &name, None);
    for _ in 0..2 {
        let refused = Pool::open(copy.clone(), &options(false)).map(drop).unwrap_err().to_string();
        assert!(refused.contains(&name) && refused.contains("the log since"), "{refused}");
    }
    let report = repair(copy.clone(), &RepairOptions::default(), &mut |_| {}).unwrap();
    assert!(!report.after.opened && report.changed_blocks == 0, "{report:?}");
    assert!(report.refused.iter().any(|why| why.contains("--cut-log")), "{report:?}");
    let back = copy.copy();
    put_back(&killed, &back, &name);
    assert!(readable(&Pool::open(back, &options(false)).unwrap(), file) == whole, "put back");

    let cut_log = RepairOptions { cut_log: true, ..RepairOptions::default() };
    let report = repair(copy.clone(), &cut_log, &mut |_| {}).unwrap();
    assert!(
        report.after.opened && report.given_up.iter().any(|line| line.contains("in a (inode")),
        "{report:?}"
    );
    put_back(&killed, &copy, &name);
    let pool = Pool::open(copy.clone(), &options(false)).unwrap();
    assert_not_as_before(&pool, &whole, file);
    pool.close().unwrap();
    assert_not_as_before(&Pool::open(copy, &options(false)).unwrap(), &whole, file);
}

/// No block of the present version is what it was before it was changed; those of snapshots are all there.
fn assert_not_as_before(pool: &Pool, whole: &BTreeMap<(&'static str, u64), Vec<u8>>, file: InodeNumber) {
    let found = readable(pool, file);
    let lost = whole.keys().filter(|key| !found.contains_key(*key)).collect::<Vec<_>>();
    assert!(!lost.is_empty() && lost.iter().all(|(version, _)| *version == "db"), "{lost:?}");
    assert!(found.iter().all(|(key, bytes)| whole[key] == *bytes));
    let scrub = pool.scrub(&mut |_| true).unwrap();
    assert!(scrub.damaged >= lost.len() as u64, "{scrub:?}");
    assert!(scrub.findings.iter().all(|finding| finding.path.as_deref() == Some(b"a")), "{scrub:?}");
}

/// The same where the block is there and is not what was written: the pool opens, and its change is lost with
/// it.
#[test]
fn a_change_of_a_damaged_block_is_lost_for_good() {
    let (storage, file) = made();
    let (killed, segment) = killed_with_changes(&storage.copy(), file);
    let whole = readable(&Pool::open(killed.copy(), &options(false)).unwrap(), file);
    let copy = killed.copy();
    let corrupt = copy.open(&file_name(segment), true).unwrap();
    for slot in 1..500 {
        corrupt.write_at(&[(Kind::Data, &[0xdd; 7])], slot * BLOCK as u64 + 50).unwrap();
    }
    let pool = Pool::open(copy.clone(), &options(false)).unwrap();
    assert!(readable(&pool, file).len() < whole.len());
    // Before a checkpoint, and after it.
    for _ in 0..2 {
        let scrub = pool.scrub(&mut |_| true).unwrap();
        assert!(scrub.damaged > 0, "{scrub:?}");
        pool.checkpoint().unwrap();
    }
    pool.close().unwrap();
    put_back(&killed, &copy, &file_name(segment));
    assert_not_as_before(&Pool::open(copy, &options(false)).unwrap(), &whole, file);
}

/// The blocks of a file that can be read in its present version.
fn readable_now(pool: &Pool, file: InodeNumber) -> usize {
    let view = pool.view("db").unwrap();
    let mut bytes = vec![0; BLOCK];
    (0..BLOCKS).filter(|block| view.read(file, block * BLOCK as u64, &mut bytes).is_ok()).count()
}

/// A sector costs the block that lies there, and what no other place says.
#[test]
fn a_sector_that_cannot_be_read_costs_no_more_than_itself() {
    let (storage, file) = made();
    let (segments, end) = in_use(&storage);
    let geometry = Pool::open(storage.clone(), &options(true)).unwrap().engine().geometry;
    let mut looked_at = 0;
    for (segment, kind) in segments.into_iter().filter(|(segment, kind)| kind.has_table() && *segment != end)
    {
        let table = geometry.end(kind);
        for slot in [Slot(0), table, Slot(geometry.slots() - 1)] {
            for killed in [false, true] {
                let copy = storage.copy();
                if killed {
                    let pool = Pool::open(copy.clone(), &options(false)).unwrap();
                    pool.dataset("db").unwrap().write(file, 0, &[5; BLOCK]).unwrap();
                    pool.dataset("db").unwrap().sync().unwrap();
                    std::mem::forget(pool);
                }
                let copy = copy.copy();
                let at = geometry.offset(slot);
                copy.make_unreadable(&file_name(segment), at..at + 1);
                let pool = Pool::open(copy, &options(false)).unwrap();
                let said = format!("{} ({kind:?}) {slot:?} {killed}", file_name(segment));
                assert_eq!(readable_now(&pool, file) as u64, BLOCKS, "{said}");
                pool.verify().unwrap();
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 10, "{looked_at}");
}

/// What is left of a segment that was cut short is what was written. Its copy, which nothing has verified,
/// need not be.
#[test]
fn what_is_left_of_a_segment_is_kept_when_that_is_made_whole_again() {
    let (storage, pool, db, file) = with_file(CopyMode::All);
    db.write(file, 0, &vec![5; 200 * BLOCK]).unwrap();
    drop(db);
    pool.close().unwrap();
    for (segment, _) in in_use(&storage).0 {
        // Behind all that was written, and not where a piece ends.
        let left = 255 * BLOCK;
        for at in [40, 40 + BLOCK, 4 * BLOCK + 40] {
            let corrupt = storage.copy();
            cut(&corrupt, &file_name(segment), Some(left));
            let copy = corrupt.open(&crate::copies::copy_name(segment), true).unwrap();
            let mut byte = [0; 512];
            copy.read_at(&mut byte, at as u64 / 512 * 512).unwrap();
            byte[at % 512] ^= 1;
            copy.write_at(&[(Kind::Data, &byte)], at as u64 / 512 * 512).unwrap();
            let pool = Pool::open(corrupt, &options(false)).unwrap();
            let mut bytes = vec![0; 200 * BLOCK];
            pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 5), "{segment:?}, {at}");
            let report = pool.scrub(&mut |_| true).unwrap();
            assert_eq!(report.damaged, 0, "{segment:?}, {at}: {report:?}");
            pool.verify().unwrap();
        }
    }
}

/// A segment without copies that lost its table, and nothing else. The process that has the pool open knows
/// its checksums. Then a header is damaged that the table would have made up for.
#[test]
fn a_header_that_is_lost_behind_a_lost_table_is_reported_by_the_process_that_knows_the_checksums() {
    let (storage, file) = made();
    let (segments, end) = in_use(&storage);
    let (mut reported, mut needed) = (0, 0);
    for (segment, kind) in segments.into_iter().filter(|(segment, kind)| *segment != end && kind.has_table())
    {
        let (copy, name) = (storage.copy(), file_name(segment));
        let table_at = Pool::open(copy.clone(), &options(true)).unwrap().engine().geometry.end(kind).0;
        cut(&copy, &name, Some(table_at as usize * BLOCK));
        let pool = Pool::open(copy.clone(), &options(false)).unwrap();
        let whole = readable(&pool, file);
        pool.verify().unwrap();
        assert_eq!(pool.scrub(&mut |_| true).unwrap().damaged, 0, "{name}");
        // The first record or run.
        let corrupt = copy.open(&name, true).unwrap();
        corrupt.write_at(&[(Kind::Data, &[0; BLOCK])], BLOCK as u64).unwrap();
        let found = pool.scrub(&mut |_| true).unwrap().damaged;
        pool.close().unwrap();
        let later = Pool::open(copy.clone(), &options(true)).unwrap();
        let is_needed = readable(&later, file).len() < whole.len();
        assert!(found > 0 || !is_needed, "{name} ({kind:?})");
        reported += usize::from(found > 0);
        needed += usize::from(is_needed);
        // Books do not hold of what is gone as a whole.
        let short = storage.copy();
        cut(&short, &name, Some(BLOCK));
        assert!(Pool::open(short, &options(true)).unwrap().verify().is_err(), "{name}");
    }
    assert!(reported > 0 && needed > 0, "{reported} reported, {needed} needed");
}

//! Pools whose location map lies in chunks, of which one is in memory.

use super::copies::in_use;
use crate::check::{Area, CheckOptions, RepairOptions, RepairReport, check, repair};
use crate::format::record::RecordView;
use crate::format::segment::{SegmentKind, file_name};
use crate::format::superblock::LedgerPointer;
use crate::location::ChunkRow;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::storage::{AlignedBuffer, Kind, Storage};
use crate::units::{BLOCK_BYTES, InodeNumber, LogAddress, SegmentId, Stream};
use crate::{Creation, Error};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const PIECE: usize = 64 << 10;
const PIECES: u64 = 500;

fn open_with(storage: &Arc<MemoryStorage>, map_memory_bytes: u64) -> crate::Result<Pool> {
    let options = OpenOptions {
        background: false,
        control_socket: false,
        block_cache_bytes: 0,
        node_cache_bytes: 0,
        map_memory_bytes,
        ..OpenOptions::default()
    };
    Pool::open(storage.clone(), &options)
}

fn open(storage: &Arc<MemoryStorage>) -> Pool {
    open_with(storage, 0).unwrap()
}

fn content(piece: u64, round: u8) -> Vec<u8> {
    vec![(piece as u8).wrapping_mul(7) ^ round; PIECE]
}

fn write(pool: &Pool, file: InodeNumber, pieces: impl Iterator<Item = u64>, round: u8) {
    let db = pool.dataset("db").unwrap();
    pieces.for_each(|piece| db.write(file, piece * PIECE as u64, &content(piece, round)).unwrap());
}

fn round_of(piece: u64) -> u8 {
    u8::from(piece.is_multiple_of(3))
}

fn read(pool: &Pool, file: InodeNumber, piece: u64) -> crate::Result<Vec<u8>> {
    let mut bytes = vec![0; PIECE];
    pool.view("db")?.read(file, piece * PIECE as u64, &mut bytes)?;
    Ok(bytes)
}

fn assert_there(pool: &Pool, file: InodeNumber) {
    for piece in 0..PIECES {
        assert!(read(pool, file, piece).unwrap() == content(piece, round_of(piece)), "piece {piece}");
    }
}

fn rows(pool: &Pool) -> Vec<(Stream, ChunkRow)> {
    let map = pool.engine().blocks.map().read();
    map.directory().all().map(|(stream, row)| (stream, row.clone())).collect()
}

/// A file of some segments, a third of which was written again and moved together.
fn made(map_memory_bytes: u64) -> (Arc<MemoryStorage>, InodeNumber) {
    let storage = Arc::new(MemoryStorage::default());
    // What is damaged stays damaged.
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open_with(&storage, map_memory_bytes).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    drop(db);
    write(&pool, file, 0..PIECES, 0);
    pool.checkpoint().unwrap();
    write(&pool, file, (0..PIECES).filter(|piece| round_of(*piece) == 1), 1);
    pool.checkpoint().unwrap();
    pool.collect(8).unwrap();
    let_deltas_grow(&pool, 5000);
    pool.close().unwrap();
    (storage, file)
}

/// Until a picture of everything is due. Of what is no number of whole blocks, the rest is read.
fn let_deltas_grow(pool: &Pool, bytes: usize) {
    let db = pool.dataset("db").unwrap();
    let other = db.open_or_create(b"b", &Creation::file()).unwrap();
    for round in 0..70 {
        db.write(other, 0, &vec![round; bytes]).unwrap();
        pool.checkpoint().unwrap();
    }
}

#[test]
fn a_map_of_which_one_chunk_is_in_memory_leads_to_everything() {
    let (storage, file) = made(0);
    let pool = open(&storage);
    assert!(rows(&pool).iter().filter(|(stream, _)| *stream == Stream::Data).count() > 2);
    assert_there(&pool, file);
    assert!(pool.statistics().disk_read_bytes_map > 0);
    assert!(pool.engine().blocks.map().read().directory().resident() <= 1);
    pool.verify().unwrap();
    // A process with more memory reads the same, and writes longer chunks.
    let roomy = open_with(&storage.copy(), 32 << 20).unwrap();
    assert_there(&roomy, file);
    let_deltas_grow(&roomy, 5000);
    roomy.verify().unwrap();
    assert_there(&roomy, file);
    let report = check(storage.copy(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
    assert_eq!(report.count, 0, "{report:?}");
}

/// What was written without chunks goes over into them with the next picture of everything.
#[test]
fn a_map_without_chunks_is_put_into_chunks() {
    let (storage, file) = made(32 << 20);
    let pool = open(&storage);
    assert_eq!(rows(&pool), Vec::new());
    let_deltas_grow(&pool, 5000);
    assert!(rows(&pool).len() > 3);
    assert_there(&pool, file);
    pool.verify().unwrap();
    let crashed = open(&storage.copy());
    assert_there(&crashed, file);
    crashed.verify().unwrap();
}

/// Damages a chunk.
pub(super) fn flip(storage: &MemoryStorage, place: &LedgerPointer) {
    let offset = u64::from(place.slot.0) * BLOCK_BYTES as u64;
    let handle = storage.open(&file_name(place.segment), true).unwrap();
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    handle.read_at(&mut block, offset).unwrap();
    block[45] ^= 0x10;
    handle.write_at(&[(Kind::Frame, &block)], offset).unwrap();
}

#[test]
fn a_damaged_chunk_costs_what_it_places_and_is_named() {
    let (storage, file) = made(0);
    let all = rows(&open(&storage.copy()));
    for (stream, row) in all {
        let corrupt = storage.copy();
        flip(&corrupt, &row.place);
        let name = file_name(row.place.segment);
        let report = check(corrupt.clone(), &CheckOptions::default(), &mut |_| {}).unwrap();
        let named = |problem: &crate::check::Problem| {
            problem.what.contains("chunk of the location map") && problem.what.contains(&name)
        };
        let found = report.problems.iter().find(|problem| named(problem)).expect("it is named");
        assert!(!report.is_sound() && (found.area == Area::Places || !report.opened), "{report:?}");
        if stream != Stream::Data {
            continue;
        }
        let pool = open(&corrupt);
        let mut lost = 0;
        for piece in 0..PIECES {
            match read(&pool, file, piece) {
                Ok(bytes) => assert!(bytes == content(piece, round_of(piece))),
                Err(Error::Damaged { place, .. }) => lost += u32::from(place.contains(&name)),
                Err(other) => panic!("{other}"),
            }
        }
        assert!((1..PIECES as u32).contains(&lost), "{lost} pieces cannot be read");
        // The pool goes on: nothing of it is used for anything else, and the next opening reports it again.
        write(&pool, file, 0..PIECES, 5);
        let_deltas_grow(&pool, 8192);
        assert!(pool.statistics().failure.is_none());
        for piece in 0..PIECES {
            assert!(read(&pool, file, piece).unwrap() == content(piece, 5));
        }
        pool.close().unwrap();
        let report = open(&corrupt).scrub(&mut |_| true).unwrap();
        let is_of_map = |finding: &crate::pool::Finding| finding.damage.contains("chunk of the location map");
        assert!(report.findings.iter().any(|finding| is_of_map(finding) && !finding.spare), "{report:?}");
    }
}

/// What dies while its place cannot be read is freed when the place can be read.
#[test]
fn what_cannot_be_freed_waits() {
    let (storage, file) = made(0);
    let pool = open(&storage);
    let data: Vec<ChunkRow> =
        rows(&pool).into_iter().filter(|(stream, _)| *stream == Stream::Data).map(|(_, row)| row).collect();
    data.iter().for_each(|row| flip(&storage, &row.place));
    let live = |pool: &Pool| pool.engine().state().segments.live_total();
    let before = live(&pool);
    write(&pool, file, 0..PIECES, 5);
    pool.checkpoint().unwrap();
    assert!(live(&pool) > before + PIECES * 8, "most of it is counted twice");
    assert!(pool.statistics().failure.is_none());
    data.iter().for_each(|row| flip(&storage, &row.place));
    pool.checkpoint().unwrap();
    assert!(live(&pool) < before + PIECES * 8);
    pool.verify().unwrap();
}

/// The same pool on a disk that refuses to read a chunk.
fn without(storage: &MemoryStorage, row: &ChunkRow) -> Arc<MemoryStorage> {
    let copy = storage.copy();
    let at = u64::from(row.place.slot.0) * BLOCK_BYTES as u64;
    copy.make_unreadable(&file_name(row.place.segment), at..at + 1);
    copy
}

/// What a disk refuses to read keeps no pool closed, and is there when it is read again.
#[test]
fn a_chunk_in_a_sector_that_cannot_be_read_is_done_without_for_one_life() {
    let (storage, file) = made(0);
    let rows = rows(&open(&storage.copy()));
    assert!(rows.len() > 2);
    for (stream, row) in rows {
        let copy = without(&storage, &row);
        let pool = open(&copy);
        let unread = (0..PIECES).filter(|piece| read(&pool, file, *piece).is_err()).count() as u64;
        assert!(unread < PIECES || stream == Stream::Node, "{unread} of {stream:?}");
        pool.create_dataset("more", false, &[]).unwrap();
        let more = pool.dataset("more").unwrap();
        let other = more.open_or_create(b"c", &Creation::file()).unwrap();
        more.write(other, 0, &content(1, 7)).unwrap();
        drop(more);
        pool.close().unwrap();
        let pool = open(&copy.copy());
        assert_there(&pool, file);
        pool.verify().unwrap();
    }
}

fn kinds(pool: &Pool) -> BTreeMap<SegmentId, SegmentKind> {
    in_use(&pool.engine().state().segments)
}

/// Segments that chunks of data name, and that hold tree nodes or the ledger since.
fn named_and_used_otherwise(pool: &Pool) -> usize {
    let kinds = kinds(pool);
    let is_data = |segment: &SegmentId| kinds.get(segment).is_none_or(|kind| kind.has_table());
    let data = rows(pool).into_iter().filter(|(stream, _)| *stream == Stream::Data);
    let named = data.flat_map(|(_, row)| row.segments.into_iter().flatten());
    named.filter(|segment| !is_data(segment)).count()
}

/// What lay in a segment that a chunk names may have died or moved since: what the segment holds now is not
/// for that chunk to say. Tree nodes in one that was taken for log had no second copy any more, and a scrub
/// called it damaged.
#[test]
fn a_segment_that_a_lost_chunk_names_stays_what_it_is_used_for_since() {
    let (storage, file) = made(0);
    let pool = open(&storage);
    let db = pool.dataset("db").unwrap();
    for round in 0..40_u64 {
        if named_and_used_otherwise(&pool) > 0 {
            break;
        }
        write(&pool, file, round * 12..(round + 1) * 12, 5);
        for number in 0..400 {
            let name = format!("{round} {number} with a name that takes some room in the directory");
            db.open_or_create(name.as_bytes(), &Creation::file()).unwrap();
        }
        pool.checkpoint().unwrap();
    }
    assert!(named_and_used_otherwise(&pool) > 0);
    drop(db);
    pool.close().unwrap();
    let whole = open(&storage.copy());
    let (used, rows) = (kinds(&whole), rows(&whole));
    for (_, row) in rows {
        let copy = without(&storage, &row);
        let now = kinds(&open(&copy));
        let changed: Vec<_> = used.iter().filter(|(segment, kind)| now.get(segment) != Some(kind)).collect();
        assert!(changed.is_empty(), "{changed:?} without {row:?}: {now:?}");
    }
}

/// What lies in one chunk that cannot be read waits by itself: all other room comes back, however much is
/// written.
#[test]
fn one_chunk_that_cannot_be_read_holds_up_nothing_else() {
    let (storage, file) = made(0);
    let pool = open(&storage);
    let (_, row) = rows(&pool).into_iter().find(|(stream, _)| *stream == Stream::Data).unwrap();
    flip(&storage, &row.place);
    let live = || pool.engine().state().segments.live_total();
    let before = live();
    let within = row.span.end.0 - row.span.start.0;
    for round in 5..12 {
        write(&pool, file, 0..PIECES, round);
        pool.checkpoint().unwrap();
        assert!(
            live() < before + within + 100,
            "{} blocks live after round {round}, and {before} before",
            live()
        );
    }
    assert!(pool.statistics().failure.is_none());
    // What is still pinned is not freed with what was set aside.
    let view = pool.view("db").unwrap();
    write(&pool, file, 0..PIECES, 12);
    pool.checkpoint().unwrap();
    flip(&storage, &row.place);
    pool.checkpoint().unwrap();
    let mut bytes = vec![0; PIECE];
    for piece in 0..PIECES {
        view.read(file, piece * PIECE as u64, &mut bytes).unwrap();
        assert!(bytes == content(piece, 11), "piece {piece}");
    }
    drop(view);
    pool.checkpoint().unwrap();
    assert!(live() < before + 100, "all of it is freed when the chunk can be read again");
    pool.verify().unwrap();
}

/// What a chunk places that could not be read when the pool was opened is counted nowhere. So it is not freed
/// in that life, even if the chunk can be read later in it.
#[test]
fn what_was_not_counted_is_not_freed() {
    let (storage, file) = made(0);
    let all = rows(&open(&storage.copy()));
    for (_, row) in all.iter().filter(|(stream, _)| *stream != Stream::Node) {
        let storage = storage.copy();
        flip(&storage, &row.place);
        let pool = open(&storage);
        flip(&storage, &row.place);
        assert_there(&pool, file);
        let snapshot = storage.copy();
        for round in 5..8 {
            write(&pool, file, 0..PIECES, round);
            let_deltas_grow(&pool, 5000);
            pool.collect(8).unwrap();
        }
        assert!(pool.statistics().failure.is_none());
        pool.verify().unwrap();
        for piece in 0..PIECES {
            assert!(read(&pool, file, piece).unwrap() == content(piece, 7), "piece {piece}");
        }
        pool.close().unwrap();
        // The next opening counts all of it.
        let again = open(&storage);
        again.verify().unwrap();
        let clean = open(&snapshot);
        assert_there(&clean, file);
    }
}

fn repaired(storage: &Arc<MemoryStorage>) -> RepairReport {
    let options = RepairOptions { data: true, ..RepairOptions::default() };
    repair(storage.clone(), &options, &mut |_| {}).unwrap()
}

/// Everything is there, and it can be lived with.
fn assert_sound(storage: &Arc<MemoryStorage>, file: InodeNumber) {
    let pool = open(storage);
    pool.verify().unwrap();
    assert_there(&pool, file);
    write(&pool, file, 0..PIECES, 5);
    let_deltas_grow(&pool, 8192);
    pool.collect(8).unwrap();
    pool.close().unwrap();
    let report = check(storage.clone(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
    assert_eq!(report.count, 0, "{report:?}");
}

/// A transaction that was written ahead, a part of which was moved since; and some that is not in a
/// checkpoint.
fn add_groups(pool: &Pool) {
    let db = pool.dataset("db").unwrap();
    let grouped = db.open_or_create(b"grouped", &Creation::file()).unwrap();
    for round in 0..2_u8 {
        let mut group = db.begin().unwrap();
        for index in 0..300_u64 {
            group.write(grouped, (index * 7 % 301) * 4096, &[round ^ index as u8; 4096]).unwrap();
        }
        pool.commit(vec![group]).unwrap();
        pool.checkpoint().unwrap();
    }
    for index in 0..30 {
        db.write(grouped, 3_000_000 + index * 9000, b"small").unwrap();
    }
}

#[test]
fn damaged_chunks_are_made_again_from_the_headers_of_segments() {
    let (storage, file) = made(0);
    let pool = open(&storage);
    add_groups(&pool);
    let_deltas_grow(&pool, 5000);
    let killed = storage.copy();
    pool.close().unwrap();
    for storage in [storage, killed] {
        let all = rows(&open(&storage.copy()));
        let of = |stream| all.iter().filter(|(other, _)| *other == stream).count();
        assert!(Stream::ALL.into_iter().all(|stream| of(stream) > 0), "each stream has chunks");
        let each = all.iter().map(std::slice::from_ref);
        for corrupt_rows in each.chain([&all[..]]) {
            let corrupt = storage.copy();
            corrupt_rows.iter().for_each(|(_, row)| flip(&corrupt, &row.place));
            let report = repaired(&corrupt);
            assert!(report.refused.is_empty() && report.after.count == 0, "{corrupt_rows:?}: {report:?}");
            assert!(report.steps.iter().any(|step| step.contains("headers of segments")), "{report:?}");
            assert_eq!(repaired(&corrupt).changed_blocks, 0, "once is enough");
            if corrupt_rows.len() > 1 || corrupt_rows[0].0 != Stream::Node {
                assert_sound(&corrupt, file);
            }
        }
    }
}

/// A header that covers some of what lies in a segment: its slot, and those behind it.
fn header_in(storage: &MemoryStorage, segment: SegmentId, slots: Range<u32>) -> Option<Range<u32>> {
    let file = storage.open(&file_name(segment), false).unwrap();
    let mut block = [0; BLOCK_BYTES];
    slots.into_iter().find_map(|slot| {
        file.read_at(&mut block, u64::from(slot) * BLOCK_BYTES as u64).unwrap();
        let view = RecordView::decode(&block)?;
        (!view.sums.is_empty()).then(|| slot..slot + 1 + view.sums.len() as u32)
    })
}

/// Blocks of files that are named, with everybody who sees them.
fn named_blocks(report: &crate::check::CheckReport, area: Area) -> u64 {
    let blocks = |problem: &crate::check::Problem| {
        let (before, _) = problem.what.split_once(" bytes at offset ")?;
        let (file, bytes) = before.rsplit_once(": ")?;
        let named = file.contains("(inode ") && problem.versions == ["db"] && !problem.harmless;
        (named && problem.area == area).then(|| bytes.parse::<u64>().unwrap() / BLOCK_BYTES as u64)
    };
    report.problems.iter().filter_map(blocks).sum()
}

/// What no header lists any more is gone: that, no more and no less. The report says which file has it,
/// where, and who sees it.
#[test]
fn what_is_in_no_header_is_named() {
    let (storage, file) = made(0);
    let pool = open(&storage);
    let all = rows(&pool);
    let of_data: Vec<ChunkRow> =
        all.iter().filter(|(stream, _)| *stream == Stream::Data).map(|(_, row)| row.clone()).collect();
    let living = |span: &Range<LogAddress>| -> Vec<(LogAddress, SegmentId, u32)> {
        let live: Vec<_> =
            pool.engine().state().history.live_runs(Stream::Data).map(Result::unwrap).collect();
        let addresses = live.iter().flat_map(|run| run.start.0..run.end().0).map(LogAddress);
        let within = addresses.filter(|address| span.contains(address));
        let place = |address| pool.engine().blocks.locate(Stream::Data, address).unwrap();
        within.map(|address| (address, place(address).0, place(address).1.0)).collect()
    };
    let mut tried = 0;
    for row in of_data {
        let there = living(&row.span);
        let Some(&(_, segment, slot)) = there.get(there.len() / 2) else { continue };
        let Some(covered) = header_in(&storage, segment, slot.saturating_sub(256).max(1)..slot) else {
            continue;
        };
        let lost: Vec<LogAddress> = there
            .iter()
            .filter(|(_, at, slot)| *at == segment && covered.contains(slot))
            .map(|(address, ..)| *address)
            .collect();
        if lost.is_empty() {
            continue;
        }
        let corrupt = storage.copy();
        flip(&corrupt, &row.place);
        let handle = corrupt.open(&file_name(segment), true).unwrap();
        handle.write_at(&[(Kind::Data, &[0; 8])], u64::from(covered.start) * BLOCK_BYTES as u64).unwrap();
        // Without reading any data it can say so, too.
        let unread = repair(corrupt.copy(), &RepairOptions::default(), &mut |_| {}).unwrap();
        let report = repaired(&corrupt);
        let after = open(&corrupt);
        let is_gone = |address: &&LogAddress| after.engine().blocks.read(Stream::Data, **address).is_err();
        let gone: Vec<LogAddress> =
            there.iter().map(|(address, ..)| address).filter(is_gone).copied().collect();
        // Some of it is found where it was before it was moved.
        assert!(gone.iter().all(|address| lost.contains(address)), "{gone:?}");
        let count = format!("{} blocks that live are in no header", gone.len());
        assert!(gone.is_empty() != report.refused.iter().any(|why| why.contains(&count)), "{report:?}");
        assert_eq!(named_blocks(&report.after, Area::Data), gone.len() as u64, "{report:?}");
        assert_eq!(named_blocks(&unread.after, Area::Places), gone.len() as u64, "{unread:?}");
        tried += u32::from(!gone.is_empty());
        // What is written anew is there. When no version owns what is gone, nothing says that anything is.
        write(&after, file, 0..PIECES, 5);
        after.checkpoint().unwrap();
        after.close().unwrap();
        let report = repaired(&corrupt);
        assert_eq!((report.refused.len(), report.after.count), (0, 0), "{report:?}");
    }
    assert!(tried > 1, "{tried}");
}

//! Logs that are damaged before their end.

use super::*;
use crate::Creation;
use crate::format::segment::{SegmentHeader, file_name};
use crate::options::InitOptions;
use crate::storage::Kind;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, InodeNumber, SegmentId};

const BLOCK: usize = BLOCK_BYTES;
/// Blocks written after the last checkpoint, each acknowledged.
const WRITES: u64 = 40;

/// A pool that was killed with `WRITES` writes behind the last checkpoint, the blocks of which were all 1
/// before. Answers where the log was before each of them, and where it ended.
fn killed(between: impl Fn(&Pool)) -> (Arc<MemoryStorage>, InodeNumber, Vec<(SegmentId, u64)>) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = Pool::open(storage.clone(), &quiet()).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    db.write(file, 0, &vec![1; WRITES as usize * BLOCK]).unwrap();
    db.sync().unwrap();
    pool.checkpoint().unwrap();
    between(&pool);
    let mut ends = Vec::new();
    for block in 0..WRITES {
        let end = pool.engine().state().tail.position();
        ends.push((end.segment, pool.engine().geometry.offset(end.slot)));
        db.write(file, block * BLOCK as u64, &[2; BLOCK]).unwrap();
        db.sync().unwrap();
    }
    let killed = storage.copy();
    drop(db);
    (killed, file, ends)
}

fn damage(storage: &MemoryStorage, segment: SegmentId, offset: u64) {
    let file = storage.open(&file_name(segment), true).unwrap();
    file.write_at(&[(Kind::Data, &[0xee; BLOCK])], offset).unwrap();
}

fn repaired(storage: &Arc<MemoryStorage>, cut_log: bool) -> RepairReport {
    let options = RepairOptions { cut_log, data: true, ..RepairOptions::default() };
    repair(storage.clone(), &options, &mut |_| {}).unwrap()
}

/// How many of the writes are there; they are so in their order.
fn writes_there(pool: &Pool, file: InodeNumber) -> u64 {
    let mut bytes = vec![0; WRITES as usize * BLOCK];
    pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
    let there = bytes.chunks(BLOCK).take_while(|block| block.iter().all(|byte| *byte == 2)).count();
    assert!(
        bytes[there * BLOCK..].iter().all(|byte| *byte == 1),
        "what came before a damaged record, and nothing else"
    );
    there as u64
}

#[test]
fn a_log_is_cut_where_it_is_damaged_if_that_is_asked_for() {
    let (storage, file, ends) = killed(|_| {});
    for write in [0, 1, 17, WRITES - 2] {
        let storage = storage.copy();
        let (segment, offset) = ends[write as usize];
        damage(&storage, segment, offset);
        assert!(Pool::open(storage.copy(), &quiet()).is_err());
        let before: Vec<_> = storage.list().unwrap();
        let refused = repaired(&storage, false);
        assert!(!refused.after.opened && refused.changed_blocks == 0, "{refused:?}");
        let shown =
            refused.refused.iter().find(|why| why.contains("--cut-log")).expect("it says what it would cost");
        assert!(shown.contains("writes to a in db") && shown.contains("records up to record"), "{shown}");
        assert_eq!(storage.list().unwrap(), before);

        let report = repaired(&storage, true);
        assert!(report.after.opened && report.after.is_sound() && report.refused.is_empty(), "{report:?}");
        assert!(report.given_up.iter().any(|line| line == "writes to a in db"), "{report:?}");
        let pool = Pool::open(storage.clone(), &quiet()).unwrap();
        assert_eq!(writes_there(&pool, file), write);
        // It goes on, is killed again, and nothing of what was given up comes back.
        let db = pool.dataset("db").unwrap();
        let other = db.open_or_create(b"b", &Creation::file()).unwrap();
        for block in 0..100 {
            db.write(other, block * BLOCK as u64, &[3; BLOCK]).unwrap();
            db.sync().unwrap();
        }
        let again = Pool::open(storage.copy(), &quiet()).unwrap();
        assert_eq!(writes_there(&again, file), write);
        let mut bytes = vec![0; 100 * BLOCK];
        again.view("db").unwrap().read(other, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 3));
        again.verify().unwrap();
        drop(db);
    }
}

#[test]
fn a_log_without_its_last_segment_ends_with_the_checkpoint() {
    let (storage, file, ends) = killed(|_| {});
    let (segment, _) = ends[WRITES as usize - 1];
    for left in [None, Some(2 * BLOCK), Some(ends[20].1 as usize), Some(ends[20].1 as usize + 100)] {
        let storage = storage.copy();
        let name = file_name(segment);
        let mut bytes = vec![0; left.unwrap_or(0)];
        storage.open(&name, false).unwrap().read_at(&mut bytes, 0).unwrap();
        storage.remove(&name).unwrap();
        if left.is_some() {
            storage.create(&name, bytes.len() as u64).unwrap().write_at(&[(Kind::Data, &bytes)], 0).unwrap();
        }
        let refused = repaired(&storage, false);
        assert!(!refused.after.opened && refused.changed_blocks == 0, "{refused:?}");
        let report = repaired(&storage, true);
        assert!(report.after.opened && !report.given_up.is_empty(), "{report:?}");
        let pool = Pool::open(storage.clone(), &quiet()).unwrap();
        if left.is_none() {
            // What lived there from before is damaged, and named.
            let scrub = pool.scrub(&mut |_| true).unwrap();
            assert!(
                scrub.damaged > 0 && scrub.findings.iter().any(|finding| finding.path.is_some()),
                "{scrub:?}"
            );
            continue;
        }
        let expected = if left > Some(2 * BLOCK) { 20 } else { 0 };
        if expected > 0 {
            assert_eq!(writes_there(&pool, file), expected);
        }
    }
}

/// What the state at the cut needs may lie in a segment that found another use since. Then that is gone, and
/// nothing else: blocks are looked for where segments say of themselves that they are.
#[test]
fn what_found_another_use_since_is_done_without() {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = Pool::open(storage.clone(), &quiet()).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    let fill = |byte: u8| {
        for part in 0..16_u64 {
            db.write(file, part << 18, &vec![byte; 1 << 18]).unwrap();
        }
        db.sync().unwrap();
    };
    fill(1);
    pool.checkpoint().unwrap();
    let start = pool.engine().state().tail.position();
    fill(2);
    // That it was durable is said by what comes after it.
    fill(3);
    let killed = storage.copy();
    damage(&killed, start.segment, pool.engine().geometry.offset(start.slot));
    // As if it had been taken for something else since.
    let reused = SegmentId(start.segment.0 - 1);
    let header = killed.open(&file_name(reused), true).unwrap();
    let mut block = [0; BLOCK];
    header.read_at(&mut block, 0).unwrap();
    let mut taken = SegmentHeader::decode(&block).unwrap();
    taken.incarnation += 1000;
    taken.encode(&mut block);
    header.write_at(&[(Kind::Frame, &block)], 0).unwrap();

    assert!(Pool::open(killed.copy(), &quiet()).is_err());
    let report = repaired(&killed, true);
    assert!(report.after.opened && !report.given_up.is_empty(), "{report:?}");
    let pool = Pool::open(killed, &quiet()).unwrap();
    let view = pool.view("db").unwrap();
    let mut lost = 0;
    for offset in (0..4_u64 << 20).step_by(BLOCK) {
        match view.read(file, offset, &mut block) {
            Ok(_) => assert!(block.iter().all(|byte| *byte == 1), "at {offset}: {}", block[0]),
            Err(Error::Damaged { .. }) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost > 0 && lost < 600, "{lost}");
}

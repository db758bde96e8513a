//! Pools whose checksums all fit and whose books are wrong; and pools that lost a part that follows from the
//! rest.

use super::*;
use crate::format::ledger::{Blob, SectionTag};
use crate::format::segment::file_name;
use crate::format::superblock::{LedgerPointer, Superblock};
use crate::options::InitOptions;
use crate::state::State;
use crate::storage::Kind;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, BlockCount, InodeNumber, LogAddress, Run, Stream, VersionId};
use crate::{Creation, Dataset};
use std::collections::BTreeSet;

const BLOCK: usize = BLOCK_BYTES;

pub(super) fn open(storage: &Arc<MemoryStorage>) -> Pool {
    let options = OpenOptions { block_cache_bytes: 0, node_cache_bytes: 0, ..quiet() };
    Pool::open(storage.clone(), &options).unwrap()
}

/// A new pool with an open file.
pub(super) fn with_file() -> (Arc<MemoryStorage>, Pool, Dataset, InodeNumber) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    (storage, pool, db, file)
}

/// A pool with a file in three versions, and a second dataset that is a clone.
pub(super) fn made() -> (Arc<MemoryStorage>, InodeNumber) {
    let (storage, pool, db, file) = with_file();
    for round in 0..3_u8 {
        for block in (0..200).filter(|block| round == 0 || block % (u64::from(round) + 2) == 0) {
            db.write(file, block * BLOCK as u64, &[round + 1; BLOCK]).unwrap();
        }
        db.write(file, 900_000, b"short").unwrap();
        pool.snapshot(&[format!("db@s{round}")], false, &[]).unwrap();
        pool.checkpoint().unwrap();
    }
    pool.clone_snapshot("db@s1", "other", false).unwrap();
    db.write(file, 8192, &[9; 2 * BLOCK]).unwrap();
    drop(db);
    pool.close().unwrap();
    (storage, file)
}

fn bytes(storage: &MemoryStorage) -> Vec<(String, Vec<u8>)> {
    let mut files = storage.list().unwrap();
    files.sort();
    let read = |(name, length): (String, u64)| {
        let mut bytes = vec![0; length as usize];
        storage.open(&name, false).unwrap().read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    files.into_iter().map(read).collect()
}

fn content(pool: &Pool, file: InodeNumber) -> Vec<Vec<u8>> {
    let read = |name: &&str| {
        let mut bytes = vec![0; 1 << 20];
        let length = pool.view(name).unwrap().read(file, 0, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    };
    ["db", "db@s0", "db@s1", "db@s2", "other"].iter().map(read).collect()
}

fn checked(storage: &Arc<MemoryStorage>) -> CheckReport {
    check(storage.clone(), &CheckOptions { data: true }, &mut |_| {}).unwrap()
}

pub(super) fn repaired(storage: &Arc<MemoryStorage>, dry_run: bool) -> RepairReport {
    repair(storage.clone(), &RepairOptions { dry_run, data: true, ..RepairOptions::default() }, &mut |_| {})
        .unwrap()
}

#[test]
fn a_sound_pool_is_sound_and_stays_as_it_is() {
    let (storage, file) = made();
    let before = bytes(&storage);
    let report = checked(&storage);
    assert_eq!((report.count, report.opened, report.was_clean), (0, true, true), "{report:?}");
    assert!(report.versions == 5 && report.blocks > 200 && report.verified > 200 * BLOCK as u64);
    let repair = repaired(&storage, false);
    assert_eq!((repair.changed_blocks, repair.kept_aside), (0, None));
    assert!(bytes(&storage) == before, "looking changes nothing");
    // As a kill leaves it: what was written since the last checkpoint is in the log.
    let pool = open(&storage);
    let db = pool.dataset("db").unwrap();
    db.write(file, 0, &[7; 5 * BLOCK]).unwrap();
    db.sync().unwrap();
    let killed = storage.copy();
    let before = bytes(&killed);
    let report = checked(&killed);
    assert_eq!((report.count, report.opened, report.was_clean), (0, true, false), "{report:?}");
    assert_eq!(repaired(&killed, false).changed_blocks, 0);
    assert!(bytes(&killed) == before, "looking changes nothing");
}

/// A check keeps no process from opening the pool, and reports nothing of a pool that changes under it.
#[test]
fn a_program_that_starts_does_not_wait_for_a_check() {
    let (storage, file) = made();
    let options = CheckOptions { data: true };
    let mut started = None;
    let outcome = check(storage.clone(), &options, &mut |_| {
        let pool = started.get_or_insert_with(|| open(&storage));
        pool.dataset("db").unwrap().write(file, 0, &[9; BLOCK]).unwrap();
    });
    assert!(matches!(outcome, Err(Error::PoolInUse { .. })), "{outcome:?}");
    started.unwrap().close().unwrap();
    assert_eq!(checked(&storage).count, 0);
}

/// The head of `db`.
fn head(state: &State) -> VersionId {
    let id = state.catalogue.find("db").unwrap();
    state.head(id).unwrap()
}

fn one(stream: Stream, address: LogAddress) -> Run {
    Run { stream, start: address, length: BlockCount(1) }
}

/// Something done to the books of an open pool.
type Deed = fn(&mut State);

const DEEDS: [(&str, Deed); 6] = [
    ("a block that it reaches is owned by no version", |state| {
        let head = head(state);
        let address = state.history.version(head).unwrap().owned().of(Stream::Data).blocks().first().unwrap();
        let State { history, graveyard, .. } = state;
        history.dropped(head, one(Stream::Data, address), graveyard.sink(crate::pins::Readers::Any)).unwrap();
    }),
    ("a node that it reaches is owned by no version", |state| {
        let head = head(state);
        let address = state.trees[&head].root_address();
        let State { history, graveyard, .. } = state;
        history.dropped(head, one(Stream::Node, address), graveyard.sink(crate::pins::Readers::Any)).unwrap();
    }),
    ("it owns a block that it does not reach", |state| {
        let head = head(state);
        let low = state.edge(head).of(Stream::Data).0;
        let end = state.tail.position().address.0;
        let free = |address: &u64| {
            let mut versions = state.history.versions();
            !versions.any(|node| node.owned().of(Stream::Data).blocks().contains(LogAddress(*address)))
        };
        let address = (low..end).find(free).unwrap();
        state.history.born(head, one(Stream::Data, LogAddress(address))).unwrap();
    }),
    ("what its parent has is dead in it, and it reaches it", |state| {
        let head = head(state);
        let parent = state.parent(head).unwrap();
        let shared = state.history.version(parent).unwrap().owned().of(Stream::Data).blocks().clone();
        let dead = state.history.version(head).unwrap().dead().of(Stream::Data).blocks().clone();
        let address = shared.runs().map(|span| span.start).find(|address| !dead.contains(*address)).unwrap();
        let State { history, graveyard, .. } = state;
        history.dropped(head, one(Stream::Data, address), graveyard.sink(crate::pins::Readers::Any)).unwrap();
    }),
    ("a snapshot has the tree of another", |state| {
        let id = state.catalogue.find("db").unwrap();
        let [from, to] = ["s0", "s2"].map(|name| state.catalogue.find_snapshot(id, name).unwrap());
        let tree = state.trees[&from].clone();
        state.trees.insert(to, tree);
        state.changed_roots.insert(to);
    }),
    ("two heads have each other's trees", |state| {
        let heads = ["db", "other"].map(|name| state.catalogue.find(name).unwrap());
        let [one, other] = heads.map(|id| state.head(id).unwrap());
        let trees = [state.trees[&one].clone(), state.trees[&other].clone()];
        let [first, second] = trees;
        state.trees.insert(one, second);
        state.trees.insert(other, first);
        state.changed_roots.extend([one, other]);
    }),
];

#[test]
fn books_that_are_wrong_under_good_checksums_are_found() {
    for (what, deed) in DEEDS {
        let (storage, _) = made();
        let pool = open(&storage);
        deed(&mut pool.engine().state());
        pool.close().unwrap();
        // It opens: nothing that opening looks at is wrong.
        drop(open(&storage.copy()));
        let report = checked(&storage);
        assert!(report.opened && !report.is_sound(), "{what}: {report:?}");
        let sets: Vec<&Problem> =
            report.problems.iter().filter(|problem| problem.area == Area::Sets).collect();
        assert!(!sets.is_empty(), "{what}: {report:?}");
        assert!(sets.iter().any(|problem| !problem.versions.is_empty()), "{what}: {sets:?}");
    }
}

/// What the log says cannot have happened in the sets of the last checkpoint: opening the pool ends in an
/// error.
#[test]
fn a_log_that_contradicts_the_sets_is_damage() {
    let (storage, file) = made();
    let pool = open(&storage);
    // A checkpoint in which a block of the head has no owner, and a record after it that overwrites the
    // block.
    let (head, run) = {
        let mut state = pool.engine().state();
        let head = head(&state);
        let owned = state.history.version(head).unwrap().owned().of(Stream::Data).blocks().first();
        let (run, mut nowhere) = (one(Stream::Data, owned.unwrap()), crate::state::Graveyard::default());
        state.history.dropped(head, run, nowhere.sink(crate::pins::Readers::Any)).unwrap();
        (head, run)
    };
    pool.checkpoint().unwrap();
    pool.engine().state().history.born(head, run).unwrap();
    let db = pool.dataset("db").unwrap();
    db.write(file, 8192, &[7; 2 * BLOCK]).unwrap();
    db.sync().unwrap();
    let killed = storage.copy();
    let opened = Pool::open(killed.clone(), &quiet()).map(drop);
    assert!(
        matches!(&opened, Err(Error::Damaged { detail, .. }) if detail.contains("contradicts")),
        "{opened:?}"
    );
    assert!(!checked(&killed).opened);
    std::mem::forget(pool);
}

/// An assertion that is met on the way is a problem, and nothing is written for it.
#[test]
fn an_assertion_ends_neither_a_check_nor_a_repair_in_a_panic() {
    let (storage, _) = made();
    let before = bytes(&storage);
    let mut fail = |_: CheckProgress| panic!("as an assertion does");
    let report = check(storage.clone(), &CheckOptions::default(), &mut fail).unwrap();
    let found = report.problems.iter().find(|problem| problem.what.contains("contradict"));
    assert!(found.is_some_and(|problem| problem.area == Area::Sets) && !report.is_sound(), "{report:?}");
    let outcome = repair(storage.clone(), &RepairOptions::default(), &mut fail);
    assert!(matches!(outcome, Err(Error::Damaged { .. })), "{outcome:?}");
    assert!(bytes(&storage) == before);
}

/// Good checksums, and a block with two owners: such a pool does not open. The checkpoint before is sound,
/// and the log since.
#[test]
fn a_block_with_two_owners_is_damage_and_the_checkpoint_before_is_taken() {
    let (storage, file) = made();
    let pool = open(&storage);
    let before = content(&pool, file);
    {
        let mut state = pool.engine().state();
        let other = state.head(state.catalogue.find("other").unwrap()).unwrap();
        let owned = state.history.version(head(&state)).unwrap().owned().of(Stream::Data).blocks().first();
        state.history.born(other, one(Stream::Data, owned.unwrap())).unwrap();
    }
    pool.close().unwrap();
    let report = checked(&storage);
    assert!(!report.opened && report.problems[0].what.contains("another version owns"), "{report:?}");
    let report = repaired(&storage, false);
    assert!(report.after.opened && report.after.count == 0, "{report:?}");
    assert!(content(&open(&storage), file) == before);
}

/// Two blocks of the log that have exchanged their places in the map: both match the checksums of where they
/// are looked for.
#[test]
fn a_map_that_leads_to_another_block_is_found() {
    let (storage, _) = made();
    let pool = open(&storage);
    {
        let engine = pool.engine();
        let state = engine.state();
        let owned = state.history.version(head(&state)).unwrap().owned().of(Stream::Data).blocks().clone();
        let [first, last] = [owned.first().unwrap(), owned.last().unwrap()];
        let mut map = engine.blocks.map().write();
        let [one_place, other] = [first, last].map(|address| match map.lookup(Stream::Data, address) {
            crate::location::Lookup::At(at, slot, _) => (at, slot),
            other => panic!("{other:?}"),
        });
        let spare = (one_place.0, crate::units::Slot(engine.geometry.slots() - 1));
        map.remap(one(Stream::Data, first), spare.0, spare.1);
        map.remap(one(Stream::Data, last), one_place.0, one_place.1);
        map.remap(one(Stream::Data, first), other.0, other.1);
    }
    pool.close().unwrap();
    // Nothing notices, not even a scrub: every block is where a block should be, and whole.
    assert_eq!(open(&storage.copy()).scrub(&mut |_| true).unwrap().damaged, 0);
    let report = checked(&storage);
    let found: Vec<&Problem> =
        report.problems.iter().filter(|problem| problem.area == Area::Places).collect();
    assert!(!found.is_empty() && !report.is_sound(), "{report:?}");
    assert!(found[0].what.contains("the location map has"), "{found:?}");
}

#[test]
fn sets_are_made_again_from_the_trees() {
    // Where the trees themselves are exchanged no other record can correct them.
    for (what, deed) in &DEEDS[..4] {
        let (storage, file) = made();
        let expected = content(&open(&storage.copy()), file);
        let pool = open(&storage);
        deed(&mut pool.engine().state());
        pool.close().unwrap();
        let before = bytes(&storage);
        let dry = repaired(&storage, true);
        assert!(bytes(&storage) == before, "{what}: a dry run writes nothing");
        assert!(
            dry.steps.len() == 1 && dry.changed_blocks > 0 && dry.kept_aside.is_none(),
            "{what}: {dry:?}"
        );
        let report = repaired(&storage, false);
        assert_eq!((&report.steps, report.after.count), (&dry.steps, 0), "{what}: {report:?}");
        aside_has(&storage, report.kept_aside.as_deref().unwrap(), &before);
        assert_eq!(checked(&storage).count, 0, "{what}");
        let pool = open(&storage);
        pool.verify().unwrap();
        assert!(content(&pool, file) == expected, "{what}");
        // It can be lived with: everything can be overwritten and destroyed.
        let db = pool.dataset("db").unwrap();
        db.write(file, 0, &vec![8; 1 << 20]).unwrap();
        drop(db);
        pool.destroy(&crate::DestroyTarget::Snapshot("db@s2".to_owned())).unwrap();
        pool.checkpoint().unwrap();
        pool.verify().unwrap();
    }
}

/// The file that was kept aside has every block that is different now.
fn aside_has(storage: &MemoryStorage, name: &str, before: &[(String, Vec<u8>)]) {
    let now = bytes(storage);
    let (_, kept) = now.iter().find(|(other, _)| other == name).unwrap();
    let text_end = kept.iter().position(|byte| *byte == 0).unwrap();
    let text = std::str::from_utf8(&kept[..text_end]).unwrap();
    let blocks = kept[text_end.next_multiple_of(BLOCK)..].chunks(BLOCK);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), blocks.len());
    let mut restored: Vec<(String, Vec<u8>)> = now.clone();
    for (line, block) in lines.iter().zip(blocks) {
        let (file, offset) = line.split_once(' ').unwrap();
        let offset: usize = offset.parse().unwrap();
        let (_, bytes) = restored.iter_mut().find(|(other, _)| other == file).unwrap();
        let end = bytes.len().min(offset + BLOCK);
        bytes[offset..end].copy_from_slice(&block[..end - offset]);
    }
    restored.retain(|(name, _)| before.iter().any(|(other, _)| name == other));
    assert!(restored == before, "what was there can be put back");
}

fn newest_ledger(storage: &MemoryStorage) -> (String, u64) {
    let mut block = [0; BLOCK];
    storage.open(NAMES[0], false).unwrap().read_at(&mut block, 0).unwrap();
    let pointer = Superblock::decode(&block, "", "").unwrap().ledger;
    let name = crate::format::segment::file_name(pointer.segment);
    (name, u64::from(pointer.slot.0 + pointer.blocks) * BLOCK as u64 - 100)
}

fn corrupt(storage: &MemoryStorage, name: &str, offset: u64) {
    storage.open(name, true).unwrap().write_at(&[(Kind::Data, &[0x5a; 100])], offset).unwrap();
}

#[test]
fn a_lost_checkpoint_follows_from_the_one_before_and_the_log() {
    let (storage, file) = made();
    let expected = content(&open(&storage.copy()), file);
    let (name, offset) = newest_ledger(&storage);
    corrupt(&storage, &name, offset);
    let report = checked(&storage);
    assert!(!report.opened && !report.is_sound(), "{report:?}");
    assert!(report.problems[0].what.contains(&name), "{report:?}");
    let before = bytes(&storage);
    let dry = repaired(&storage, true);
    assert!(dry.steps.len() == 1 && bytes(&storage) == before, "{dry:?}");
    let report = repaired(&storage, false);
    assert_eq!((report.after.count, report.after.opened), (0, true), "{report:?}");
    aside_has(&storage, report.kept_aside.as_deref().unwrap(), &before);
    let pool = open(&storage);
    pool.verify().unwrap();
    assert!(content(&pool, file) == expected);
    pool.close().unwrap();
    assert_eq!(checked(&storage).count, 0);
}

#[test]
fn what_was_used_for_something_else_is_not_taken_for_what_it_was() {
    let (storage, file) = made();
    let pool = open(&storage);
    let db = pool.dataset("db").unwrap();
    // Whole segments die, and after the checkpoint that frees them they are filled with something else.
    for round in 0..40_u8 {
        db.write(file, 0, &vec![round; 1 << 20]).unwrap();
        if round % 8 == 7 {
            pool.checkpoint().unwrap();
        }
    }
    db.write(file, 0, &vec![99; 1 << 20]).unwrap();
    db.write(file, 0, &vec![100; 1 << 20]).unwrap();
    db.write(file, 0, &vec![101; 1 << 20]).unwrap();
    db.sync().unwrap();
    let copy = storage.copy();
    let expected = content(&pool, file);
    let (name, offset) = newest_ledger(&copy);
    corrupt(&copy, &name, offset);
    let before = bytes(&copy);
    let report = repaired(&copy, false);
    if report.steps.is_empty() {
        assert!(report.refused[0].contains("cannot be made again from the log"), "{report:?}");
        assert!(bytes(&copy) == before && !report.after.opened);
    } else {
        assert!(content(&open(&copy), file) == expected);
    }
}

#[test]
fn a_superblock_follows_from_its_twin() {
    for lost in NAMES {
        for left in [None, Some(0), Some(4), Some(BLOCK as u64)] {
            let (storage, file) = made();
            let expected = content(&open(&storage.copy()), file);
            match left {
                Some(length) if length == BLOCK as u64 => corrupt(&storage, lost, 90),
                left => {
                    storage.remove(lost).unwrap();
                    left.map(|length| storage.create(lost, length).unwrap());
                }
            }
            let report = checked(&storage);
            assert!(report.is_sound() && report.opened && report.count == 1, "{report:?}");
            assert!(report.problems[0].what.contains(lost), "{report:?}");
            let report = repaired(&storage, false);
            assert_eq!((report.steps.len(), report.after.count), (1, 0), "{report:?}");
            assert!(content(&open(&storage), file) == expected);
        }
    }
}

/// However new it is. Which pool this is segments say.
#[test]
fn a_superblock_of_another_pool_is_not_believed() {
    let other = Arc::new(MemoryStorage::default());
    Pool::init(other.clone(), &InitOptions::small()).unwrap();
    (0..40).for_each(|_| drop(open(&other)));
    let mut foreign = vec![0; BLOCK];
    other.open(NAMES[0], false).unwrap().read_at(&mut foreign, 0).unwrap();
    for name in NAMES {
        let (storage, file) = made();
        let expected = content(&open(&storage.copy()), file);
        let newer = engine::find_superblock(&*other).unwrap().generation;
        assert!(newer > engine::find_superblock(&*storage).unwrap().generation);
        storage.open(name, true).unwrap().write_at(&[(Kind::Frame, &foreign)], 0).unwrap();
        let report = checked(&storage);
        assert!(report.is_sound() && report.count == 1, "{report:?}");
        let said = &report.problems[0].what;
        assert!(said.contains(name) && said.contains("of another pool"), "{said}");
        let opened = open(&storage.copy());
        assert!(content(&opened, file) == expected);
        let incidents = opened.incidents();
        assert!(incidents.iter().any(|one| one.what.contains("of another pool")), "{incidents:?}");
        let report = repaired(&storage, false);
        assert_eq!((report.steps.len(), report.after.count), (1, 0), "{report:?}");
        assert!(content(&open(&storage), file) == expected);
    }
    // Without segments nothing says which pool this is.
    let (storage, _) = made();
    storage.open(NAMES[1], true).unwrap().write_at(&[(Kind::Frame, &foreign)], 0).unwrap();
    for (name, _) in storage.list().unwrap() {
        if name.starts_with("segment") {
            storage.remove(&name).unwrap();
        }
    }
    let error = Pool::open(storage, &quiet()).err().unwrap().to_string();
    assert!(error.contains("different pools"), "{error}");
}

#[test]
fn what_is_gone_is_named() {
    let (storage, file) = made();
    let pool = open(&storage);
    let engine = pool.engine();
    let root = {
        let state = engine.state();
        let id = state.catalogue.find("db").unwrap();
        let version = state.catalogue.find_snapshot(id, "s1").unwrap();
        state.trees[&version].root_address()
    };
    let (segment, slot, _) = engine.blocks.locate(Stream::Node, root).unwrap();
    pool.close().unwrap();
    corrupt(&storage, &crate::format::segment::file_name(segment), u64::from(slot.0) * BLOCK as u64 + 50);
    let report = checked(&storage);
    let seen: Vec<&String> = report.problems.iter().flat_map(|problem| &problem.versions).collect();
    assert!(seen.iter().any(|name| *name == "db@s1"), "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.what.contains("everything in it")), "{report:?}");
    // Once, with its place on disk, however many versions need it.
    let of_trees: Vec<&Problem> =
        report.problems.iter().filter(|problem| problem.area == Area::Trees).collect();
    assert_eq!(of_trees.len(), 1, "{report:?}");
    assert!(of_trees[0].what.contains(&file_name(segment)), "{of_trees:?}");
    assert_eq!(of_trees[0].versions, ["db@s1", "other"]);
    // Nothing follows from it, so nothing is written.
    let before = bytes(&storage);
    let report = repaired(&storage, false);
    assert!(
        bytes(&storage) == before && report.kept_aside.is_none() && !report.after.is_sound(),
        "{report:?}"
    );
    assert!(open(&storage).view("db@s0").unwrap().read(file, 0, &mut [0; 10]).is_ok());
}

#[test]
fn a_pool_in_use_or_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let none = check_directory(folder.path(), &CheckOptions::default(), &mut |_| {});
    assert!(matches!(none, Err(Error::NotAPool { .. })), "{none:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    Pool::init_directory(folder.path(), &InitOptions::small()).unwrap();
    let pool = Pool::open_directory(folder.path(), &quiet()).unwrap();
    let used = check_directory(folder.path(), &CheckOptions::default(), &mut |_| {});
    assert!(matches!(used, Err(Error::PoolInUse { .. })), "{used:?}");
    pool.close().unwrap();
    assert_eq!(check_directory(folder.path(), &CheckOptions::default(), &mut |_| {}).unwrap().count, 0);
}

/// The blobs that lead to the last checkpoint, the newest first.
pub(super) fn line(storage: &MemoryStorage) -> Vec<(LedgerPointer, Blob)> {
    let superblock = engine::find_superblock(storage).unwrap();
    let mut next = Some(superblock.ledger);
    let mut line = Vec::new();
    while let Some(pointer) = next {
        let mut bytes = vec![0; pointer.blocks as usize * BLOCK];
        let file = storage.open(&file_name(pointer.segment), false).unwrap();
        file.read_at(&mut bytes, u64::from(pointer.slot.0) * BLOCK as u64).unwrap();
        let blob = Blob::decode(&bytes, superblock.pool, "x").unwrap();
        next = blob.base;
        line.push((pointer, blob));
    }
    line
}

/// Damages one byte of a blob.
pub(super) fn corrupt_blob(storage: &MemoryStorage, pointer: &LedgerPointer, at: usize) {
    let file = storage.open(&file_name(pointer.segment), true).unwrap();
    let offset = u64::from(pointer.slot.0) * BLOCK as u64 + at as u64;
    let mut byte = [0];
    file.read_at(&mut byte, offset).unwrap();
    byte[0] ^= 0x11;
    file.write_at(&[(Kind::Data, &byte)], offset).unwrap();
}

/// A byte within each section of a blob.
pub(super) fn within_sections(blob: &Blob) -> Vec<(SectionTag, usize)> {
    let mut at = BLOCK;
    let mut within = Vec::new();
    for (tag, section) in &blob.sections {
        at += 16;
        if !section.is_empty() {
            within.push((*tag, at + section.len() / 2));
        }
        at += section.len();
    }
    within
}

/// The picture of everything that all later checkpoints build on is damaged.
#[test]
fn where_blocks_lie_does_not_need_a_ledger() {
    let (storage, file) = made();
    let expected = content(&open(&storage.copy()), file);
    let line = line(&storage);
    assert!(line.len() > 3);
    let mut sorts = BTreeSet::new();
    for (pointer, blob) in [&line[0], line.last().unwrap()] {
        for (tag, at) in within_sections(blob) {
            let corrupt = storage.copy();
            corrupt_blob(&corrupt, pointer, at);
            // Without the way back.
            if *pointer == line[0].0 {
                corrupt_blob(&corrupt, &line[1].0, 5);
                line[2..].iter().for_each(|(pointer, _)| corrupt_blob(&corrupt, pointer, 4000));
            }
            let before = bytes(&corrupt);
            let report = repaired(&corrupt, false);
            let said = format!("{tag:?} of {pointer:?}: {report:?}");
            if *pointer == line[0].0 {
                // Their headers say what they build on, and that they have it; but not those that are damaged
                // themselves.
                assert!(!report.after.opened && bytes(&corrupt) == before, "{said}");
                continue;
            }
            sorts.insert(tag as u32);
            if matches!(tag, SectionTag::Location | SectionTag::Placed | SectionTag::Uses) {
                assert_eq!((report.after.count, report.refused.len()), (0, 0), "{said}");
                assert!(report.steps[0].contains("headers of segments"), "{said}");
                aside_has(&corrupt, report.kept_aside.as_deref().unwrap(), &before);
                let pool = open(&corrupt);
                pool.verify().unwrap();
                assert!(content(&pool, file) == expected);
                let db = pool.dataset("db").unwrap();
                db.write(file, 0, &vec![8; 1 << 20]).unwrap();
                drop(db);
                pool.close().unwrap();
                assert_eq!(checked(&corrupt).count, 0);
                continue;
            }
            let gone = match tag {
                SectionTag::Position => None,
                SectionTag::Catalogue => Some("names and properties"),
                SectionTag::History => Some("which version owns"),
                _ => Some("where the trees"),
            };
            // Only the newest says where the log goes on; that of others does not matter, but is not worth
            // distinguishing.
            assert!(gone.is_none() || !report.after.opened && bytes(&corrupt) == before, "{said}");
            assert!(gone.is_none_or(|gone| report.refused.iter().any(|why| why.contains(gone))), "{said}");
        }
    }
    assert!(sorts.len() >= 4, "{sorts:?}");
}

#[test]
fn a_checkpoint_of_before_is_gone_back_to_as_long_as_all_of_it_is_there() {
    let (storage, file) = made();
    let expected = content(&open(&storage.copy()), file);
    let line = line(&storage);
    for count in 1..line.len() {
        let corrupt = storage.copy();
        line[..count].iter().for_each(|(pointer, _)| corrupt_blob(&corrupt, pointer, BLOCK + 20));
        let before = bytes(&corrupt);
        let report = repaired(&corrupt, false);
        if report.steps.is_empty() {
            // What it needs was used again, or its log.
            assert!(!report.after.opened && bytes(&corrupt) == before && count > 2, "{report:?}");
            continue;
        }
        assert_eq!(report.after.count, 0, "{count}: {report:?}");
        let pool = open(&corrupt);
        pool.verify().unwrap();
        assert!(content(&pool, file) == expected, "{count}");
        pool.close().unwrap();
        assert_eq!(checked(&corrupt).count, 0);
    }
}

/// A segment with data that is full of zeros, with or without its header, is as lost as anything: its last
/// stretch of log was found sound.
#[test]
fn a_data_segment_full_of_zeros_is_noticed_without_reading_data() {
    let (storage, _) = made();
    let look = |storage: &Arc<MemoryStorage>, data: bool| {
        check(storage.clone(), &CheckOptions { data }, &mut |_| {}).unwrap()
    };
    assert_eq!(look(&storage, false).count, 0);
    let mut lost = 0;
    for (name, bytes) in bytes(&storage) {
        for first in [0, BLOCK] {
            if !name.starts_with("segment.") || !matches!(bytes[12], 1 | 2) {
                continue;
            }
            let corrupt = storage.copy();
            let zeros = vec![0; bytes.len() - first];
            corrupt.open(&name, true).unwrap().write_at(&[(Kind::Data, &zeros)], first as u64).unwrap();
            let is_lost = !look(&corrupt, true).is_sound();
            lost += usize::from(is_lost);
            let report = look(&corrupt, false);
            assert_eq!(!report.is_sound(), is_lost, "{name} from {first} on: {report:?}");
        }
    }
    assert!(lost >= 4, "{lost}");
}

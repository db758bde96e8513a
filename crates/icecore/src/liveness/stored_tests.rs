//! Stored histories: what a checkpoint writes, and what is refused when read back.

use super::model_tests::{Shelf, assert_same, cases};
use super::part::{STRETCHES_MAX, encode_part};
use super::rule_tests::{data, delete_into, marks};
use super::set::SetChanges;
use super::stored::{VersionChange, VersionRecord};
use super::{
    BlockSet, DecodeLimits, FreedSink, History, HistoryChanges, Part, PartRow, PartSource, SetChunk,
    SetLimits, StoredHistory,
};
use crate::format::superblock::LedgerPointer;
use crate::format::varint::put_varint;
use crate::units::{BLOCK_BYTES, LOG_ADDRESS_LIMIT, LogAddress, PoolId, SegmentId, Slot, VersionId};
use proptest::prelude::*;
use std::sync::Arc;

fn load(changes: &[HistoryChanges]) -> crate::Result<History> {
    let mut stored = StoredHistory::new();
    for changes in changes {
        let bytes = changes.encode();
        stored.apply_changes(HistoryChanges::decode(&bytes, &mut limits())?)?;
    }
    stored.verify()
}

fn limits() -> DecodeLimits {
    DecodeLimits::new(marks(LOG_ADDRESS_LIMIT))
}

/// Two snapshots above a head, the blocks of each in scattered runs, and a clone of the first.
fn sample() -> History {
    let mut history = History::new();
    let head = history.new_head(None).unwrap();
    let mut freed = FreedSink::new();
    for round in 0..2u64 {
        for index in 0..2_000 {
            history.born(head, data(round * 1_000_000 + index * 300, 1 + index % 5)).unwrap();
        }
        let snapshot = history.seal(head, marks((round + 1) * 1_000_000)).unwrap();
        if round == 0 {
            history.new_head(Some(snapshot)).unwrap();
        }
        for index in 0..500 {
            history.dropped(head, data(round * 1_000_000 + index * 1_200, 1), &mut freed).unwrap();
        }
    }
    history
}

#[test]
fn snapshots_and_deletions_are_stored_without_storing_their_sets_again() {
    let mut history = sample();
    let first = history.take_changes();
    let full_bytes = first.encode().len();
    let head = VersionId(1);
    let snapshot = history.seal(head, marks(2_000_000)).unwrap();
    let sealed = history.take_changes();
    assert!(sealed.encode().len() < 40, "{} bytes", sealed.encode().len());
    // Merges the second snapshot (2,000 runs, none of them freed) into the one just taken.
    let second = history.version(snapshot).unwrap().parent().unwrap();
    let mut freed = FreedSink::new();
    delete_into(&mut history, second, &mut freed).unwrap();
    let deleted = history.take_changes();
    let deleted_bytes = deleted.encode().len();
    // The 500 freed blocks are named twice, out of one dead and one owned set.
    assert!(deleted_bytes < full_bytes / 4, "{deleted_bytes} of {full_bytes} bytes");
    assert_same(&load(&[first, sealed, deleted]).unwrap(), &history);
}

/// Ten runs of a few bytes each that would take a GiB.
#[test]
fn a_chunk_that_claims_more_than_memory_should_hold_is_refused() {
    let mut part = Vec::new();
    for _ in 0..10 {
        put_varint(&mut part, 1);
        put_varint(&mut part, STRETCHES_MAX << 16);
    }
    let mut set = Vec::new();
    put_varint(&mut set, (part.len() as u64) << 1);
    set.extend(part);
    let bytes = SetChunk::encode(PoolId([7; 16]), &[set]);
    assert!(SetChunk::decode(&bytes, PoolId([7; 16])).is_err());
}

/// What is written is what is read, however much of a stream a set has.
#[test]
fn runs_that_go_on_for_long_are_cut_into_parts_that_are_read() {
    let runs = [
        (1, 5 * STRETCHES_MAX),
        (2, STRETCHES_MAX),
        (3, STRETCHES_MAX / 8),
        (4, 1),
        (5, 7),
        (6, STRETCHES_MAX / 2),
    ];
    let mut start = 0;
    let runs = runs.map(|(gap, stretches)| {
        let begin = start + gap;
        start = begin + (stretches << 13) + gap;
        LogAddress(begin)..LogAddress(start)
    });
    let all: BlockSet = runs.into_iter().collect();
    let version = VersionChange {
        record: VersionRecord { id: VersionId(1), ..VersionRecord::default() },
        owned: [
            SetChanges { added: all.clone(), removed: BlockSet::new() },
            SetChanges::default(),
            SetChanges::default(),
        ],
        ..VersionChange::default()
    };
    let changes =
        HistoryChanges { full: true, next: VersionId(1), removed: Vec::new(), versions: vec![version] };
    let mut stored = StoredHistory::new();
    stored.apply_changes(changes).unwrap();
    let (mut shelf, mut written) = (Shelf::default(), Vec::new());
    stored.consolidate(&SetLimits::of(0), &mut shelf, &mut written).unwrap();
    let rows: Vec<PartRow> = stored.rows().cloned().collect();
    assert!(rows.len() >= 6 && written.len() >= 2, "{rows:?}");
    let mut read = BlockSet::new();
    for row in &rows {
        read.unite(BlockSet::clone(&shelf.read(row).unwrap()));
    }
    assert!(read == all && rows.iter().map(|row| row.count).sum::<u64>() == all.len().0);
}

/// As `docs/format/sets.md` draws them.
#[test]
fn chunks_and_rows_are_these_bytes() {
    let of = |spans: &[(u64, u64)]| -> BlockSet {
        spans.iter().map(|(start, length)| LogAddress(*start)..LogAddress(start + length)).collect()
    };
    let parts = [of(&[(300, 2), (310, 1)]), of(&[(5, 1)])].map(|set| encode_part(&set));
    let bytes = SetChunk::encode(PoolId([7; 16]), &parts);
    let mut expected = b"ICESETS\n".to_vec();
    expected.extend([1, 0, 0, 0, 2, 0, 0, 0]);
    expected.extend([7; 16]);
    expected.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([10, 0xac, 2, 1, 8, 0, 4, 5, 0]);
    assert_eq!(bytes[..expected.len()], expected);
    assert!(bytes.len() == BLOCK_BYTES && bytes[expected.len()..].iter().all(|byte| *byte == 0));
    let place = LedgerPointer { segment: SegmentId(8), slot: Slot(3), blocks: 1, crc: 0x0403_0201 };
    let row = PartRow { span: LogAddress(300)..LogAddress(311), count: 3, place, part: 0, bytes: 6 };
    let chunk = Arc::new(SetChunk::decode(&bytes, PoolId([7; 16])).unwrap());
    assert!(*Part::of(&chunk, &row).unwrap() == of(&[(300, 2), (310, 1)]));
    assert!(SetChunk::decode(&bytes, PoolId([8; 16])).is_err());
    assert!(Part::of(&chunk, &PartRow { count: 4, ..row.clone() }).is_err());

    let record = VersionRecord { id: VersionId(1), ..VersionRecord::default() };
    let mut version = VersionChange { record, ..VersionChange::default() };
    version.rows[4] = vec![row];
    let changes =
        HistoryChanges { full: true, next: VersionId(1), removed: Vec::new(), versions: vec![version] };
    let row = [0xac, 2, 10, 3, 8, 3, 1, 0, 6, 1, 2, 3, 4];
    let expected: Vec<u8> = [&[2, 1, 1, 0, 1, 1, 0, 0, 0, 1 << 4, 1][..], &row, &[0, 0]].concat();
    assert_eq!(changes.encode(), expected);
    assert!(HistoryChanges::decode(&expected, &mut limits()).unwrap() == changes);
}

/// What is too long for one blob is stored in parts, and comes to the same.
#[test]
fn changes_in_parts_are_the_same_changes() {
    let mut history = sample();
    let first = history.take_changes();
    let head = VersionId(1);
    let (second, snapshot) = (VersionId(4), history.seal(head, marks(2_000_000)).unwrap());
    let mut freed = FreedSink::new();
    (0..300).for_each(|index| history.born(head, data(2_000_000 + index * 7, 3)).unwrap());
    (0..300).for_each(|index| history.dropped(head, data(300 + index * 1_200, 1), &mut freed).unwrap());
    delete_into(&mut history, second, &mut freed).unwrap();
    let changes = history.take_changes();
    for runs_max in [1, 50, 1_000, 1 << 20] {
        let parts = [first.clone().split(runs_max), changes.clone().split(runs_max)].concat();
        assert!(parts.len() * runs_max > 4_000, "{} parts of {runs_max}", parts.len());
        assert_same(&load(&parts).unwrap(), &history);
        // A picture of everything, taken from what was stored.
        let mut stored = StoredHistory::new();
        parts.into_iter().for_each(|part| stored.apply_changes(part).unwrap());
        let full = stored.into_full_changes();
        assert!(full == history.full_changes());
        let lengths = full.clone().split(runs_max).iter().map(|part| part.encode().len()).max();
        assert!(lengths.unwrap() < 60 + 12 * (runs_max + 8) + usize::from(runs_max == 1) * 100);
        assert_same(&load(&full.split(runs_max)).unwrap(), &history);
    }
    assert!(history.version(snapshot).is_ok());
}

#[test]
fn what_comes_and_goes_between_checkpoints_leaves_no_trace() {
    let mut history = sample();
    history.take_changes();
    let head = history.new_head(None).unwrap();
    history.born(head, data(5_000_000, 100)).unwrap();
    let mut freed = FreedSink::new();
    delete_into(&mut history, head, &mut freed).unwrap();
    history.born(VersionId(1), data(6_000_000, 10)).unwrap();
    history.dropped(VersionId(1), data(6_000_000, 10), &mut freed).unwrap();
    let changes = history.take_changes();
    assert_eq!(changes.next, head, "the number of the head is used up");
    assert!(changes.removed.is_empty());
    assert_eq!(changes.versions.len(), 1);
    assert!(changes.encode().len() < 20, "{} bytes", changes.encode().len());
}

/// A stored history with one thing changed.
fn with(change: impl FnOnce(&mut Vec<VersionChange>)) -> crate::Result<History> {
    let mut changes = sample().take_changes();
    assert_eq!(changes.versions.iter().map(|v| v.record.id.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    change(&mut changes.versions);
    load(&[changes])
}

fn refused(what: &str, change: impl FnOnce(&mut Vec<VersionChange>)) {
    let fault = with(change).expect_err(what).to_string();
    assert!(fault.contains(what), "{fault}");
}

#[test]
fn stored_histories_that_contradict_themselves_are_refused() {
    with(|_| {}).unwrap();
    let block = |address| BlockSet::of(LogAddress(address)..LogAddress(address + 1));
    // 1 is the head, 2 the first snapshot, 3 the clone of it, 4 the second snapshot.
    refused("parent that is gone", |all| all[0].record.parent = Some(VersionId(77)));
    refused("descends from a head", |all| all[0].record.parent = Some(VersionId(3)));
    refused("taken before its parent", |all| {
        all[3].record.mark = Some(marks(5));
        all[0].dead[0] = Default::default();
    });
    refused("outside its marks", |all| {
        all[3].owned[0].added.unite(block(2_000_000));
    });
    refused("outside its marks", |all| {
        all[3].owned[0].added.unite(block(999_999));
    });
    refused("outside its marks", |all| {
        all[3].dead[0].added.unite(block(1_000_000));
    });
    refused("does not reach", |all| {
        all[3].dead[0].added.unite(block(299));
    });
    refused("ring", |all| {
        all[1].record.parent = Some(VersionId(4));
        all[1].record.mark = Some(marks(2_000_000));
        all[1].owned[0] = Default::default();
        all[3].owned[0] = Default::default();
        all[3].dead[0] = Default::default();
    });
    refused("another version owns", |all| {
        all[2].owned[0].added.unite(block(1_000_000));
    });
    refused("out of order", |all| all.swap(0, 1));
    refused("out of order", |all| all[3].record.id = VersionId(99));
    refused("source that does not exist", |all| all[0].record.sources.push(VersionId(2)));
    refused("do not fit", |all| {
        all[0].owned[0].removed = block(3_000_000);
    });
}

#[test]
fn changes_that_do_not_follow_what_was_loaded_are_refused() {
    let mut history = sample();
    let base = history.take_changes();
    history.born(VersionId(1), data(7_000_000, 1)).unwrap();
    let next = history.take_changes();
    load(&[base.clone(), next.clone()]).unwrap();
    let refused = |chain: &[HistoryChanges], what: &str| {
        let fault = load(chain).expect_err(what).to_string();
        assert!(fault.contains(what), "{fault}");
    };
    refused(std::slice::from_ref(&next), "source that does not exist");
    refused(&[base.clone(), next.clone(), next.clone()], "do not fit");
    refused(&[base.clone(), base.clone()], "no version's source");
    let mut wrong = next.clone();
    wrong.full = true;
    refused(&[base.clone(), wrong], "full image");
    let mut wrong = next.clone();
    wrong.removed.push(VersionId(55));
    refused(&[base.clone(), wrong], "removes a version that does not exist");
    let mut wrong = next.clone();
    wrong.versions[0].record.sources.push(VersionId(1));
    refused(&[base.clone(), wrong], "source of two");
    let mut wrong = next;
    wrong.next = VersionId(1);
    refused(&[base, wrong], "went back");
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn any_bytes_load_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let bytes: Vec<u8> = std::iter::once(1).chain(bytes).collect();
        if let Ok(changes) = HistoryChanges::decode(&bytes, &mut limits()) {
            let mut stored = StoredHistory::new();
            let _ = stored.apply_changes(changes).and_then(|()| stored.verify());
        }
    }

    #[test]
    fn flipped_bytes_load_as_a_sound_history_or_are_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut history = History::new();
        let head = history.new_head(None).unwrap();
        history.born(head, data(0, 50)).unwrap();
        let snapshot = history.seal(head, marks(60)).unwrap();
        history.born(head, data(60, 9)).unwrap();
        history.new_head(Some(snapshot)).unwrap();
        let mut freed = FreedSink::new();
        history.dropped(head, data(40, 5), &mut freed).unwrap();
        let mut bytes = history.full_changes().encode();
        for (place, value) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut limits = DecodeLimits { chunks: 1 << 12, ..limits() };
        if let Ok(changes) = HistoryChanges::decode(&bytes, &mut limits) {
            let mut stored = StoredHistory::new();
            if let Ok(history) = stored.apply_changes(changes).and_then(|()| stored.verify()) {
                history.check().unwrap();
            }
        }
    }
}

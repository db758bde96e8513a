//! Bytes of a ledger's sections that may not change. See `format::layout_tests`.

use super::checkpoint::{Placed, PlacedSection, PositionSection, RootsSection};
use crate::catalogue::{Catalogue, SnapshotRow};
use crate::segments::Cursor;
use crate::units::{
    BlockCount, DatasetId, LogAddress, Marks, RecordSequence, Run, SegmentId, Slot, Stream, Timestamp,
    VersionId,
};
use std::collections::BTreeMap;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn postcard<T: serde::Serialize>(value: &T) -> String {
    hex(&postcard::to_stdvec(value).unwrap())
}

#[test]
fn position() {
    let position = PositionSection {
        segment: SegmentId(1),
        incarnation: 2,
        slot: Slot(3),
        address: LogAddress(300),
        sequence: RecordSequence(5),
        previous: *b"ABCDEFGHIJKLMNOP",
        marks: Marks([LogAddress(1), LogAddress(6), LogAddress(7)]),
        tail_mapped: Run { stream: Stream::Data, start: LogAddress(298), length: BlockCount(510) },
        run_cursor: Some(Cursor { segment: SegmentId(8), incarnation: 9, slot: Slot(10) }),
        node_cursor: None,
        clock: 11,
    };
    let expected = "010203ac02054142434445464748494a4b4c4d4e4f5001060700aa02fe030108090a000b";
    assert_eq!(postcard(&position), expected);
}

#[test]
fn placed_and_roots() {
    let run = Run { stream: Stream::Node, start: LogAddress(4), length: BlockCount(5) };
    let placed = PlacedSection {
        retired: vec![SegmentId(1), SegmentId(2)],
        placed: vec![Placed { run, segment: SegmentId(6), slot: Slot(7) }],
    };
    assert_eq!(
        postcard(&placed),
        "02010201020405\
                                   0607"
    );
    let roots = RootsSection { roots: vec![(VersionId(1), Some(LogAddress(2))), (VersionId(3), None)] };
    assert_eq!(postcard(&roots), "020101020300");
}

#[test]
fn catalogue() {
    let mut catalogue = Catalogue::default();
    let id = catalogue.add_dataset("d", VersionId(1), Timestamp(1));
    catalogue.edit_dataset(id, |row| drop(row.properties.insert("k".to_owned(), "v".to_owned())));
    let row = SnapshotRow {
        dataset: id,
        name: "s".to_owned(),
        created: Timestamp(2),
        properties: BTreeMap::new(),
        holds: BTreeMap::from([("t".to_owned(), Timestamp(3))]),
        hidden: false,
    };
    catalogue.add_snapshot(VersionId(2), row);
    assert_eq!(id, DatasetId(0));
    let expected = "010100010164010201016b0176000102010001730400010174060\
                    0";
    assert_eq!(hex(&catalogue.take_changes().encode()), expected);
}

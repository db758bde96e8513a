//! Bytes that may not change: fixed values of every structure, against what they were when the format was
//! set. Should one of these fail after the first release, the change needs a new version of the format, not a
//! new expectation.

use super::copies::{CopyMode, CopySettings, Reason};
use super::drawn::Drawn;
use super::ledger::{Blob, SectionTag};
use super::record::RecordHeader;
use super::segment::{Geometry, SegmentHeader, SegmentKind, TableOwner, encode_table};
use super::superblock::{FEATURE_COPIES, Former, LedgerPointer, Life, Superblock};
use super::{crc32c, get_u32};
use crate::namespace::{AttributeChange, InodeKind, NewInode, RenameHow, XattrHow};
use crate::operation::{
    BlockPatch, NamespaceOperation, Operation, Part, Patch, Scatter, Stretch, Target, Write,
};
use crate::units::{
    BLOCK_BYTES, DatasetId, FileBlock, InodeNumber, LogAddress, Marks, PoolId, RecordSequence, RecoveryEpoch,
    SegmentId, Slot, Timestamp, VersionId,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a block holds that is not zero, each stretch with where it begins. The checksum at the end is not
/// shown.
fn sparse(block: &[u8]) -> Vec<String> {
    let end = block.len() - 4;
    assert_eq!(get_u32(block, end), crc32c(&block[..end]), "the checksum covers everything before it");
    let mut parts = Vec::new();
    let mut at = 0;
    while at < end {
        let length =
            block[at..end].chunks(8).take_while(|word| word.iter().any(|byte| *byte != 0)).count() * 8;
        if length > 0 {
            parts.push(format!("{at}: {}", hex(&block[at..(at + length).min(end)])));
        }
        at += length.max(8);
    }
    parts
}

fn pool() -> PoolId {
    PoolId(*b"0123456789abcdef")
}

#[test]
fn superblock() {
    let superblock = Superblock {
        pool: pool(),
        generation: 0x0102,
        features_to_write: FEATURE_COPIES,
        segment_bytes: 2 << 20,
        size_limit: 0x0300_0000,
        clean: true,
        ledger: LedgerPointer { segment: SegmentId(4), slot: Slot(5), blocks: 6, crc: 0x0708_090a },
        taken: 0x1112,
        former: Some(Former {
            ledger: LedgerPointer { segment: SegmentId(0x13), slot: Slot(0x14), blocks: 0x15, crc: 0x16 },
            taken: 0x17,
        }),
        drawn: Drawn { floor: Marks([0, 0x1b, 0x1c].map(LogAddress)) },
        created: 0x0b0c,
        copies: CopySettings {
            mode: CopyMode::All,
            behind: true,
            ahead: true,
            since: Some(Timestamp(0x18)),
            why: Reason::of("it is full".to_owned()),
            folder: Some("/copies".to_owned()),
        },
        lives: vec![
            Life { epoch: RecoveryEpoch(0x0d), first: RecordSequence(0x0e) },
            Life { epoch: RecoveryEpoch(0x0f), first: RecordSequence(0x10) },
        ],
    };
    let expected = [
        "0: 494345434f52450a01000000000000001f000000000000000100000000000000",
        "40: 303132333435363738396162636465660201000000000000000020000000000000000003000000000102010100000000\
         0400000005000000060000000a0908070c0b00000000000002000000\
         000000001211000000000000130000001400000015000000160000001700000000000000\
         180000000000000007000a0000000000",
        "184: 1b000000000000001c00000000000000",
        "256: 0d000000000000000e000000000000000f000000000000001000000000000000",
        "1280: 2f636f7069657300",
        "2304: 69742069732066756c6c000000000000",
    ];
    assert_eq!(sparse(&superblock.encode()), expected);
}

#[test]
fn segment_header_and_table() {
    let header = SegmentHeader {
        pool: pool(),
        kind: SegmentKind::Run,
        segment: SegmentId(0x0102),
        incarnation: 0x0003_0000_0004,
        first_address: LogAddress(5),
        first_sequence: RecordSequence(6),
        epoch: RecoveryEpoch(7),
    };
    let mut block = vec![0; BLOCK_BYTES];
    header.encode(&mut block);
    let expected = ["0: 494345534547\
                     4d0a010000000200000030313233343536373839616263646566020100000000000004000000030000\
                     00050000000000000006000000000000000700000000000000"];
    assert_eq!(sparse(&block), expected);

    let geometry = Geometry { bytes: 2 << 20 };
    let mut sums = vec![0; 512];
    (sums[2], sums[511]) = (0x0102_0304, 0x0506_0708);
    let owner = TableOwner { pool: pool(), segment: SegmentId(0x0102), incarnation: 9 };
    let expected = [
        "8: 0403020100000000",
        "2040: 0000000008070605",
        "4048: 0000000049434553554d530a30313233343536373839616263646566090000000000000002010000",
    ];
    assert_eq!(sparse(&encode_table(geometry, owner, &sums)), expected);
}

#[test]
fn record_header() {
    let header = RecordHeader {
        pool: pool(),
        epoch: RecoveryEpoch(1),
        sequence: RecordSequence(2),
        previous: *b"ABCDEFGHIJKLMNOP",
        address: LogAddress(3),
        durable: RecordSequence(4),
        incarnation: 5,
        more: true,
        operations_in_blocks: false,
        run: true,
        operations_length: 3,
        operations: 6,
    };
    let mut block = vec![0; BLOCK_BYTES];
    header.encode(&mut block, &[0x0708_090a, 0x0b0c_0d0e], b"xyz");
    let expected = [
        "0: 494345524543440a303132333435363738396162636465660100000000000000020000000000000041424344\
                     45464748494a4b4c4d4e4f5003000000000000000400000000000000050000000000000002002500030000000600\
                     0000000000000a0908070e0d0c0b78797a0000000000",
    ];
    assert_eq!(sparse(&block), expected);
    assert_eq!(hex(&super::record::hash(&block)), "8a9972f9eebbeaef558f4cde7965c354");
}

#[test]
fn ledger_blob() {
    let blob = Blob {
        base: Some(LedgerPointer { segment: SegmentId(1), slot: Slot(2), blocks: 3, crc: 4 }),
        checkpoint: 5,
        taken: 0x0607,
        sections: vec![(SectionTag::Placed, b"abc".to_vec()), (SectionTag::Position, Vec::new())],
    };
    let bytes = blob.encode(pool());
    let expected = [
        "0: 4943454c4544470a01000000010000003031323334353637383961626364656605000000000000002300000000\
                     0000000200000000000000\
                     010000000200000003000000040000000706000000000000",
        "96: 06000000b73f4b3603000000000000000100000000000000",
    ];
    assert_eq!(sparse(&bytes[..BLOCK_BYTES]), expected);
    assert_eq!(bytes.len(), 2 * BLOCK_BYTES);
    let expected = "06000000000000000300000000000000616263\
                    01000000000000000000000000000000";
    assert_eq!(hex(&bytes[BLOCK_BYTES..BLOCK_BYTES + 35]), expected);
}

#[test]
fn operations() {
    let (dataset, inode, time) = (DatasetId(1), InodeNumber(300), Timestamp(-2));
    let write = Write { dataset, inode, block: FileBlock(4), blocks: 5, end: 6, time };
    let text = |text: &str| text.to_owned();
    let new = NewInode {
        kind: InodeKind::Directory,
        mode: 0o755,
        uid: 1,
        gid: 2,
        rdev: 3,
        generation: 4,
        time: Timestamp(5),
    };
    let namespace = |operation| Operation::Namespace { dataset, operation };
    let (directory, name) = (InodeNumber(1), b"n".to_vec());
    let parts =
        vec![Part { at: 3, block: FileBlock(1), blocks: 1 }, Part { at: 2, block: FileBlock(1), blocks: 9 }];
    let scatter = Scatter { dataset, inode, blocks: 5, end: 6, time, parts };
    let cases = [
        (Operation::Mark, "00"),
        (Operation::Switch { segment: SegmentId(7), incarnation: 128 }, "01078001"),
        (Operation::Write(write), "0201ac0204050603"),
        (
            Operation::WriteInline { dataset, inode, offset: 8, bytes: b"ab".to_vec(), time },
            "0301ac020802616203",
        ),
        (Operation::Reserved, "04"),
        (Operation::Truncate { dataset, inode, size: 8, time }, "0501ac020803"),
        (Operation::PunchHole { dataset, inode, offset: 8, length: 9, time }, "0601ac02080903"),
        (
            namespace(NamespaceOperation::Create { directory, name: name.clone(), new }),
            "070100\
                                                                                       01016e01ed03010203040a",
        ),
        (
            namespace(NamespaceOperation::CreateSymlink {
                directory,
                name: name.clone(),
                target: b"t".to_vec(),
                new: NewInode { kind: InodeKind::Symlink, ..new },
            }),
            "07010101016e017402ed03010203040a",
        ),
        (
            namespace(NamespaceOperation::Link { inode, directory, name: name.clone(), time }),
            "070102ac0201016e03",
        ),
        (namespace(NamespaceOperation::Unlink { directory, name: name.clone(), time }), "07010301016e03"),
        (
            namespace(NamespaceOperation::RemoveDirectory { directory, name: name.clone(), time }),
            "07010401016e03",
        ),
        (
            namespace(NamespaceOperation::Rename {
                from: directory,
                from_name: name.clone(),
                to: inode,
                to_name: b"m".to_vec(),
                how: RenameHow::Exchange,
                time,
            }),
            "07010501016eac02016d0203",
        ),
        (
            namespace(NamespaceOperation::SetAttributes {
                inode,
                change: AttributeChange {
                    mode: Some(0o600),
                    access: Some(Timestamp(1)),
                    ..AttributeChange::default()
                },
            }),
            "070106ac0201800300000102\
             0000",
        ),
        (
            namespace(NamespaceOperation::SetXattr {
                inode,
                name: name.clone(),
                value: b"v".to_vec(),
                how: XattrHow::Replace,
                time,
            }),
            "070107ac02016e01760203",
        ),
        (namespace(NamespaceOperation::RemoveXattr { inode, name, time }), "070108ac02016e03"),
        (Operation::ReleaseOrphan { dataset, inode, items_max: 8 }, "0801ac0208"),
        (
            Operation::CreateDataset { name: text("d"), time, properties: vec![(text("k"), text("v"))] },
            "090164030101\
             6b0176",
        ),
        (
            Operation::Snapshot { snapshots: vec![(dataset, text("s"))], time, properties: Vec::new() },
            "0a010101730300",
        ),
        (Operation::DestroySnapshots { versions: vec![VersionId(2), VersionId(3)] }, "0b020203"),
        (Operation::DestroyDatasets { datasets: vec![dataset] }, "0c0101"),
        (Operation::Clone { origin: VersionId(2), name: text("c"), time }, "0d02016303"),
        (Operation::Rollback { dataset, snapshot: VersionId(2), saved: text("r"), time }, "0e0102017203"),
        (Operation::Promote { dataset }, "0f01"),
        (Operation::RenameDatasets { names: vec![(dataset, text("e"))] }, "1001010165"),
        (Operation::RenameSnapshots { names: vec![(VersionId(2), text("f"))] }, "1101020166"),
        (Operation::Hold { version: VersionId(2), tag: text("h"), since: Some(time) }, "120201680103"),
        (
            Operation::SetProperty { target: Target::Snapshot(VersionId(2)), key: text("k"), value: None },
            "130102016b00",
        ),
        (Operation::WriteScattered(scatter.clone()), "1401ac0205060302030101020109"),
        (
            Operation::MapScattered {
                scatter,
                address: LogAddress(9),
                segment: SegmentId(10),
                slot: Slot(11),
            },
            "1501ac0205060302030101020109090a0b",
        ),
        (
            Operation::Patch(Patch {
                dataset,
                inode,
                end: 5,
                time,
                blocks: vec![BlockPatch {
                    block: FileBlock(6),
                    stretches: [Stretch { at: 8, bytes: b"a" }, Stretch { at: 300, bytes: b"bc" }]
                        .into_iter()
                        .collect(),
                }],
            }),
            "1601ac020503010602080161ac02026263",
        ),
    ];
    for (operation, expected) in cases {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        assert_eq!(hex(&bytes), expected, "{operation:?}");
        assert_eq!(Operation::decode(&bytes), Some((operation, &[][..])));
    }
}

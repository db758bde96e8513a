//! Parsers of what lies on disk. Any bytes are answered, with a value or an error; a value that is answered is the one that
//! its own encoding gives again. Checksums are made to fit, since no fuzzer finds them; as they came, the bytes are tried as well.

use icecore::admin::LastScrub;
use icecore::format::crc32c;
use icecore::format::ledger::Blob;
use icecore::format::record::RecordView;
use icecore::format::segment::{Geometry, SegmentHeader, TABLE_SUMS, TableOwner, decode_table, encode_table};
use icecore::format::superblock::{LedgerPointer, Superblock};
use icecore::inside::{
    Chunk, Item, ItemKind, Key, Node, Operation, Part, PartRow, SetChunk, decode_entry, decode_list,
    encode_list,
};
use icecore::limits::Limit;
use icecore::names::{
    DatasetName, SnapshotName, check_property_name, check_property_value, check_tag, parse_target,
};
use icecore::retention::{Policy, parse_duration};
use icecore::units::{
    BLOCK_BYTES, InodeNumber, LOG_ADDRESS_LIMIT, LogAddress, PoolId, SegmentId, Stream, Timestamp,
};
use icecore::{InodeItem, ScrubPosition, parse_incidents};
use std::sync::Arc;

/// What a parser is called, and what it is given bytes by.
pub type Target = (&'static str, fn(&[u8]));

/// All of these, by the names of their targets.
pub const ALL: [Target; 13] = [
    ("superblock", superblock),
    ("segment", segment),
    ("table", table),
    ("record", record),
    ("operations", operations),
    ("ledger", ledger),
    ("list", list),
    ("chunk", chunk),
    ("parts", parts),
    ("node", node),
    ("items", items),
    ("text", text),
    ("incidents", incidents),
];

/// The bytes as a block, with zeros behind them or cut off, and with a checksum at its end that fits.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut block = data.to_vec();
    block.resize(BLOCK_BYTES, 0);
    let end = BLOCK_BYTES - 4;
    let crc = crc32c(&block[..end]);
    block[end..].copy_from_slice(&crc.to_le_bytes());
    block
}

/// A superblock.
pub fn superblock(data: &[u8]) {
    let _ = Superblock::decode(data, "pool", "place");
    if let Ok(found) = Superblock::decode(&sealed(data), "pool", "place") {
        assert_eq!(Superblock::decode(&found.encode(), "pool", "place").expect("its own bytes"), found);
        let _ = found.check_writable("pool");
    }
}

/// The header of a segment, and the name of its file.
pub fn segment(data: &[u8]) {
    let _ = SegmentHeader::decode(data);
    if let Some(found) = SegmentHeader::decode(&sealed(data)) {
        let mut block = vec![0; BLOCK_BYTES];
        found.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Some(found));
    }
    if let Ok(name) = std::str::from_utf8(data)
        && let Some(found) = icecore::format::segment::from_file_name(name)
    {
        assert_eq!(icecore::format::segment::file_name(found), name);
    }
}

/// A table of checksums.
pub fn table(data: &[u8]) {
    let geometry = Geometry { bytes: 2 << 20 };
    let mut block = data.to_vec();
    block.resize(BLOCK_BYTES, 0);
    // The owner, from the fields that follow the sums and the magic.
    let field = |at: usize, length: usize| block[4 * TABLE_SUMS + 8 + at..][..length].to_vec();
    let owner = TableOwner {
        pool: PoolId(field(0, 16).try_into().expect("sixteen bytes")),
        incarnation: u64::from_le_bytes(field(16, 8).try_into().expect("eight bytes")),
        segment: SegmentId(u32::from_le_bytes(field(24, 4).try_into().expect("four bytes"))),
    };
    let _ = decode_table(geometry, owner, data);
    if let Some(sums) = decode_table(geometry, owner, &sealed(&block)) {
        let own = encode_table(geometry, owner, &sums);
        assert_eq!(decode_table(geometry, owner, &own), Some(sums));
    }
}

/// The header of a record, and the operations in it.
pub fn record(data: &[u8]) {
    let _ = RecordView::decode(data);
    let Some(view) = RecordView::decode(&sealed(data)) else { return };
    let mut block = vec![0; BLOCK_BYTES];
    view.header.encode(&mut block, &view.sums, &view.operations);
    let own = RecordView::decode(&block).expect("its own bytes");
    assert_eq!((own.header, &own.sums, &own.operations), (view.header, &view.sums, &view.operations));
    if view.header.run {
        let _ = decode_list(&view.operations, view.sums.len());
    } else {
        operations(&view.operations);
    }
}

/// The addresses of a run: two bytes say of how many blocks.
pub fn list(data: &[u8]) {
    let Some((count, bytes)) = data.split_first_chunk::<2>() else { return };
    let blocks = usize::from(u16::from_le_bytes(*count));
    let Some(runs) = decode_list(bytes, blocks) else { return };
    assert_eq!(runs.iter().map(|run| run.length.0).sum::<u64>(), blocks as u64);
    assert!(runs.iter().all(|run| run.start.0 > 0 && run.end().0 <= LOG_ADDRESS_LIMIT));
    assert_eq!(decode_list(&encode_list(&runs), blocks), Some(runs));
}

/// A chunk of the location map: its frame is made to fit.
pub fn chunk(data: &[u8]) {
    let pool = PoolId([7; 16]);
    let all = LogAddress(1)..LogAddress(LOG_ADDRESS_LIMIT);
    for stream in Stream::ALL {
        let _ = Chunk::decode(data, pool, stream, &all);
        // What a chunk of nothing begins with, and these entries.
        let mut bytes = Chunk::encode(pool, stream, &[]);
        bytes[32..40].copy_from_slice(&(data.len() as u64).to_le_bytes());
        bytes.truncate(40);
        bytes.extend_from_slice(data);
        let _ = Chunk::decode(&bytes, pool, stream, &all);
    }
}

/// A chunk with parts of sets: its frame is made to fit, but for their number, which one byte says.
pub fn parts(data: &[u8]) {
    let pool = PoolId([7; 16]);
    let _ = SetChunk::decode(data, pool);
    let Some((&count, parts)) = data.split_first() else { return };
    let mut bytes = SetChunk::encode(pool, &[parts.to_vec()]);
    bytes[12..16].copy_from_slice(&u32::from(count).to_le_bytes());
    let Ok(found) = SetChunk::decode(&bytes, pool) else { return };
    let found = Arc::new(found);
    for part in 0..u32::from(count) {
        // A row that says what is there is believed, and no other.
        let mut row = PartRow {
            span: LogAddress(0)..LogAddress(LOG_ADDRESS_LIMIT),
            count: 1,
            place: LedgerPointer::default(),
            part,
            bytes: 0,
        };
        let _ = Part::of(&found, &row);
        row.part = u32::from(count);
        assert!(Part::of(&found, &row).is_err());
    }
    let _ = found.bytes();
}

/// What items of a dataset hold.
pub fn items(data: &[u8]) {
    if let Some(inode) = InodeItem::decode(data) {
        assert_eq!(inode.encode(), data);
    }
    let key = Key::new(InodeNumber::ROOT, ItemKind::DirectoryEntry, 256);
    if let Ok(entry) = decode_entry(key, &Item::Bytes(data.to_vec())) {
        assert!(data.ends_with(&entry.name) && entry.inode.0 > 0);
    }
}

/// What is written as text: names, properties, times, and what a command line or the files beside a pool have of them.
pub fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = DatasetName::parse(text) {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(name) = SnapshotName::parse(text) {
        assert_eq!(format!("{}@{}", name.dataset_str(), name.short()), text);
    }
    if let Ok(target) = parse_target(text, true) {
        assert_eq!(target.to_string(), text);
    }
    let _ = (check_property_name(text), check_property_value("a:b", text), check_tag(text));
    for limit in Limit::ALL {
        let _ = limit.parse(text);
    }
    if let Some(time) = Timestamp::from_rfc3339(text) {
        // Written to the millisecond. Of the very first moments there is no whole one.
        let written = time.to_rfc3339();
        let again = Timestamp::from_rfc3339(&written);
        assert!(again.is_none_or(|again| again.to_rfc3339() == written), "{text}");
    }
    let _ = parse_duration(text);
    // Both hold a moment: as above.
    if let Some(last) = LastScrub::parse(text) {
        let again = LastScrub::parse(&last.text());
        assert!(again.is_none_or(|again| again.text() == last.text()), "{text}");
    }
    if let Some(position) = ScrubPosition::parse(text) {
        let again = ScrubPosition::parse(&position.text());
        assert!(again.is_none_or(|again| again.text() == position.text()), "{text}");
        assert!(position.damaged.iter().all(|run| run.length.0 > 0 && run.end().0 <= LOG_ADDRESS_LIMIT));
    }
    if let Some((rule, value)) = text.split_once('=') {
        let mut policy = Policy::default();
        let _ = policy.set(rule, value);
        let _ = policy.has_rules();
    }
}

/// What `errors.log` has: moments and sentences. Bytes that are no text are replaced, as by a reader of the
/// file.
pub fn incidents(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let found = parse_incidents(&text);
    assert!(found.len() <= text.lines().count());
    for incident in &found {
        assert!(text.contains(&incident.what) && !incident.what.contains('\n'));
        assert!(incident.times == 1 && incident.last == incident.when);
    }
    // As they are written: what was healed and what is lost differ in their sentences alone. Of the very first
    // moments there is no whole one.
    let line = |when: Timestamp, what: &str| format!("{} {what}\n", when.to_rfc3339());
    let own: Vec<String> = found.iter().map(|one| line(one.when, one.what.trim_end_matches('\r'))).collect();
    let again = parse_incidents(&own.concat());
    let plain = again.len() == found.len() && !text.contains('\r');
    assert!(
        !plain
            || again
                .iter()
                .zip(&found)
                .all(|(one, other)| { (&one.what, one.unhealed) == (&other.what, other.unhealed) })
    );
}

/// Operations, one behind the other.
pub fn operations(data: &[u8]) {
    let mut rest = data;
    while let Some((operation, after)) = Operation::decode(rest) {
        assert!(after.len() < rest.len(), "every operation takes a byte at least");
        rest = after;
        let mut own = Vec::new();
        operation.encode(&mut own);
        let (again, left) = Operation::decode(&own).expect("its own bytes");
        assert!(again == operation && left.is_empty());
        let _ = (operation.data_blocks(), operation.encoded_about());
        match &operation {
            Operation::WriteScattered(scatter) | Operation::MapScattered { scatter, .. } => {
                let _ = scatter.is_valid();
            }
            Operation::Patch(patch) => drop(patch.is_valid()),
            _ => {}
        }
    }
}

/// A blob of the ledger, cut into its sections.
pub fn ledger(data: &[u8]) {
    let pool = PoolId([7; 16]);
    let _ = (Blob::decode(data, pool, "place"), Blob::decode_header(data, pool, "place"));
    let mut bytes = data.to_vec();
    bytes.resize(data.len().next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES), 0);
    let header = sealed(&bytes[..BLOCK_BYTES]);
    bytes[..BLOCK_BYTES].copy_from_slice(&header);
    if let Ok((blob, lost)) = Blob::salvage(&bytes, pool, "place") {
        assert!(blob.sections.len() + lost.len() <= 8);
    }
    if let Ok(blob) = Blob::decode(&bytes, pool, "place") {
        let own = Blob::salvage(&blob.encode(pool), pool, "place");
        assert!(blob.sections.len() > 8 || own.is_ok_and(|(own, lost)| own == blob && lost.is_empty()));
        assert_eq!(Blob::decode(&blob.encode(pool), pool, "place").expect("its own bytes"), blob);
    }
}

/// A node of a tree.
pub fn node(data: &[u8]) {
    let mut block = [0; BLOCK_BYTES];
    let length = data.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&data[..length]);
    let address = LogAddress(u64::from_le_bytes(block[16..24].try_into().expect("eight bytes")));
    let _ = Node::decode(&block, address);
    // The checksum covers the block with zeros in its place.
    block[4..8].fill(0);
    let crc = crc32c(&block);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Ok(found) = Node::decode(&block, address) {
        let mut own = [0; BLOCK_BYTES];
        found.encode(address, &mut own);
        assert!(own == block, "a node that is answered encodes to the same bytes");
        let _ = (found.items().count(), found.memory_bytes());
    }
}

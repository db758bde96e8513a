//! Sets as bytes. The layout is in `docs/format/sets.md`.

use super::blocks::BlockSet;
use super::set::SetChanges;
use super::streams::StreamChanges;
use crate::format::varint::{put_varint, take_varint, varint_bytes};
use crate::units::{LogAddress, Marks, Stream};
use crate::{Error, Result};
use roaring::RoaringTreemap;

/// Lowest bit of a set's length: the bytes are a bitmap rather than a list of runs.
const BITMAP_FLAG: u64 = 1;
/// Presence bits of a change: something was added, something was removed.
const ADDED_FLAG: u8 = 1;
const REMOVED_FLAG: u8 = 2;
/// Base-two logarithm of the addresses in one container of a bitmap.
const CHUNK_SHIFT: u32 = 16;
/// See [`DecodeLimits::chunks`].
const CHUNKS_DEFAULT: u64 = 1 << 24;

/// What stored sets may claim, so that damaged bytes can neither name addresses that were never given out
/// nor fill the memory.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Position of every stream: all addresses lie below.
    pub positions: Marks,
    /// How many chunks of 65,536 addresses the sets decoded may touch between them. A chunk takes some 50
    /// bytes at least, however few bytes described it.
    pub chunks: u64,
}

impl DecodeLimits {
    /// Limits for a pool whose streams have come this far: 16 Mi chunks, about 1 GiB of memory at worst.
    pub const fn new(positions: Marks) -> Self {
        Self { positions, chunks: CHUNKS_DEFAULT }
    }

    fn take_chunks(&mut self, chunks: u64) -> Result<()> {
        self.chunks =
            self.chunks.checked_sub(chunks).ok_or_else(|| damaged("claims more than memory may hold"))?;
        Ok(())
    }
}

pub(super) fn damaged(detail: &str) -> Error {
    Error::damaged("liveness sets", detail)
}

/// Appends the changes of the sets of one version: a bit for each stream that changed, then those.
pub(super) fn encode_stream_changes(changes: [(&BlockSet, &BlockSet); 3], out: &mut Vec<u8>) {
    let changed = |index: usize| !changes[index].0.is_empty() || !changes[index].1.is_empty();
    let flags = (0..3).filter(|&index| changed(index)).map(|index| 1u8 << index).sum();
    out.push(flags);
    for (added, removed) in (0..3).filter(|&index| changed(index)).map(|index| changes[index]) {
        encode_changes(added, removed, out);
    }
}

/// Takes what [`encode_stream_changes`] wrote off the front of `bytes`.
pub(super) fn take_stream_changes(bytes: &mut &[u8], limits: &mut DecodeLimits) -> Result<StreamChanges> {
    let flags = take_byte(bytes)?;
    if flags >= 1 << Stream::ALL.len() {
        return Err(damaged("changes of streams that do not exist"));
    }
    let mut changes = StreamChanges::default();
    for stream in Stream::ALL {
        if flags & (1 << stream as u8) != 0 {
            changes[stream as usize] = take_changes(bytes, stream, limits)?;
        }
    }
    Ok(changes)
}

pub(super) fn encode_changes(added: &BlockSet, removed: &BlockSet, out: &mut Vec<u8>) {
    let flag = |set: &BlockSet, flag| if set.is_empty() { 0 } else { flag };
    out.push(flag(added, ADDED_FLAG) | flag(removed, REMOVED_FLAG));
    for set in [added, removed].into_iter().filter(|set| !set.is_empty()) {
        encode_set(set, out);
    }
}

pub(super) fn take_changes(
    bytes: &mut &[u8],
    stream: Stream,
    limits: &mut DecodeLimits,
) -> Result<SetChanges> {
    let flags = take_byte(bytes)?;
    if flags > ADDED_FLAG | REMOVED_FLAG {
        return Err(damaged("unknown kind of change"));
    }
    let mut changes = SetChanges::default();
    if flags & ADDED_FLAG != 0 {
        changes.added = take_set(bytes, stream, limits)?;
    }
    if flags & REMOVED_FLAG != 0 {
        changes.removed = take_set(bytes, stream, limits)?;
    }
    if changes.added.is_disjoint(&changes.removed) {
        Ok(changes)
    } else {
        Err(damaged("added and removed at once"))
    }
}

/// Appends a set, which must not be empty, in whichever form is smaller.
pub(crate) fn encode_set(set: &BlockSet, out: &mut Vec<u8>) {
    debug_assert!(!set.is_empty());
    // A list of a few runs is no longer than a bitmap.
    let bitmap = set.bitmap().map(|map| (map, map.serialized_size()));
    match (encode_runs(set, bitmap.map_or(usize::MAX, |(_, bytes)| bytes)), bitmap) {
        (None, Some((map, bytes))) => {
            put_varint(out, (bytes as u64) << 1 | BITMAP_FLAG);
            map.serialize_into(out).expect("writing to memory does not fail");
        }
        (runs, _) => {
            let runs = runs.unwrap_or_default();
            put_varint(out, (runs.len() as u64) << 1);
            out.extend_from_slice(&runs);
        }
    }
}

/// The set as a list of runs, unless that takes more than `bytes_max`.
fn encode_runs(set: &BlockSet, bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut previous_end = LogAddress(0);
    for run in set.runs() {
        let (gap, more) = (run.start.0 - previous_end.0, run.end.0 - run.start.0 - 1);
        if out.len() + varint_bytes(gap) + varint_bytes(more) > bytes_max {
            return None;
        }
        put_varint(&mut out, gap);
        put_varint(&mut out, more);
        previous_end = run.end;
    }
    Some(out)
}

/// Takes what [`encode_set`] wrote off the front of `bytes`.
pub(crate) fn take_set(bytes: &mut &[u8], stream: Stream, limits: &mut DecodeLimits) -> Result<BlockSet> {
    let announced = take_varint(bytes).ok_or_else(|| damaged("length of a set"))?;
    let length = usize::try_from(announced >> 1).map_err(|_| damaged("length of a set"))?;
    let (set_bytes, rest) = bytes.split_at_checked(length).ok_or_else(|| damaged("a set is cut short"))?;
    *bytes = rest;
    let set = if announced & BITMAP_FLAG == 0 {
        decode_runs(set_bytes, limits.positions.of(stream), limits)?
    } else {
        decode_bitmap(set_bytes, limits)?
    };
    if set.is_empty() {
        return Err(damaged("an empty set was written out"));
    }
    if set.is_within(&(LogAddress(0)..limits.positions.of(stream))) {
        Ok(set)
    } else {
        Err(damaged("an address that was never given out"))
    }
}

fn decode_runs(mut bytes: &[u8], limit: LogAddress, limits: &mut DecodeLimits) -> Result<BlockSet> {
    let mut set = BlockSet::new();
    let mut end = 0u64;
    while !bytes.is_empty() {
        let gap = take_varint(&mut bytes).ok_or_else(|| damaged("gap between runs"))?;
        let more = take_varint(&mut bytes).ok_or_else(|| damaged("length of a run"))?;
        if gap == 0 && end > 0 {
            return Err(damaged("two runs that are one"));
        }
        let start = end.checked_add(gap);
        let next_end = start.and_then(|start| start.checked_add(more)?.checked_add(1));
        let (Some(start), Some(next_end)) = (start, next_end.filter(|&next| next <= limit.0)) else {
            return Err(damaged("an address that was never given out"));
        };
        limits.take_chunks(((next_end - 1) >> CHUNK_SHIFT) - (start >> CHUNK_SHIFT) + 1)?;
        set.insert(LogAddress(start)..LogAddress(next_end));
        end = next_end;
    }
    set.optimize();
    Ok(set)
}

/// Containers stay as they were written, so memory is in proportion to the bytes.
fn decode_bitmap(bytes: &[u8], limits: &mut DecodeLimits) -> Result<BlockSet> {
    let mut rest = bytes;
    let map = RoaringTreemap::deserialize_from(&mut rest).map_err(|error| damaged(&error.to_string()))?;
    // The reader takes a repeated or empty part without complaint; the size then differs.
    let complete = rest.is_empty() && map.serialized_size() == bytes.len();
    if !complete || map.bitmaps().any(|(_, part)| part.is_empty()) {
        return Err(damaged("a bitmap that was not written like this"));
    }
    let chunks = map.bitmaps().map(|(_, part)| u64::from(part.statistics().n_containers)).sum();
    limits.take_chunks(chunks)?;
    Ok(BlockSet::from_bitmap(map))
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8> {
    let (&first, rest) = bytes.split_first().ok_or_else(|| damaged("cut short"))?;
    *bytes = rest;
    Ok(first)
}

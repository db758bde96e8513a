//! How one entry of a node is coded: relative to the entry before it. Writing and measuring are the same
//! code with two sinks, so that the size kept with a node in memory is exactly the size it will have.

use super::item::Extent;
use super::key::{group, is_extent};
use crate::format::varint::{varint_bytes, zigzag};

/// Takes the bytes of an entry.
pub(super) trait Sink {
    /// One byte.
    fn byte(&mut self, byte: u8);
    /// A number in groups of seven bits, the lowest first; the top bit of a byte says that more follow.
    fn varint(&mut self, number: u64);
    /// The bytes of an item.
    fn bytes(&mut self, bytes: Place);
}

/// Where the bytes of an item lie in the heap of a leaf: offset above, length below 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Place(pub u64);

impl Place {
    pub fn new(offset: usize, length: usize) -> Self {
        Self((offset as u64) << 32 | length as u64)
    }

    pub const fn length(self) -> usize {
        self.0 as u32 as usize
    }

    pub const fn range(self) -> std::ops::Range<usize> {
        let offset = (self.0 >> 32) as usize;
        offset..offset + self.length()
    }
}

/// Measures.
pub(super) struct Counter(pub usize);

impl Sink for Counter {
    fn byte(&mut self, _: u8) {
        self.0 += 1;
    }

    fn varint(&mut self, number: u64) {
        self.0 += varint_bytes(number);
    }

    fn bytes(&mut self, place: Place) {
        self.0 += place.length();
    }
}

/// Writes into a block. The caller has measured: running over the end is a defect, and panics.
pub(super) struct Writer<'a> {
    pub block: &'a mut [u8],
    pub at: usize,
    pub heap: &'a [u8],
}

impl Sink for Writer<'_> {
    fn byte(&mut self, byte: u8) {
        self.block[self.at] = byte;
        self.at += 1;
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn bytes(&mut self, place: Place) {
        let bytes = &self.heap[place.range()];
        self.block[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// First bit of every entry: same inode and kind as the entry before.
pub(super) const SAME_GROUP: u8 = 1;
/// Extent: begins in the file where the one before ends.
pub(super) const ADJACENT: u8 = 2;
/// Extent: as long as the one before.
pub(super) const SAME_LENGTH: u8 = 4;
/// Extent: of the stream of the one before.
pub(super) const SAME_STREAM: u8 = 8;
/// Bytes: the length does not fit the six bits in the head.
pub(super) const LONG: u8 = 2;

/// What an extent is coded relative to: the extent before it in the same file, or nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct ExtentContext {
    pub length: u64,
    pub stream: u8,
    pub end: u64,
}

impl ExtentContext {
    pub fn after(word: u64) -> Self {
        let run = Extent::unpack(word).run;
        Self { length: run.length.0, stream: run.stream as u8, end: run.end().0 }
    }
}

/// Writes an entry of a leaf; `before` is the entry before it.
pub(super) fn put_leaf_entry(sink: &mut impl Sink, before: Option<(u128, u64)>, key: u128, value: u64) {
    let same = before.filter(|(key_before, _)| group(*key_before) == group(key));
    if is_extent(key) {
        put_extent(sink, before.map(|(key_before, _)| key_before), same, key, value);
        return;
    }
    let place = Place(value);
    let length = place.length();
    let long = if length >= 64 { LONG } else { 0 };
    sink.byte(u8::from(same.is_some()) | long | ((length & 63) as u8) << 2);
    put_key(sink, before.map(|(key_before, _)| key_before), key);
    if long != 0 {
        sink.varint((length >> 6) as u64);
    }
    sink.bytes(place);
}

fn put_extent(sink: &mut impl Sink, before: Option<u128>, same: Option<(u128, u64)>, key: u128, value: u64) {
    let context = same.map_or_else(ExtentContext::default, |(_, word)| ExtentContext::after(word));
    let run = Extent::unpack(value).run;
    let adjacent = same.is_some_and(|(key_before, _)| key - key_before == u128::from(context.length));
    let same_length = run.length.0 == context.length;
    let same_stream = run.stream as u8 == context.stream;
    let distance = zigzag(run.start.0 as i64 - context.end as i64);
    let mut head = ((distance & 15) as u8) << 4;
    for (holds, bit) in [
        (same.is_some(), SAME_GROUP),
        (adjacent, ADJACENT),
        (same_length, SAME_LENGTH),
        (same_stream, SAME_STREAM),
    ] {
        head |= if holds { bit } else { 0 };
    }
    sink.byte(head);
    if !adjacent {
        put_key(sink, before, key);
    }
    if !same_length {
        sink.varint(run.length.0);
    }
    if !same_stream {
        sink.byte(run.stream as u8);
    }
    sink.varint(distance >> 4);
}

/// Writes an entry of an interior node: `before` is the key and child address before it.
pub(super) fn put_child(sink: &mut impl Sink, before: Option<(u128, u64)>, key: u128, address: u64) {
    let same = before.is_some_and(|(key_before, _)| group(key_before) == group(key));
    let distance = zigzag(address as i64 - before.map_or(0, |(_, address_before)| address_before) as i64);
    sink.byte(u8::from(same) | ((distance & 127) as u8) << 1);
    put_key(sink, before.map(|(key_before, _)| key_before), key);
    sink.varint(distance >> 7);
}

/// A key after the one before: only the distance within the same inode and kind; else kind, distance of
/// inodes, and the offset in full.
fn put_key(sink: &mut impl Sink, before: Option<u128>, key: u128) {
    match before {
        Some(before) if group(before) == group(key) => sink.varint((key - before) as u64),
        _ => {
            let inode_before = before.map_or(0, |before| group(before) >> 8);
            sink.byte(group(key) as u8);
            sink.varint((group(key) >> 8) - inode_before);
            sink.varint(key as u64);
        }
    }
}

//! A leaf in memory: sorted keys, one word a value, and a heap for the bytes of items.

use super::codec::PAYLOAD_BYTES;
use super::entry::{Counter, Place, put_leaf_entry};
use super::item::{Extent, ITEM_BYTES_MAX, Item, ItemRef};
use super::key::{Key, group, is_extent};

/// Garbage in the heap below which compacting is not worth it.
const HEAP_GARBAGE_MIN: usize = 512;

/// Items in the order of their keys.
///
/// Values are packed extents or places in `heap`, as the kind in the key says. `used` is exactly the number
/// of bytes that the entries take when encoded; it may pass [`PAYLOAD_BYTES`] only until the leaf is split.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    keys: Vec<u128>,
    values: Vec<u64>,
    heap: Vec<u8>,
    garbage: usize,
    used: usize,
}

impl Clone for Leaf {
    /// A copy is about to be changed: it has room for a few more.
    fn clone(&self) -> Self {
        let room = self.keys.len() + self.keys.len() / 8 + 4;
        let mut keys = Vec::with_capacity(room);
        keys.extend_from_slice(&self.keys);
        let mut values = Vec::with_capacity(room);
        values.extend_from_slice(&self.values);
        Self { keys, values, heap: self.heap.clone(), garbage: self.garbage, used: self.used }
    }
}

impl Leaf {
    pub fn with_capacity(count: usize) -> Self {
        Self { keys: Vec::with_capacity(count), values: Vec::with_capacity(count), ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn heap(&self) -> &[u8] {
        &self.heap
    }

    pub fn keys(&self) -> &[u128] {
        &self.keys
    }

    pub fn search(&self, key: u128) -> Result<usize, usize> {
        self.keys.binary_search(&key)
    }

    /// Index of the first entry whose key is at least `key`.
    pub fn lower_bound(&self, key: u128) -> usize {
        self.keys.partition_point(|held| *held < key)
    }

    pub fn item(&self, index: usize) -> ItemRef<'_> {
        let value = self.values[index];
        if is_extent(self.keys[index]) {
            ItemRef::Extent(Extent::unpack(value))
        } else {
            ItemRef::Bytes(&self.heap[Place(value).range()])
        }
    }

    pub fn get(&self, key: u128) -> Option<ItemRef<'_>> {
        self.search(key).ok().map(|index| self.item(index))
    }

    pub fn entry(&self, index: usize) -> (u128, u64) {
        (self.keys[index], self.values[index])
    }

    /// The entry before the one at `index`.
    pub fn before(&self, index: usize) -> Option<(u128, u64)> {
        index.checked_sub(1).map(|before| self.entry(before))
    }

    /// Bytes that the entry at `index` takes where it is; nothing past the end.
    fn size(&self, index: usize) -> usize {
        if index < self.len() { entry_size(self.before(index), self.entry(index)) } else { 0 }
    }

    /// Inserts or replaces; returns the former item.
    pub fn put(&mut self, key: u128, item: &Item) -> Option<Item> {
        let (index, former) = match self.search(key) {
            Ok(index) => (index, Some(self.item(index).to_item())),
            Err(index) => (index, None),
        };
        if former.is_some() {
            self.used -= self.size(index) + self.size(index + 1);
            self.discard(index);
            self.values[index] = self.store(key, item);
        } else {
            self.used -= self.size(index);
            let value = self.store(key, item);
            self.keys.insert(index, key);
            self.values.insert(index, value);
        }
        self.used += self.size(index) + self.size(index + 1);
        self.compact_if_worth_it();
        former
    }

    /// Removes; returns the former item.
    pub fn remove(&mut self, key: u128) -> Option<Item> {
        let index = self.search(key).ok()?;
        let former = self.item(index).to_item();
        self.used -= self.size(index) + self.size(index + 1);
        self.discard(index);
        self.keys.remove(index);
        self.values.remove(index);
        self.used += self.size(index);
        self.compact_if_worth_it();
        Some(former)
    }

    /// Appends an entry that is known to come last; for decoding and for joining leaves.
    pub fn push(&mut self, key: u128, item: ItemRef<'_>) {
        assert!(self.keys.last().is_none_or(|last| *last < key));
        let value = match item {
            ItemRef::Extent(extent) => extent.pack(),
            ItemRef::Bytes(bytes) => self.store_bytes(bytes),
        };
        self.keys.push(key);
        self.values.push(value);
        self.used += self.size(self.len() - 1);
    }

    /// Bytes that this leaf and the one right of it would take as one.
    pub fn joined_size(&self, right: &Self) -> usize {
        match right.keys.first() {
            None => self.used,
            Some(_) => {
                let first = (right.keys[0], right.values[0]);
                let last = self.before(self.len());
                self.used + right.used - entry_size(None, first) + entry_size(last, first)
            }
        }
    }

    /// Takes over everything of the leaf right of this one.
    pub fn append(&mut self, right: &Self) {
        for index in 0..right.len() {
            self.push(right.keys[index], right.item(index));
        }
    }

    /// Splits an overfull leaf: keeps the lower part, returns the upper.
    pub fn split(&mut self, changed: u128) -> Self {
        let index = self.split_index(changed);
        assert!(index > 0 && index < self.len());
        let mut right = Self::with_capacity(self.len() - index);
        for moved in index..self.len() {
            right.push(self.keys[moved], self.item(moved));
            if !is_extent(self.keys[moved]) {
                self.garbage += Place(self.values[moved]).length();
            }
        }
        self.keys.truncate(index);
        self.values.truncate(index);
        self.used = self.measure();
        self.compact();
        assert!(self.used <= PAYLOAD_BYTES && right.used <= PAYLOAD_BYTES, "a split makes both halves fit");
        right
    }

    /// Where keys ascend, at the end of the leaf or of one file's extents, the lower part stays full: what
    /// follows will go to the upper. Otherwise the halves are about equal.
    fn split_index(&self, changed: u128) -> usize {
        if let Ok(changed) = self.search(changed) {
            if changed + 1 == self.len() && changed > 0 {
                return changed;
            }
            if changed + 1 < self.len() && self.ends_a_file(changed) {
                let lower: usize = (0..=changed).map(|index| self.size(index)).sum();
                if lower <= PAYLOAD_BYTES && lower.min(self.used - lower) >= PAYLOAD_BYTES / 4 {
                    return changed + 1;
                }
            }
        }
        let mut lower = 0;
        for index in 0..self.len() - 1 {
            let size = self.size(index);
            if lower + size / 2 >= self.used / 2 {
                return index.max(1);
            }
            lower += size;
        }
        self.len() - 1
    }

    /// The extent at `index` follows another of its file, and is the file's last in this leaf.
    fn ends_a_file(&self, index: usize) -> bool {
        is_extent(self.keys[index])
            && index > 0
            && group(self.keys[index - 1]) == group(self.keys[index])
            && group(self.keys[index + 1]) != group(self.keys[index])
    }

    /// Computes `used` from the entries.
    pub fn measure(&self) -> usize {
        (0..self.len()).map(|index| self.size(index)).sum()
    }

    /// Bytes of memory that this leaf takes.
    pub fn memory_bytes(&self) -> usize {
        self.keys.capacity() * 16 + self.values.capacity() * 8 + self.heap.capacity()
    }

    fn store(&mut self, key: u128, item: &Item) -> u64 {
        match item {
            Item::Extent(extent) => {
                assert!(is_extent(key) && extent.is_storable(), "{:?} at {:?}", extent, Key(key));
                extent.pack()
            }
            Item::Bytes(bytes) => {
                assert!(
                    !is_extent(key) && bytes.len() <= ITEM_BYTES_MAX,
                    "{} bytes at {:?}",
                    bytes.len(),
                    Key(key)
                );
                self.store_bytes(bytes)
            }
        }
    }

    fn store_bytes(&mut self, bytes: &[u8]) -> u64 {
        let place = Place::new(self.heap.len(), bytes.len());
        self.heap.extend_from_slice(bytes);
        place.0
    }

    /// Counts the bytes of the entry at `index` as garbage.
    fn discard(&mut self, index: usize) {
        if !is_extent(self.keys[index]) {
            self.garbage += Place(self.values[index]).length();
        }
    }

    fn compact_if_worth_it(&mut self) {
        if self.garbage > HEAP_GARBAGE_MIN && self.garbage > self.heap.len() / 2 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut heap = Vec::with_capacity(self.heap.len() - self.garbage);
        for (key, value) in self.keys.iter().zip(&mut self.values) {
            if !is_extent(*key) {
                let place = Place(*value);
                *value = Place::new(heap.len(), place.length()).0;
                heap.extend_from_slice(&self.heap[place.range()]);
            }
        }
        self.heap = heap;
        self.garbage = 0;
    }
}

fn entry_size(before: Option<(u128, u64)>, (key, value): (u128, u64)) -> usize {
    let mut counter = Counter(0);
    put_leaf_entry(&mut counter, before, key, value);
    counter.0
}

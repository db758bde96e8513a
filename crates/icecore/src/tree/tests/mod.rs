//! Tests of the tree, with a block store in memory that forgets everything but encoded bytes.

mod bytes;
mod history;
mod shape;
mod threads;

use super::*;
use crate::error::Error;
use crate::units::{BLOCK_BYTES, BlockCount, InodeNumber, Run, Stream};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks by address. Every load decodes.
#[derive(Default)]
pub(crate) struct Store {
    blocks: Mutex<HashMap<LogAddress, Box<[u8; BLOCK_BYTES]>>>,
    pub loads: AtomicU64,
    /// Loads that still succeed; then all fail.
    budget: Mutex<Option<u64>>,
}

impl Tree {
    /// The item at `key`.
    fn get(&self, source: &dyn NodeSource, key: Key) -> Result<Option<Item>> {
        self.view(source, key, |item| item.map(ItemRef::to_item))
    }
}

impl NodeSource for Store {
    fn load(&self, address: LogAddress) -> Result<Arc<Node>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if let Some(left) = &mut *self.budget.lock() {
            *left = left.checked_sub(1).ok_or_else(|| Error::Invalid("injected".into()))?;
        }
        let blocks = self.blocks.lock();
        let block = blocks.get(&address).unwrap_or_else(|| panic!("node {address} was never written"));
        Node::decode(block, address).map(Arc::new)
    }
}

impl Store {
    pub fn fail_after(&self, budget: Option<u64>) {
        *self.budget.lock() = budget;
    }

    pub fn put(&self, address: LogAddress, block: [u8; BLOCK_BYTES]) {
        assert!(self.blocks.lock().insert(address, Box::new(block)).is_none(), "written once only");
    }

    /// What a checkpoint does.
    pub fn write_all(&self, tree: &Tree) {
        let slots = tree.dirty();
        assert!(slots.is_sorted_by(|one, next| one.address() < next.address()));
        for slot in &slots {
            let mut block = [0; BLOCK_BYTES];
            slot.encode(&mut block);
            self.put(slot.address(), block);
        }
        for slot in &slots {
            slot.mark_written(self);
        }
        assert!(tree.dirty().is_empty());
    }
}

/// One version's books over a common counter.
#[derive(Clone, Default)]
pub(crate) struct Books {
    next: Arc<AtomicU64>,
    pub live: BTreeSet<LogAddress>,
}

impl NodeLedger for Books {
    fn draw_node(&mut self) -> LogAddress {
        let address = LogAddress(self.next.fetch_add(1, Ordering::Relaxed));
        assert!(self.live.insert(address));
        address
    }

    fn drop_node(&mut self, address: LogAddress) {
        assert!(self.live.remove(&address), "node {address} dropped, but not referred to");
    }
}

/// The books agree with what the tree refers to, and the tree is sound.
pub(crate) fn verify(tree: &Tree, store: &Store, books: &Books) {
    tree.check(store).unwrap();
    let mut reachable = BTreeSet::new();
    tree.nodes(store, &mut |address, _| {
        assert!(reachable.insert(address));
        Ok(())
    })
    .unwrap();
    assert_eq!(reachable, books.live);
}

pub(crate) fn extent(stream: Stream, start: u64, length: u64) -> Item {
    Item::Extent(Extent { run: Run { stream, start: LogAddress(start), length: BlockCount(length) } })
}

pub(crate) fn extent_key(inode: u64, block: u64) -> Key {
    Key::new(InodeNumber(inode), ItemKind::Extent, block)
}

/// A small generator (SplitMix64): a seed stands for the bulk operations of a test.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Number of cases of a property test: `ICECORE_PROPTEST_CASES`, or a number small enough for every run.
pub(crate) fn cases(default: u32) -> u32 {
    std::env::var("ICECORE_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

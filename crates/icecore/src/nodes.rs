//! Tree nodes by address, through a bounded cache.

use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::location::Lookup;
use crate::numbers::{NumberHash, number_cache};
use crate::statistics::Counters;
use crate::tree::{Node, NodeSource};
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, SegmentId, Slot, Stream};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Nodes that memory holds, for changes that are made under the state lock. Reads nothing: it remembers the
/// first node that was asked for and is missing. The caller loads that without the lock, and tries again.
pub(crate) struct Resident<'a> {
    nodes: &'a Nodes,
    missing: Mutex<Option<LogAddress>>,
}

impl<'a> Resident<'a> {
    pub(crate) fn new(nodes: &'a Nodes) -> Self {
        Self { nodes, missing: Mutex::default() }
    }

    /// The node without which the change failed.
    pub(crate) fn missing(&self) -> Option<LogAddress> {
        *self.missing.lock()
    }
}

impl NodeSource for Resident<'_> {
    fn load(&self, address: LogAddress) -> Result<Arc<Node>> {
        self.nodes.in_memory(address).ok_or_else(|| {
            self.missing.lock().get_or_insert(address);
            Error::Invalid("a tree node is not in memory".to_owned())
        })
    }

    fn reading(&self) -> Option<&dyn NodeSource> {
        Some(self.nodes)
    }

    fn keep(&self, address: LogAddress, node: &Arc<Node>) {
        self.nodes.keep(address, node);
    }
}

/// Loads nodes that a checkpoint wrote.
pub(crate) struct Nodes {
    blocks: Arc<Blocks>,
    cache: Cache<u64, Arc<Node>, ByBytes, NumberHash>,
    counters: Arc<Counters>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<u64, Arc<Node>> for ByBytes {
    fn weight(&self, _address: &u64, node: &Arc<Node>) -> u64 {
        node.memory_bytes() as u64
    }
}

impl Nodes {
    pub(crate) fn new(blocks: Arc<Blocks>, cache_bytes: u64, counters: Arc<Counters>) -> Self {
        let cache = number_cache((cache_bytes / 8192).max(16) as usize, cache_bytes, ByBytes);
        Self { blocks, cache, counters }
    }

    fn in_memory(&self, address: LogAddress) -> Option<Arc<Node>> {
        let node = self.cache.get(&address.0)?;
        self.counters.node_cache_hits.add(1);
        Some(node)
    }

    /// Reads and checks a node past the cache, which it does not enter.
    pub(crate) fn read(&self, address: LogAddress) -> Result<Node> {
        let run = Run { stream: Stream::Node, start: address, length: BlockCount(1) };
        self.blocks.while_there(run, |segment, slot, _, doubts| {
            let mut bytes = [0; BLOCK_BYTES];
            let read = self.blocks.files().read(segment, slot, &mut bytes);
            self.counters.disk_read_bytes_node.add(bytes.len() as u64);
            let decode =
                |()| self.take_apart(&bytes, address, segment, slot).inspect_err(|error| doubts.add(error));
            let outcome = read.and_then(decode);
            let Err(error) = outcome else { return outcome };
            let said = Error::to_string(&error);
            let copied = self.take_copy(address, segment, slot, &mut bytes, error);
            copied.inspect(|_| doubts.made_good(&said))
        })
    }

    /// Reads a node from its copy, and writes it again where it lies.
    ///
    /// # Errors
    /// `error`, if there is no copy that is the node at this address.
    pub(crate) fn take_copy(
        &self,
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
        bytes: &mut [u8; BLOCK_BYTES],
        error: Error,
    ) -> Result<Node> {
        let Some(node) = self.copy(address, segment, slot, bytes) else { return Err(error) };
        self.blocks.files().heal(segment, slot, bytes, &error, || self.lies_there(address, segment, slot));
        Ok(node)
    }

    /// The copy of a node, if there is one and it is the node at this address.
    fn copy(
        &self,
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
        bytes: &mut [u8; BLOCK_BYTES],
    ) -> Option<Node> {
        let there = self.blocks.files().read_copy(segment, slot, bytes);
        Some(()).filter(|()| there).and_then(|()| Node::decode(bytes, address).ok())
    }

    fn lies_there(&self, address: LogAddress, segment: SegmentId, slot: Slot) -> bool {
        // A chunk that is not in memory is not read under the gate of copies. Then nothing is written, and
        // the next reader tries again.
        let found = self.blocks.map().read().lookup(Stream::Node, address);
        matches!(found, Lookup::At(at, first, _) if (at, first) == (segment, slot))
    }

    /// Reads and checks both copies of a node. Writes each again from the other where it is not what was
    /// written.
    pub(crate) fn read_both(&self, address: LogAddress) -> Result<()> {
        self.read(address)?;
        let run = Run { stream: Stream::Node, start: address, length: BlockCount(1) };
        self.blocks.while_there(run, |segment, slot, _, _| {
            let files = self.blocks.files();
            let mut bytes = [0; BLOCK_BYTES];
            if !files.copies().has(segment) || self.copy(address, segment, slot, &mut bytes).is_some() {
                return Ok(());
            }
            files.read(segment, slot, &mut bytes)?;
            if Node::decode(&bytes, address).is_ok() {
                files.mend_copy(segment, slot, &bytes, || self.lies_there(address, segment, slot));
            }
            Ok(())
        })
    }

    /// Checks and takes apart a node that was read from a place, and notes damage. The segment must not have
    /// been used for anything else since.
    pub(crate) fn decode(
        &self,
        bytes: &[u8; BLOCK_BYTES],
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
    ) -> Result<Node> {
        let outcome = self.take_apart(bytes, address, segment, slot);
        outcome.inspect_err(|error| self.blocks.files().incidents().note(error))
    }

    fn take_apart(
        &self,
        bytes: &[u8; BLOCK_BYTES],
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
    ) -> Result<Node> {
        Node::decode(bytes, address).map_err(|error| match error {
            Error::Damaged { detail, .. } => self.blocks.files().geometry().damaged(segment, slot, detail),
            other => other,
        })
    }
}

impl NodeSource for Nodes {
    fn load(&self, address: LogAddress) -> Result<Arc<Node>> {
        if let Some(node) = self.in_memory(address) {
            return Ok(node);
        }
        self.counters.node_cache_misses.add(1);
        let node = Arc::new(self.read(address)?);
        self.cache.insert(address.0, Arc::clone(&node));
        Ok(node)
    }

    fn keep(&self, address: LogAddress, node: &Arc<Node>) {
        self.cache.insert(address.0, Arc::clone(node));
    }
}

//! Slots: a node that has been born but not yet written lives in one; and references to nodes.

use super::node::Node;
use super::source::NodeSource;
use crate::error::Result;
use crate::units::{BLOCK_BYTES, LogAddress};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A node that was born in this life of the pool. It holds its content until it has been written.
#[derive(Debug)]
pub struct NodeSlot {
    address: LogAddress,
    resident: RwLock<Option<Arc<Node>>>,
    written: AtomicBool,
}

impl NodeSlot {
    pub(super) fn new(address: LogAddress, node: Node) -> Arc<Self> {
        let resident = RwLock::new(Some(Arc::new(node)));
        Arc::new(Self { address, resident, written: AtomicBool::new(false) })
    }

    /// The address in the node stream, drawn when the node was born.
    pub fn address(&self) -> LogAddress {
        self.address
    }

    /// True once [`NodeSlot::mark_written`] was called.
    pub fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// Fills `block` with the node. Only for a slot that is not written yet and that [`super::Tree::dirty`]
    /// answered for a clone that no writer changes. Such a node does not change any more.
    pub fn encode(&self, block: &mut [u8; BLOCK_BYTES]) {
        self.content().expect("a node that is not written is resident").encode(self.address, block);
    }

    pub(super) fn content(&self) -> Option<Arc<Node>> {
        self.resident.read().clone()
    }

    /// Declares the node written: `source` must be able to load it from now on, and all its descendants.
    ///
    /// So: first write all the blocks of one [`super::Tree::dirty`], then mark all of its slots, in any
    /// order. The content goes to `source` to keep or forget. May be called while other threads read and
    /// change.
    pub fn mark_written(&self, source: &dyn NodeSource) {
        let Some(content) = self.content() else { return };
        let content = content.detached().map_or(content, Arc::new);
        source.keep(self.address, &content);
        // A reader that finds no content asks the source, which has it by now.
        self.written.store(true, Ordering::Release);
        *self.resident.write() = None;
    }
}

/// A reference to a node: by address alone once it is written, else through its slot.
#[derive(Debug)]
pub(super) enum Child {
    Address(LogAddress),
    Slot(Arc<NodeSlot>),
}

impl Clone for Child {
    /// Lets go of slots that have served their time.
    fn clone(&self) -> Self {
        match self {
            Self::Slot(slot) if !slot.is_written() => Self::Slot(Arc::clone(slot)),
            _ => Self::Address(self.address()),
        }
    }
}

impl Child {
    pub fn born(address: LogAddress, node: Node) -> Self {
        Self::Slot(NodeSlot::new(address, node))
    }

    pub fn address(&self) -> LogAddress {
        match self {
            Self::Address(address) => *address,
            Self::Slot(slot) => slot.address,
        }
    }

    pub fn load(&self, source: &dyn NodeSource) -> Result<Arc<Node>> {
        if let Self::Slot(slot) = self
            && let Some(node) = slot.content()
        {
            return Ok(node);
        }
        source.load(self.address())
    }

    /// The slot, if the node is not written yet.
    pub fn dirty(&self) -> Option<&Arc<NodeSlot>> {
        match self {
            Self::Slot(slot) if !slot.is_written() => Some(slot),
            _ => None,
        }
    }

    /// The content, to change it in place: only if the node is not written and nothing else refers to it.
    ///
    /// Since the caller has come here through nodes that were exclusive themselves, no other tree can reach
    /// the node. A reader that still holds the content itself keeps what it has seen.
    pub fn exclusive(&mut self) -> Option<&mut Node> {
        let Self::Slot(slot) = self else { return None };
        let slot = Arc::get_mut(slot)?;
        if *slot.written.get_mut() {
            return None;
        }
        slot.resident.get_mut().as_mut().map(Arc::make_mut)
    }
}

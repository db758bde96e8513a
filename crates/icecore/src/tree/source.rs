//! What the tree needs from outside: nodes to read, and a keeper of the books of addresses.

use super::node::Node;
use crate::error::Result;
use crate::units::LogAddress;
use std::sync::Arc;

/// Keeps the books of node addresses, on behalf of one version.
pub trait NodeLedger {
    /// The address of a node that is born now. Addresses only grow and are never drawn twice.
    fn draw_node(&mut self) -> LogAddress;

    /// The version no longer refers to the node at this address: called once for each node that the tree
    /// referred to and then does not, even where other versions still do so.
    fn drop_node(&mut self, address: LogAddress);
}

/// Where nodes are read from that are not in memory.
pub trait NodeSource: Send + Sync {
    /// The node that was written at this address, as [`Node::decode`] answers it.
    fn load(&self, address: LogAddress) -> Result<Arc<Node>>;

    /// What reads nodes that this source does not, if it answers only for those in memory.
    fn reading(&self) -> Option<&dyn NodeSource> {
        None
    }

    /// A node was written just now, and is likely to be read again soon. It refers to its children by
    /// address.
    fn keep(&self, _address: LogAddress, _node: &Arc<Node>) {}
}

//! The store as plain maps: what every operation means, without any of the machinery.
//!
//! A [`Generator`] draws [`Step`]s, [`ModelPool::apply`] says what each of them does, and [`History`] keeps
//! the state after every step, so that what is found after a crash can be looked up: it must be one of the
//! states since the last step that was acknowledged as durable.

mod administration;
mod content;
mod generator;
mod history;
mod pool;
mod step;
#[cfg(test)]
mod tests;
mod tree;

pub use content::{Content, Data};
pub use generator::{Generator, Weights};
pub use history::History;
pub use pool::{Dataset, FullName, ModelError, ModelPool, Snapshot, SnapshotId};
pub use step::{FileChange, GroupWrite, Outcome, Step};
pub use tree::{Body, Inode, Tree};

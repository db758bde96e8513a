//! Where each run of log addresses lies now: the only thing that changes when data moves.

mod changes;
mod entry;
mod map;

#[cfg(test)]
mod tests;

pub use changes::{MapChanges, StreamMapChanges};
pub use map::{LocationMap, PlacedRun};

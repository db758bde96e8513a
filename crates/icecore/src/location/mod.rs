//! Where each run of log addresses lies now: the only thing that changes when data moves.
//!
//! `LocationMap` is a map in memory; [`ChunkedMap`] is that of a pool, most of which lies on disk.

mod changes;
mod chunk;
mod chunked;
mod consolidate;
mod directory;
mod entry;
mod listed;
mod map;
mod stored;

#[cfg(test)]
mod chunked_tests;
#[cfg(test)]
mod tests;

pub use changes::MapChanges;
pub use chunk::{Absent, Chunk, SharedChunk};
pub use chunked::{ChunkedMap, Lookup, MapLimits};
pub use consolidate::{ChunkStore, Consolidated};
pub use directory::{ChunkRow, NAMED_MAX};
pub use listed::{LIST_BYTES_MIN, LISTED_BYTES_MAX, decode_list, encode_list, first_blocks, runs_of_blocks};
pub use map::PlacedRun;

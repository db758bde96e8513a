//! Icecore: a store that never overwrites, so that a snapshot is a remembered log position.
//!
//! Layers, bottom up: [`storage`] is the only way to superblocks, segments and copies; `format` has the byte layouts; `tree` and
//! `location` say what is where; `liveness` says what is alive; `log` appends and replays records; `state`
//! executes operations; `engine` puts a pool together; [`Pool`], [`Dataset`], [`View`] and [`Group`] are what
//! callers use.

pub mod admin;
mod blocks;
mod catalogue;
pub mod check;
mod condvar;
mod copies;
mod dataset;
mod engine;
pub mod error;
mod files;
pub mod format;
mod group;
mod incidents;
pub mod limits;
mod linear;
mod liveness;
mod location;
mod log;
pub mod names;
mod namespace;
mod nodes;
mod numbers;
mod operation;
mod options;
mod owner;
mod pins;
mod pool;
mod present;
mod process;
mod reading;
pub mod retention;
mod segments;
mod side_file;
mod state;
mod statistics;
pub mod storage;
mod sync;
mod tree;
pub mod units;
mod view;

#[doc(hidden)]
pub use condvar::Condvar;
pub use copies::CopiesReport;
pub use dataset::{ATOMIC_WRITE_BYTES, Creation, Dataset, File, UserGuard};
pub use engine::{CollectReport, ReaderHold, TrimReport};
pub use error::{Error, FileFault, Result};
pub use format::copies::CopyMode;
pub use group::{CommitPoint, Group};
#[doc(hidden)]
pub use incidents::parse as parse_incidents;
pub use incidents::{Incident, logged as logged_incidents};
pub use linear::ReadProgress;
pub use names::DestroyTarget;
#[doc(hidden)]
pub use namespace::name_hash;
pub use namespace::{
    AttributeChange, DirectoryEntry, InodeItem, InodeKind, Made, RenameHow, RenameOutcome, Unlinked, XattrHow,
};
pub use options::{Clock, InitOptions, OpenOptions};
#[doc(hidden)]
pub use pins::ReaderName;
pub use pool::ScrubPosition;
pub use pool::{
    ByteRange, Change, DestroyPlan, DiffEntry, EntryKind, Finding, Hold, ListEntry, ListFilter, Obstacle,
    Pool, PoolChange, PoolObserver, Property, PropertySource, RollbackReport, Room, ScrubOptions,
    ScrubProgress, ScrubReport,
};
pub use process::ProcessMark;
pub use statistics::{Quantiles, Statistics};
pub use view::View;

/// What programs for tests and measurements look at beside what callers use.
#[doc(hidden)]
pub mod inside {
    pub use crate::liveness::{
        BlockSet, DecodeLimits, FreedSink, History, HistoryChanges, Part, PartRow, PartSource, PartStore,
        SetChunk, SetLimits, Span, StoredHistory,
    };
    pub use crate::location::{
        Absent, Chunk, ChunkStore, ChunkedMap, Lookup, MapChanges, MapLimits, PlacedRun, SharedChunk,
        decode_list, encode_list,
    };
    pub use crate::namespace::decode_entry;
    pub use crate::operation::Operation;
    pub use crate::tree::{Item, ItemKind, Key, Node};
}

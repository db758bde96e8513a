//! Which blocks are alive, and because of which version: set arithmetic on log addresses.
//!
//! Layers, bottom up: [`BlockSet`] is a bitmap of addresses; `AddressSet` is one that remembers what
//! changed since the last checkpoint; `StreamSets` holds one for each stream; [`History`] is the tree
//! of versions with the rules for birth, death, snapshots and deletion. `docs/format/sets.md` has the
//! layout on disk.

mod accounting;
mod blocks;
mod codec;
mod cold;
mod consolidate;
mod deletion;
mod doomed;
mod fault;
mod few;
mod forecast;
mod part;
mod rebuild;
mod set;
mod split;
mod stored;
mod streams;
mod thinning;
mod verify;
mod versions;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod set_tests;
#[cfg(test)]
mod stored_tests;

pub use blocks::{BlockSet, Span};
pub use codec::DecodeLimits;
pub(crate) use codec::{encode_set, take_set};
pub use consolidate::{PartStore, SetLimits};
pub use deletion::Pace;
pub use fault::HistoryFault;
pub use part::{HeldPart, Part, PartRow, PartSource, SetChunk};
pub(crate) use rebuild::SetsOfVersion;
#[cfg(test)]
pub(crate) use rule_tests::reached;
pub use stored::{HistoryChanges, StoredHistory, StoredSets};
pub use streams::FreedSink;
pub(crate) use versions::parted;
pub use versions::{History, VersionNode};

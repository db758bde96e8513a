//! Who keeps what from being used again.

use super::Engine;
use super::limits::is_at_or_below;
use crate::catalogue::SnapshotRow;
use crate::error::Error;
use crate::limits::Limit;
use crate::liveness::{History, HistoryFault};
use crate::pins::{Hold, Named};
use crate::state::State;
use crate::units::{BlockCount, ByteLength, Timestamp, VersionId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

/// Readers that an error names.
const NAMED_MAX: usize = 3;

/// A reader that keeps something from being used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderHold {
    /// The process that reads.
    pub process: u32,
    /// What reads in the process, if it has said so: a file of a database that a connection has open.
    pub what: Option<String>,
    /// The version that is read, as it was called when the reader came: a snapshot, or a dataset as it was
    /// then.
    pub version: String,
    /// When the reader came.
    pub since: Timestamp,
    /// What it keeps: of a snapshot what was destroyed under it, of a dataset what that has dropped since.
    /// What several readers keep is counted for each of them.
    pub keeps: ByteLength,
}

impl fmt::Display for ReaderHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        if let Some(what) = &self.what {
            write!(f, " ({what})")?;
        }
        let mebibytes = self.keeps.0.div_ceil(1 << 20);
        write!(f, " reads {} since {} and keeps {mebibytes} MiB", self.version, self.since.to_rfc3339())
    }
}

impl Engine {
    /// Readers that keep something, those that keep most first.
    pub(crate) fn readers(&self) -> Vec<ReaderHold> {
        self.readers_of(&self.state())
    }

    fn readers_of(&self, state: &State) -> Vec<ReaderHold> {
        let pins = self.pins.named().into_iter();
        let holds = pins.map(|pin| {
            let (process, what) =
                pin.reader.as_deref().map_or((None, None), |by| (by.process, by.what.clone()));
            ReaderHold {
                process: process.unwrap_or_else(std::process::id),
                what,
                keeps: kept(state, &pin).bytes(),
                version: pin.version.to_string(),
                since: pin.since,
            }
        });
        let mut holds: Vec<ReaderHold> = holds.filter(|hold| hold.keeps.0 > 0).collect();
        holds.sort_by_key(|hold| (Reverse(hold.keeps), hold.since));
        holds
    }

    /// A refusal for want of room, or by a quota, with what would make some.
    pub(super) fn with_ways_out(&self, mut error: Error) -> Error {
        match &mut error {
            Error::NoSpace { detail } => {
                let state = self.state();
                if snapshots_hold_something(&state, Read::Stay) {
                    detail.push_str("; destroying snapshots frees space");
                } else if snapshots_hold_something(&state, Read::End) {
                    detail.push_str("; destroying snapshots frees space when their readers have ended");
                }
                name_readers(detail, &self.readers_of(&state));
            }
            // Snapshots count in a quota, and what was destroyed and is read counts until its readers go.
            Error::QuotaExceeded { dataset, limit, way_out, .. } if *limit == Limit::Quota.name() => {
                let state = self.state();
                if snapshots_of_hold_something(&state, dataset) {
                    way_out.insert_str(0, "destroy snapshots or ");
                }
                let mut readers = self.readers_of(&state);
                readers.retain(|reader| {
                    let (name, snapshot) = reader.version.split_once('@').unwrap_or((&reader.version, ""));
                    !snapshot.is_empty() && is_at_or_below(name, dataset)
                });
                name_readers(way_out, &readers);
            }
            _ => {}
        }
        error
    }
}

fn name_readers(text: &mut String, readers: &[ReaderHold]) {
    for reader in readers.iter().take(NAMED_MAX) {
        text.push_str(&format!("; {reader}"));
    }
    if let more @ 1.. = readers.len().saturating_sub(NAMED_MAX) {
        text.push_str(&format!("; {more} more readers keep something (`icecore status` names them)"));
    }
}

/// What would be used again if a reader were gone, and it alone.
fn kept(state: &State, pin: &Named) -> BlockCount {
    let of_destroyed = match pin.hold {
        Hold::Head(version) | Hold::Snapshot(version) if state.history.is_read(version) => {
            // What damage prevents from being counted is not known to be kept.
            state.history.used(version).unwrap_or_default()
        }
        _ => BlockCount(0),
    };
    BlockCount(of_destroyed.0 + state.graveyard.kept(pin).0)
}

/// What is supposed of snapshots that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// What is destroyed of them is not free yet.
    Stay,
    /// Their readers end.
    End,
}

/// Whether destroying the snapshots that nothing holds would free something. A count that damage prevents is
/// taken to be more than nothing.
pub(crate) fn snapshots_hold_something(state: &State, read: Read) -> bool {
    let visible = || state.catalogue.snapshots().filter(|(_, row)| !row.hidden);
    if visible().next().is_none() {
        return false;
    }
    let history = &state.history;
    let freeing = freeing(history);
    let live = history.live_in_all().0.saturating_sub(freeing.as_ref().map_or(0, |blocks| blocks.0));
    let heads = state.catalogue.datasets().map(|(_, row)| history.referenced(row.head).unwrap_or_default().0);
    let is_beyond_heads = live > heads.sum();
    // Snapshots are counted only where these figures leave it open: callers poll this with the state locked.
    let pinned = if read == Read::Stay { state.graveyard.pins().versions() } else { BTreeSet::new() };
    let is_free = |(version, row): &(VersionId, &SnapshotRow)| can_be_freed(*version, row, &pinned);
    if is_beyond_heads && visible().all(|one| is_free(&one)) {
        return true;
    }
    // What clones share counts for each of them.
    let is_shared = || state.catalogue.datasets().any(|(id, _)| state.origin(id).is_some());
    if !is_beyond_heads && !is_shared() {
        return false;
    }
    is_more_freed(history, freeing, visible().filter(is_free).map(|(version, _)| version))
}

/// The versions that go already: when they are freed, or their readers end.
fn gone(history: &History) -> impl Iterator<Item = VersionId> + '_ {
    history.doomed().chain(history.read())
}

/// What comes back of these.
fn freeing(history: &History) -> Result<BlockCount, HistoryFault> {
    if history.read().next().is_none() {
        // It is known, however many they are.
        return history.freeing();
    }
    history.freed_by_deleting_set(&gone(history).collect::<Vec<_>>())
}

/// Whether more than `freeing` comes back if these versions go, too. A count that damage prevents is taken to
/// be more.
fn is_more_freed(
    history: &History,
    freeing: Result<BlockCount, HistoryFault>,
    versions: impl Iterator<Item = VersionId>,
) -> bool {
    let leaving: Vec<VersionId> = versions.chain(gone(history)).collect();
    match (freeing, history.freed_by_deleting_set(&leaving)) {
        (Ok(before), Ok(after)) => after > before,
        _ => true,
    }
}

/// Whether a snapshot can be destroyed, and is not read by one of `pinned`.
fn can_be_freed(version: VersionId, row: &SnapshotRow, pinned: &BTreeSet<VersionId>) -> bool {
    row.holds.is_empty() && !pinned.contains(&version)
}

/// Whether destroying snapshots of a dataset, or of those below it, would free something.
fn snapshots_of_hold_something(state: &State, dataset: &str) -> bool {
    let pinned = state.graveyard.pins().versions();
    let is_below = |row: &SnapshotRow| {
        let of = state.catalogue.dataset(row.dataset);
        of.is_some_and(|of| is_at_or_below(&of.name, dataset))
    };
    let visible = state.catalogue.snapshots().filter(|(_, row)| !row.hidden && is_below(row));
    let free = visible.filter(|(version, row)| can_be_freed(*version, row, &pinned));
    let versions: Vec<VersionId> = free.map(|(version, _)| version).collect();
    !versions.is_empty() && is_more_freed(&state.history, freeing(&state.history), versions.into_iter())
}

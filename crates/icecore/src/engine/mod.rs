//! The engine: one open pool, its state behind one lock, its log, its checkpoints.
//!
//! ARCHITECTURE.md has the order in which locks are taken. Readers take the state lock only to pin a version
//! and to look up its tree.

mod absent;
#[cfg(test)]
mod absent_tests;
mod append;
#[cfg(test)]
mod available_tests;
mod background;
mod burial;
mod checkpoint;
#[cfg(test)]
mod chunk_tests;
mod chunks;
mod claims;
mod collect;
mod copies;
mod copying;
#[cfg(test)]
mod copying_tests;
mod cut;
#[cfg(test)]
mod doomed_tests;
mod files;
mod former;
mod freeing;
mod growth;
mod init;
mod inspect;
#[cfg(test)]
mod layout_tests;
mod ledger;
#[cfg(test)]
mod ledger_tests;
mod limits;
mod line;
mod load;
mod mend;
mod moves;
mod open_files;
mod original;
#[cfg(test)]
mod orphan_tests;
#[cfg(test)]
mod pin_tests;
mod places;
mod readers;
mod rebuild;
mod recovery;
mod remains;
#[cfg(test)]
mod reserve_tests;
#[cfg(test)]
mod resident_tests;
#[cfg(test)]
mod reuse_tests;
mod runs;
#[cfg(test)]
mod set_chunk_tests;
mod sets;
mod settle;
mod size_limit;
#[cfg(test)]
mod size_limit_tests;
mod space;
mod staging;
mod superblocks;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
mod trim;
mod way;

pub(crate) use append::Purpose;
pub use collect::CollectReport;
pub(crate) use cut::{Cut, LEFT_BEHIND, REUSED};
pub(crate) use former::{copied_superblock, former_superblock, older_checkpoints};
pub(crate) use growth::Most;
pub(crate) use init::{
    guarded, init, lock, lock_free_options, open, open_cut, open_to_look, unless_asserted,
};
pub(crate) use limits::Allowed;
pub(crate) use open_files::OpenFiles;
pub use readers::ReaderHold;
pub(crate) use readers::{Read, snapshots_hold_something};
pub(crate) use rebuild::{Forsaken, Restored, ledger_is_whole, restore_chunks, restore_map};
pub(crate) use recovery::OUTLIVED;
pub use remains::Remains;
pub(crate) use space::Making;
pub(crate) use staging::StagedRun;
pub(crate) use superblocks::{
    in_order as superblocks_in_order, put as write_superblock, read as find_superblock,
    read_one as read_superblock,
};
pub(crate) use trim::Keep;
pub use trim::TrimReport;

use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::format::segment::Geometry;
use crate::format::superblock::Superblock;
use crate::log::writer::{Batch, Writer};
use crate::nodes::Nodes;
use crate::options::OpenOptions;
use crate::pins::{Hold, Pin, Pins};
use crate::process::ProcessMark;
use crate::state::{Environment, State};
use crate::statistics::{Counters, Statistics};
use crate::storage::{Storage, StorageLock};
use crate::units::{PoolId, RecordSequence, Timestamp};
use checkpoint::CheckpointLine;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// One open pool.
pub(crate) struct Engine {
    pub options: OpenOptions,
    pub pool: PoolId,
    pub geometry: Geometry,
    pub storage: Arc<dyn Storage>,
    pub blocks: Arc<Blocks>,
    pub nodes: Arc<Nodes>,
    pub pins: Arc<Pins>,
    pub counters: Arc<Counters>,
    pub(crate) writer: Writer,
    state: Mutex<State>,
    /// How many threads wait for the state, and whether its holder makes way.
    way: way::Way,
    superblock: Mutex<Superblock>,
    checkpoint: line::Line<CheckpointLine>,
    /// Held by the thread that makes copies of what was there before.
    copying: Mutex<copying::Copying>,
    collector: collect::Collector,
    signals: background::Signals,
    staging: Arc<staging::Staging>,
    /// Open handles on datasets, by description: rollback refuses while there are any.
    pub(crate) users: Mutex<HashMap<crate::units::DatasetId, Vec<crate::dataset::User>>>,
    pub(crate) open_files: OpenFiles,
    closed: AtomicBool,
    /// Held by the thread that closes the pool.
    closing: Mutex<()>,
    /// A checkpoint was frozen and is not yet durable.
    checkpoint_writing: AtomicBool,
    /// The log has hardly anywhere to go on: see [`Engine::admit`].
    tight: AtomicBool,
    owner: ProcessMark,
    lock: Mutex<Option<Box<dyn StorageLock>>>,
    /// Set where the lock was let go of, though the pool is read further.
    disowned: OnceLock<superblocks::Watch>,
    /// How far the scrub is that goes on at this moment.
    pub(crate) scrubbing: Mutex<Option<crate::pool::ScrubProgress>>,
}

impl Engine {
    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().unwrap_or_else(|| self.way.wait_for(&self.state))
    }

    /// Holds everything that is alive now.
    pub(crate) fn pin(&self, state: &State) -> Pin {
        self.pins.pin(Hold::Pool, state.clock, state.marks_now())
    }

    pub(crate) fn environment(&self) -> Environment<'_> {
        Environment {
            blocks: &self.blocks,
            nodes: &*self.nodes,
            is_replay: false,
            gives_up: false,
            patched: &[],
        }
    }

    /// Refuses what must not go on: the pool is closed, or this process is a fork of its owner.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(self.closed_error());
        }
        if !self.owner.is_here() {
            return Err(Error::Forked { owner: self.owner.process() });
        }
        Ok(())
    }

    pub(crate) fn closed_error(&self) -> Error {
        Error::Invalid(format!("pool {} was closed", self.storage.describe()))
    }

    /// Refuses writes where there must be none.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        match self.writer.failure() {
            Some(reason) => Err(Error::ReadOnlyAfterFailure { reason }),
            None => Ok(()),
        }
    }

    /// Whether this process is the one that opened the pool.
    pub(crate) fn is_owner(&self) -> bool {
        self.owner.is_here()
    }

    /// Returns when record `wanted` is durable.
    pub(crate) fn make_durable(&self, wanted: RecordSequence) -> Result<()> {
        self.check_open()?;
        self.writer.make_durable(wanted, &self.blocks, &self.counters, || self.take_batch(&mut self.state()))
    }

    /// Everything up to now is durable on return.
    pub(crate) fn sync(&self) -> Result<()> {
        let last = self.state().tail.last_sequence();
        self.make_durable(last)
    }

    /// Writes what the log has built, without a flush.
    pub(crate) fn write_log(&self) -> Result<()> {
        self.writer.write(&self.blocks, &self.counters, || self.take_batch(&mut self.state()))
    }

    pub(crate) fn take_batch(&self, state: &mut State) -> Batch {
        if state.tail.is_abandoned() {
            // A thread that leads already finds nothing, and then learns of the failure.
            return Batch {
                pieces: Vec::new(),
                last: RecordSequence(0),
                runs: BTreeSet::new(),
                operations: 0,
            };
        }
        let pieces = state.tail.take();
        Batch {
            pieces,
            last: state.tail.last_sequence(),
            runs: std::mem::take(&mut state.staged),
            operations: std::mem::take(&mut state.operations_pending),
        }
    }

    /// The counters, and how full the pool is.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.counters.read();
        // A medium that cannot be asked has room for nothing.
        let fit = self.storage.space().map_or(0, |space| space.free / self.geometry.bytes);
        let state = self.state();
        let block = crate::units::BLOCK_BYTES as u64;
        statistics.live_bytes = state.segments.live_total() * block;
        // Where damage hides what is being freed, that counts as used: the incidents say so.
        let freeing = state.history.freeing().unwrap_or_default();
        statistics.used_bytes = (state.history.live_in_all().bytes().0).saturating_sub(freeing.bytes().0);
        statistics.freeing_bytes = freeing.bytes().0;
        statistics.freeing_versions = state.history.doomed_count() as u64;
        statistics.segments = state.segments.len() as u64;
        statistics.segments_free = state.segments.free() as u64;
        statistics.segment_file_bytes = statistics.segments * self.geometry.bytes;
        statistics.segments_vacated = state.collection.vacated_count() as u64;
        statistics.segments_corrupt = state.segments.corrupt() as u64;
        statistics.log_bytes = state.log_blocks * block;
        statistics.dirty_bytes = (state.dirty_nodes + self.blocks.pending().count() as u64) * block;
        let creatable = state.segments.creatable().min(fit);
        statistics.capacity_bytes = (statistics.segments + creatable) * self.geometry.bytes;
        statistics.available_bytes = self.writable(&state, fit).0;
        statistics.size_limit_bytes = state.segments.size_limit().map_or(0, |limit| limit.0);
        statistics.kept_bytes = self.reserve(&state, Purpose::Data) as u64 * self.geometry.bytes;
        drop(state);
        statistics.pins = self.pins.count() as u64;
        statistics.failure = self.writer.failure();
        let tally = self.blocks.files().incidents().tally();
        statistics.failed_reads = tally.reads;
        statistics.failed_writes = tally.writes;
        statistics.failed_flushes = tally.flushes;
        statistics.damaged_reads = tally.damage;
        statistics.collector = self.collector.describe();
        let copies = self.blocks.files().copies();
        copies.read_statistics(&mut statistics);
        statistics.copies = copies.report();
        statistics
    }

    /// Calls `body` with the state, and the places and lengths of the ledger's blobs and of chunks, while no
    /// checkpoint is on its way.
    pub(crate) fn with_books<T>(
        &self,
        body: impl FnOnce(&State, &[(crate::units::SegmentId, u32)]) -> Result<T>,
    ) -> Result<T> {
        let line = self.checkpoint.lock();
        let blobs = line.blobs.iter().map(|blob| (blob.segment, blob.blocks));
        let places: Vec<_> = blobs.chain(self.chunk_places()).collect();
        body(&self.state(), &places)
    }

    /// Closes the pool: everything durable, a last checkpoint, and a superblock that says so. Closing twice
    /// is no error.
    pub(crate) fn close(&self) -> Result<()> {
        // A caller that comes second may rely on it that the pool is let go of, too.
        let _once = self.closing.lock();
        if !self.is_owner() || self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.signals.stop();
        let outcome = match self.writer.failure() {
            _ if self.options.read_only => Ok(()),
            Some(reason) => self.lost_with(reason),
            None => self.release_orphans_if_room().and_then(|()| self.finish_freeing()).and_then(|()| {
                // A file that cannot be removed is there the next time.
                let _ = self.trim_to_close();
                self.checkpoint_to_close()
            }),
        };
        self.staging.stop();
        // Work on the pool in callers' threads comes to an end before a new owner can open it.
        let _collection = self.collector.turn();
        let _copying = self.copying.lock();
        let _line = self.checkpoint.lock();
        self.closed.store(true, Ordering::Release);
        // Also a reader, which heals what it finds damaged, or a writer that writes ahead for a group that no
        // caller can commit.
        self.copies().shut();
        *self.lock.lock() = None;
        outcome
    }

    /// After a failure, which may have been met in the background: whether something was done that is not
    /// durable, and will never be.
    fn lost_with(&self, reason: String) -> Result<()> {
        let last = self.state().tail.last_sequence();
        if self.writer.durable() < last { Err(Error::ReadOnlyAfterFailure { reason }) } else { Ok(()) }
    }
}

//! Making room: pruning as policies do, what is done when a pool is full, and the end, when nothing is left.

use super::Life;
use crate::explorer::Verdict;
use crate::model::Step;
use icecore::DestroyTarget;
use icecore::names::SnapshotName;

/// Segments that may be taken when nothing is stored: the log's, those being filled, and what they replace.
const SEGMENTS_OF_NOTHING: u64 = 10;
/// Bytes that may be alive when nothing is stored.
const BYTES_OF_NOTHING: u64 = 1 << 20;
/// Attempts to destroy every dataset that is left.
const PASSES_MAX: usize = 24;

impl Life {
    /// Keeps the newest snapshots and a few of the others.
    pub(super) fn prune(&mut self) -> Result<(), String> {
        let newest = self.random.between(4, 16) as usize;
        let keep_old = self.random.between(0, 40);
        let names = self.snapshots();
        let old = names.len().saturating_sub(newest);
        let doomed: Vec<String> =
            names.into_iter().take(old).filter(|_| !self.random.chance(keep_old)).collect();
        self.destroy(doomed)
    }

    pub(super) fn datasets(&self) -> Vec<String> {
        self.explorer.history.current().datasets().keys().cloned().collect()
    }

    /// The snapshots whose names are known, oldest first.
    fn snapshots(&self) -> Vec<String> {
        self.explorer.history.current().named_snapshots().map(|(name, _)| name).collect()
    }

    /// Destroys snapshots one by one or together; those that are held stay.
    fn destroy(&mut self, doomed: Vec<String>) -> Result<(), String> {
        self.deeds.pruned += doomed.len() as u64;
        if self.random.chance(30) && !doomed.is_empty() {
            let of = doomed.iter().filter_map(|name| SnapshotName::parse(name).ok());
            let of = of.map(|name| (name.dataset_str().to_owned(), vec![name.short().to_owned()])).collect();
            self.perform(Step::Destroy(DestroyTarget::Snapshots { of }))?;
        }
        for name in doomed {
            self.perform(Step::Destroy(DestroyTarget::Snapshot(name)))?;
        }
        Ok(())
    }

    /// The pool is full, and a person has to do something about it: destroying works, and so does going back.
    pub(super) fn make_room(&mut self) -> Result<(), String> {
        self.refusals = 0;
        // A reader keeps what its version reaches.
        self.readers.clear();
        let names = self.snapshots();
        if let Some(snapshot) = self.random.pick(&names).cloned()
            && self.random.chance(30)
        {
            self.must_agree(Step::Rollback { snapshot })?;
        }
        for name in names {
            self.must_agree(Step::Destroy(DestroyTarget::Snapshot(name)))?;
        }
        if self.random.chance(50) {
            let datasets: Vec<String> = self.explorer.history.current().datasets().keys().cloned().collect();
            if let Some(name) = self.random.pick(&datasets).cloned() {
                self.must_agree(Step::Destroy(DestroyTarget::Dataset { name, recursive: true }))?;
            }
        }
        Ok(())
    }

    /// Does a step that must not find the pool too full, unless a fault that was ordered says so.
    fn must_agree(&mut self, step: Step) -> Result<(), String> {
        let (struck, tried) = (self.explorer.disk.faults_struck(), format!("{step:?}"));
        let verdict = self.explorer.perform(step)?;
        self.deeds.steps += 1;
        match verdict {
            Verdict::Agreed => Ok(()),
            Verdict::Cut => self.recover(),
            Verdict::Failed(_) if self.is_lost() => self.mourn(),
            Verdict::Failed(_) if self.explorer.disk.faults_struck() > struck => Ok(()),
            Verdict::Failed(error) => Err(format!(
                "{tried} on a full pool: {error}\n  {:?}\n  {}",
                self.explorer.pool().statistics(),
                self.explorer.recent()
            )),
        }
    }

    /// Destroys everything, and looks whether all space is there again.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.release_all()?;
        // A promotion may bring a dataset more than its quota allows, also after it was renamed.
        self.lift_limits()?;
        for _ in 0..PASSES_MAX {
            for name in self.datasets() {
                self.must_agree(Step::Destroy(DestroyTarget::Dataset { name, recursive: true }))?;
            }
        }
        if !self.datasets().is_empty() {
            return Err(format!("{:?} cannot be destroyed", self.datasets()));
        }
        self.explorer.check()?;
        for _ in 0..3 {
            self.perform(Step::Checkpoint)?;
        }
        let statistics = self.explorer.pool().statistics();
        let taken = statistics.segments - statistics.segments_free;
        if statistics.live_bytes > BYTES_OF_NOTHING || taken > SEGMENTS_OF_NOTHING {
            return Err(format!("{taken} segments are taken by nothing: {statistics:?}"));
        }
        self.close()
    }

    fn release_all(&mut self) -> Result<(), String> {
        let held: Vec<(String, String)> = {
            let named = self.explorer.history.current().named_snapshots();
            named
                .flat_map(|(name, one)| one.holds.iter().map(move |tag| (name.clone(), tag.clone())))
                .collect()
        };
        for (snapshot, tag) in held {
            self.must_agree(Step::Release { tag, snapshot })?;
        }
        Ok(())
    }

    /// Counts what collection did since the pool was opened, before it goes.
    pub(super) fn count_collected(&mut self) {
        if self.explorer.is_open() {
            let statistics = self.explorer.pool().statistics();
            self.deeds.collected += statistics.segments_collected;
            self.deeds.left_behind_bytes += statistics.left_behind_bytes;
            self.deeds.healed += statistics.healed_places;
        }
    }
}

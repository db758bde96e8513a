//! Quotas and reservations for a day, that are soon reached.

use super::Life;
use crate::explorer::Verdict;
use crate::model::{Data, FileChange, Step};
use icecore::limits::Limit;
use icecore::units::{BLOCK_BYTES, ByteLength};
use icecore::{Error, ListEntry, ListFilter};

/// What is written at a time of what was reserved, if it is not a block.
const CLAIM_BYTES: u32 = 64 << 10;
/// Segments that a pool has for what is reserved in it to be sure.
const SEGMENTS_TO_CLAIM: u64 = 20;
/// Most that a piece takes for nodes beside its blocks.
const NODES_BYTES: u64 = 128 << 10;

impl Life {
    /// Now and then a dataset gets a quota for a day, or a reservation, or both.
    pub(super) fn limit(&mut self) -> Result<(), String> {
        self.lift_limits()?;
        if !self.random.chance(20) {
            return Ok(());
        }
        let names = self.datasets();
        for _ in 0..self.random.between(1, 2) {
            let Some(name) = self.random.pick(&names).cloned() else { continue };
            let limit = Limit::ALL[self.random.index(4)];
            let bytes = ByteLength(self.random.between(1, 8) << 20);
            match self.explorer.pool().set_limit(&name, limit, Some(bytes)) {
                Ok(()) => self.deeds.limits += 1,
                // To say that there is one takes room, and so does what is reserved. More cannot be reserved
                // than a quota allows.
                Err(Error::NoSpace { .. } | Error::Invalid(_)) => self.deeds.refusals += 1,
                Err(error) => return Err(format!("a {} of {bytes:?} for {name}: {error}", limit.name())),
            }
        }
        Ok(())
    }

    /// What is reserved for a dataset and not yet used can be written, however full the pool is and however
    /// small the pieces.
    pub(super) fn claim_reserved(&mut self) -> Result<(), String> {
        // Others on the medium may have taken it; and with threads, freeing may not be done yet.
        if self.setting.size_limit.is_none() || self.setting.options.background {
            return Ok(());
        }
        // Of a dozen, nearly all are being filled with something, and the rest may be kept back from all
        // writers.
        if self.explorer.pool().statistics().segments < SEGMENTS_TO_CLAIM {
            return Ok(());
        }
        let entries = self.datasets_listed()?;
        let is_reserved =
            |entry: &&ListEntry| entry.limits.reservation.is_some() || entry.limits.refreservation.is_some();
        let reserved: Vec<_> = entries.iter().filter(is_reserved).collect();
        // What is reserved for one below another is part of what is reserved for that.
        let [entry] = reserved[..] else { return Ok(()) };
        if unused(entry) == 0 { Ok(()) } else { self.claim(&entry.name) }
    }

    fn claim(&mut self, dataset: &str) -> Result<(), String> {
        let path = "claimed".to_owned();
        let change = |change| Step::Change { dataset: dataset.to_owned(), change };
        let piece = if self.random.chance(50) { BLOCK_BYTES as u32 } else { CLAIM_BYTES };
        let mut step = change(FileChange::CreateFile { path: path.clone(), mode: 0o644 });
        let mut claimed = 0;
        loop {
            self.deeds.steps += 1;
            match self.explorer.perform(step)? {
                Verdict::Failed(Error::QuotaExceeded { .. }) => break,
                Verdict::Failed(error) => {
                    return Err(format!(
                        "{claimed} bytes of what is reserved for {dataset} can be written, and then: {error}\n  {:?}",
                        self.explorer.pool().statistics()
                    ));
                }
                Verdict::Agreed | Verdict::Cut => {}
            }
            let entries = self.datasets_listed()?;
            let left = entries.iter().find(|entry| entry.name == dataset).map_or(0, unused);
            if left < u64::from(piece) + NODES_BYTES {
                break;
            }
            let data = Data { seed: self.random.next(), length: piece };
            step = change(FileChange::Write { path: path.clone(), offset: claimed, data });
            claimed += u64::from(piece);
        }
        self.deeds.claims += 1;
        self.perform(change(FileChange::Truncate { path, size: 0 }))
    }

    fn datasets_listed(&self) -> Result<Vec<ListEntry>, String> {
        let filter = ListFilter { datasets: true, ..ListFilter::default() };
        self.explorer.pool().list(&filter).map_err(|error| format!("cannot list datasets: {error}"))
    }

    /// No dataset has a quota or a reservation any more, whatever it is called by now. To say so takes no
    /// room.
    pub(super) fn lift_limits(&self) -> Result<(), String> {
        let pool = self.explorer.pool();
        for entry in self.datasets_listed()? {
            for limit in Limit::ALL.into_iter().filter(|limit| entry.limits.get(*limit).is_some()) {
                let lifted = pool.set_limit(&entry.name, limit, None);
                lifted
                    .map_err(|error| format!("no {} for {} any more: {error}", limit.name(), entry.name))?;
            }
        }
        Ok(())
    }
}

/// Bytes that are reserved for a dataset with its snapshots, and not yet used.
fn unused(entry: &ListEntry) -> u64 {
    entry.limits.reservation.unwrap_or_default().0.saturating_sub(entry.used.0)
}

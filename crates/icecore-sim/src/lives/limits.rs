//! Quotas and reservations for a day, that are soon reached.

use super::Life;
use crate::explorer::Verdict;
use crate::model::{Data, FileChange, Step};
use icecore::limits::Limit;
use icecore::units::ByteLength;
use icecore::{Error, ListEntry, ListFilter};

/// What is written at a time of what was reserved.
const CLAIM_BYTES: u32 = 64 << 10;

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
                // To say that there is one takes room, and so does what is reserved. More cannot be reserved than a quota allows.
                Err(Error::NoSpace { .. } | Error::Invalid(_)) => self.deeds.refusals += 1,
                Err(error) => return Err(format!("a {} of {bytes:?} for {name}: {error}", limit.name())),
            }
        }
        Ok(())
    }

    /// Half of what is reserved for a dataset and not yet used can be written, however full the pool is: the other half is for nodes, and
    /// for what lies in segments beside it.
    pub(super) fn claim_reserved(&mut self) -> Result<(), String> {
        // Others on the medium may have taken it; and with threads, freeing may not be done yet.
        if self.setting.size_limit.is_none() || self.setting.options.background {
            return Ok(());
        }
        let filter = ListFilter { datasets: true, ..ListFilter::default() };
        let entries = self.explorer.pool().list(&filter).map_err(|error| format!("cannot list: {error}"))?;
        let is_reserved =
            |entry: &&ListEntry| entry.limits.reservation.is_some() || entry.limits.refreservation.is_some();
        let reserved: Vec<_> = entries.iter().filter(is_reserved).collect();
        // What is reserved for one below another is part of what is reserved for that.
        let [entry] = reserved[..] else { return Ok(()) };
        let unused = entry.limits.reservation.unwrap_or_default().0.saturating_sub(entry.used.0);
        if unused > 0 { self.claim(&entry.name, unused / 2) } else { Ok(()) }
    }

    fn claim(&mut self, dataset: &str, bytes: u64) -> Result<(), String> {
        let path = "claimed".to_owned();
        let change = |change| Step::Change { dataset: dataset.to_owned(), change };
        let mut steps = vec![change(FileChange::CreateFile { path: path.clone(), mode: 0o644 })];
        for offset in (0..bytes).step_by(CLAIM_BYTES as usize) {
            let data = Data { seed: self.random.next(), length: CLAIM_BYTES };
            steps.push(change(FileChange::Write { path: path.clone(), offset, data }));
        }
        for step in steps {
            self.deeds.steps += 1;
            match self.explorer.perform(step)? {
                Verdict::Failed(Error::QuotaExceeded { .. }) => break,
                Verdict::Failed(error) => {
                    return Err(format!(
                        "of {bytes} bytes, half of what is reserved for {dataset}, not all can be written: {error}\n  {:?}",
                        self.explorer.pool().statistics()
                    ));
                }
                Verdict::Agreed | Verdict::Cut => {}
            }
        }
        self.deeds.claims += 1;
        self.perform(change(FileChange::Truncate { path, size: 0 }))
    }

    /// No dataset has a quota or a reservation any more, whatever it is called by now. To say so takes no room.
    pub(super) fn lift_limits(&self) -> Result<(), String> {
        let pool = self.explorer.pool();
        let filter = ListFilter { datasets: true, ..ListFilter::default() };
        let entries = pool.list(&filter).map_err(|error| format!("cannot list datasets: {error}"))?;
        for entry in entries {
            for limit in Limit::ALL.into_iter().filter(|limit| entry.limits.get(*limit).is_some()) {
                let lifted = pool.set_limit(&entry.name, limit, None);
                lifted
                    .map_err(|error| format!("no {} for {} any more: {error}", limit.name(), entry.name))?;
            }
        }
        Ok(())
    }
}

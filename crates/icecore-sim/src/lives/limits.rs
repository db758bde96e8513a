//! Quotas and reservations for a day, that are soon reached.

use super::Life;
use icecore::limits::Limit;
use icecore::units::ByteLength;
use icecore::{Error, ListFilter};

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

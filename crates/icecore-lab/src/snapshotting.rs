//! Snapshots that are taken while something else is measured.

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Does the work while snapshots are taken: the first after half of the interval, and one in each interval
/// from then on.
pub(crate) fn while_taking<T>(
    interval: Duration,
    mut take: impl FnMut() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    thread::scope(|scope| {
        let (stop, stopped) = channel::<()>();
        let taking = scope.spawn(move || {
            let mut wait = interval / 2;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                take()?;
                wait = interval;
            }
            Ok(())
        });
        let outcome = work();
        drop(stop);
        let panicked = || Error::Panicked { what: "taking snapshots".to_owned() };
        taking.join().unwrap_or_else(|_| Err(panicked()))?;
        outcome
    })
}

/// Snapshots of which only the last ones are kept.
#[derive(Default)]
pub(crate) struct Kept {
    taken: u64,
    names: VecDeque<String>,
}

impl Kept {
    /// Takes a snapshot by a new name, and destroys the oldest if more than `keep` are there.
    pub(crate) fn another(
        &mut self,
        keep: usize,
        take: impl FnOnce(&str) -> Result<()>,
        destroy: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        self.taken += 1;
        let name = format!("kept-{}", self.taken);
        take(&name)?;
        self.names.push_back(name);
        if self.names.len() <= keep {
            return Ok(());
        }
        self.names.pop_front().map_or(Ok(()), |oldest| destroy(&oldest))
    }

    /// How many were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

//! Pins: readers' holds on versions. Nothing that died after a pin was taken is reused while it lasts.

use crate::sync::{Arc, Mutex};
use std::collections::BTreeMap;

/// All pins, by the moment at which they were taken.
#[derive(Default)]
pub(crate) struct Pins {
    by_moment: Mutex<BTreeMap<u64, usize>>,
}

impl Pins {
    /// Pins everything alive at `moment`.
    pub(crate) fn pin(self: &Arc<Self>, moment: u64) -> Pin {
        *self.by_moment.lock().entry(moment).or_default() += 1;
        Pin { pins: Arc::clone(self), moment }
    }

    /// The oldest moment that is pinned.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.by_moment.lock().keys().next().copied()
    }

    /// Number of pins.
    pub(crate) fn count(&self) -> usize {
        self.by_moment.lock().values().sum()
    }
}

/// One pin; let go when dropped.
pub(crate) struct Pin {
    pins: Arc<Pins>,
    moment: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut by_moment = self.pins.by_moment.lock();
        if let Some(count) = by_moment.get_mut(&self.moment) {
            *count -= 1;
            if *count == 0 {
                by_moment.remove(&self.moment);
            }
        }
    }
}

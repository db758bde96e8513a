//! Pins: readers' holds on versions. Nothing that died after a pin was taken is reused while it lasts.

use crate::units::LogAddress;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All pins, by the moment at which they were taken.
#[derive(Default)]
pub(crate) struct Pins {
    by_moment: Mutex<BTreeMap<u64, Taken>>,
}

/// Pins of one moment.
struct Taken {
    count: usize,
    /// Merged blocks from here on were born later.
    merged_end: LogAddress,
}

impl Pins {
    /// Pins everything alive at `moment`, when merged blocks had got addresses up to, not including, `merged_end`.
    pub(crate) fn pin(self: &Arc<Self>, moment: u64, merged_end: LogAddress) -> Pin {
        let mut by_moment = self.by_moment.lock();
        by_moment.entry(moment).or_insert(Taken { count: 0, merged_end }).count += 1;
        drop(by_moment);
        Pin { pins: Arc::clone(self), moment }
    }

    /// The oldest moment that is pinned.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.by_moment.lock().keys().next().copied()
    }

    /// Number of pins.
    pub(crate) fn count(&self) -> usize {
        self.by_moment.lock().values().map(|taken| taken.count).sum()
    }

    /// Whether some reader may reach a merged block that died at `moment`: its pin was taken before, and after the
    /// block was born.
    pub(crate) fn reach_merged(&self, moment: u64, address: LogAddress) -> bool {
        // Addresses grow with time, so the last pin before the death has the best chance.
        let by_moment = self.by_moment.lock();
        by_moment.range(..moment).next_back().is_some_and(|(_, taken)| address < taken.merged_end)
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
        if let Some(taken) = by_moment.get_mut(&self.moment) {
            taken.count -= 1;
            if taken.count == 0 {
                by_moment.remove(&self.moment);
            }
        }
    }
}

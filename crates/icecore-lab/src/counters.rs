//! The store's own counters, as results carry them.

use crate::device::Device;
use icecore::{Pool, Statistics};
use std::collections::BTreeMap;
use std::path::Path;

/// Counters by name, the unit at the end of each name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counters(BTreeMap<String, f64>);

impl Counters {
    /// What the pool has done since it was opened.
    #[must_use]
    pub fn of(pool: &Pool) -> Self {
        Self::of_statistics(&pool.statistics())
    }

    /// What statistics of a pool say it has done.
    #[must_use]
    pub fn of_statistics(statistics: &Statistics) -> Self {
        Self(done(statistics).map(|(name, value)| (name.to_owned(), value as f64)).collect())
    }

    /// What the block device under a folder has done, for all that use it. Empty where the system does not
    /// report it.
    #[must_use]
    pub fn of_device(folder: &Path) -> Self {
        let mut counters = Self::default();
        if let Some(counts) = Device::of(folder).ok().and_then(|device| device.counted()) {
            counters.set("device_writes", counts.writes as f64);
            counters.set("device_written_bytes", counts.written_bytes as f64);
            counters.set("device_flushes", counts.flushes as f64);
        }
        counters
    }

    /// Sets one of them.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    /// One of them, 0 if it is not there.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// What has happened since `before` was read.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less =
            |(name, &value): (&String, &f64)| (name.clone(), value - before.0.get(name).unwrap_or(&0.0));
        Self(self.0.iter().map(less).collect())
    }

    /// All of them together.
    #[must_use]
    pub fn sum<'counters>(all: impl IntoIterator<Item = &'counters Self>) -> Self {
        let mut sum = BTreeMap::new();
        for counters in all {
            for (name, value) in &counters.0 {
                *sum.entry(name.clone()).or_insert(0.0) += value;
            }
        }
        Self(sum)
    }

    /// The bare map.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, f64> {
        self.0
    }
}

/// Counters that only grow; what is a level at one moment has no sum over runs.
pub(crate) fn done(statistics: &Statistics) -> impl Iterator<Item = (&'static str, u64)> {
    const LEVELS: [&str; 12] = [
        "live_bytes",
        "used_bytes",
        "freeing_bytes",
        "freeing_versions",
        "segment_file_bytes",
        "segments_free",
        "segments",
        "segments_vacated",
        "segments_corrupt",
        "log_bytes",
        "dirty_bytes",
        "pins",
    ];
    statistics.counters().into_iter().filter(|(name, _)| !LEVELS.contains(name))
}

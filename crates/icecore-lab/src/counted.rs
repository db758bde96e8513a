//! What the predictions of `model` are held against: the counts of `shock` in its run of durable writes.

use crate::charts::Key;
use crate::charts::device::{self, COUNTERS, DURABLE};
use crate::error::{Error, Result};
use crate::published::{self, COUNTED};
use crate::report::{Report, System};
use crate::trace::Trace;
use std::collections::BTreeMap;
use std::path::Path;

/// Counts of some systems, and the writes of all of them.
pub struct Counted {
    /// Where they come from, in words.
    pub(crate) source: String,
    writes: u64,
    file_bytes: u64,
    block_bytes: u64,
    systems: Vec<(String, u64, Counts)>,
}

/// What the device did for each write, in the order of [`COUNTERS`].
type Counts = [f64; COUNTERS.len()];

/// Counters that are compared. How many flushes the kernel makes of those that come at once is not modelled.
const COMPARED: usize = COUNTERS.len() - 1;

/// More than a run counts, and as many as are replayed in moments.
const WRITES_MAX: u64 = 10_000_000;

impl Counted {
    /// The published counts.
    pub(crate) fn in_guest() -> Self {
        let systems = published::all_counts().iter();
        Self {
            source: published::GUEST.to_owned(),
            writes: COUNTED.writes,
            file_bytes: COUNTED.file_bytes,
            block_bytes: COUNTED.block_bytes,
            systems: systems.map(|count| (count.system.to_owned(), count.snapshots, count.values)).collect(),
        }
    }

    /// The counts in a result of `shock`.
    ///
    /// # Errors
    /// It cannot be read, is no result, or has no counts of durable writes.
    pub fn read(path: &Path) -> Result<Self> {
        Self::of(&Report::read(path)?).ok_or_else(|| Error::NoCounts { what: path.display().to_string() })
    }

    fn of(report: &Report) -> Option<Self> {
        let source = format!("counted by shock on {}", report.started);
        let counted = |(name, system): (&String, &System)| {
            let key = Key::of(name);
            let snapshots = key.snapshots.filter(|_| key.run == DURABLE)?;
            Some((key.system.to_owned(), snapshots, counts(&system.counters)?))
        };
        let systems: Vec<_> = report.systems.iter().filter_map(counted).collect();
        let is_counted = device::has_durable_writes(report) && !systems.is_empty();
        let parameter = |name| report.count(name).filter(|_| is_counted);
        let writes = parameter("writes").filter(|writes| (1..=WRITES_MAX).contains(writes))?;
        let file_bytes = parameter("file_bytes")?;
        let block_bytes = parameter("block_bytes").filter(|block| (1..=file_bytes).contains(block))?;
        Some(Self { source, writes, file_bytes, block_bytes, systems })
    }

    /// Writes as those that were counted.
    pub(crate) fn trace(&self, seed: u64) -> Trace {
        Trace::random(self.writes, self.file_bytes, self.block_bytes, seed)
    }

    /// The writes in words.
    pub(crate) fn writes_in_words(&self) -> String {
        let Self { writes, file_bytes, block_bytes, .. } = self;
        format!(
            "{writes} random writes of {} KiB over {} MiB, each durable",
            block_bytes >> 10,
            file_bytes >> 20
        )
    }

    /// How far the prediction is from what was counted, relative to that, at the worst. Puts the counts
    /// beside the predictions. `None` where the system was not counted.
    pub(crate) fn error(
        &self,
        system: &str,
        snapshots: u64,
        counters: &mut BTreeMap<String, f64>,
    ) -> Option<f64> {
        let is_same = |row: &&(String, u64, Counts)| (row.0.as_str(), row.1) == (system, snapshots);
        let (_, _, counted) = self.systems.iter().find(is_same)?;
        let predicted = counts(counters)?;
        for ((name, _), counted) in COUNTERS.iter().zip(counted) {
            counters.insert(device::counted(name), *counted);
        }
        let block_kib = self.block_bytes as f64 / 1024.0;
        let compared = COUNTERS.iter().zip(counted.iter().zip(predicted)).take(COMPARED);
        let errors = compared.map(|((name, _), (counted, predicted))| {
            // Of each write: one request, or the bytes of its block.
            let unit = if name.contains("_kib_") { block_kib } else { 1.0 };
            relative(*counted / unit, predicted / unit)
        });
        Some(errors.fold(0.0, f64::max))
    }
}

/// Far less than one request, or one block, for each write is none: the system did something else meanwhile.
const NOTHING: f64 = 0.01;

fn relative(counted: f64, predicted: f64) -> f64 {
    // Nothing is all or nothing.
    if counted < NOTHING { (predicted - counted).abs() } else { (predicted - counted).abs() / counted }
}

fn counts(counters: &BTreeMap<String, f64>) -> Option<Counts> {
    let mut counts = Counts::default();
    for (place, (name, _)) in counts.iter_mut().zip(COUNTERS) {
        *place = *counters.get(name)?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::empty;

    fn counters(values: Counts) -> BTreeMap<String, f64> {
        COUNTERS.iter().zip(values).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
    }

    fn shock() -> Report {
        let system = |values| System::new("writes/s", vec![1.0]).with_counters(counters(values));
        let systems = [
            ("lvm/sync/1".to_owned(), system([1.0, 16.0, 5.0, 36.0, 4.0])),
            ("lvm/direct/1".to_owned(), system([9.0; 5])),
        ];
        let parameters = [("writes", 4_u64), ("file_bytes", 1 << 20), ("block_bytes", 16 << 10)]
            .map(|(name, value)| (name.to_owned(), value.into()));
        Report { systems: systems.into(), parameters: parameters.into(), ..empty() }
    }

    #[test]
    fn a_prediction_is_held_against_the_durable_writes_of_the_same_system() {
        let counted = Counted::of(&shock()).expect("it has counts");
        assert_eq!(counted.trace(7).writes(), 4);
        assert_eq!(counted.writes_in_words(), "4 random writes of 16 KiB over 1 MiB, each durable");
        // Twice as many flushes are no error, and 36 KiB for 45 is the worst.
        let mut predicted = counters([1.1, 16.0, 5.0, 45.0, 8.0]);
        assert_eq!(counted.error("lvm", 1, &mut predicted), Some(0.25));
        assert_eq!(predicted["counted_device_flushes_per_op"], 4.0);
        assert_eq!(counted.error("lvm", 4, &mut predicted), None);
        assert_eq!(counted.error("zfs", 1, &mut predicted), None);
    }

    #[test]
    fn a_few_requests_of_thousands_of_writes_are_none() {
        let mut report = shock();
        let few = System::new("writes/s", vec![1.0]).with_counters(counters([0.001, 0.016, 2.0, 16.0, 1.0]));
        report.systems.insert("plain/sync/0".to_owned(), few);
        let counted = Counted::of(&report).expect("it has counts");
        let error = |values| counted.error("plain", 0, &mut counters(values)).expect("it was counted");
        assert!(error([0.0, 0.0, 2.0, 16.0, 1.0]) < 0.01, "a thousandth of a request, and of its block");
        assert!(error([1.0, 16.0, 2.0, 16.0, 1.0]) > 0.9, "a read for each write");
    }

    #[test]
    fn a_result_without_counts_or_sizes_is_refused() {
        let refused = |change: &dyn Fn(&mut Report)| {
            let mut report = shock();
            change(&mut report);
            assert!(Counted::of(&report).is_none());
        };
        refused(&|report| report.experiment = "valuation".to_owned());
        refused(&|report| report.systems.clear());
        refused(&|report| drop(report.parameters.remove("writes")));
        for writes in [0_u64, u64::MAX] {
            refused(&|report| drop(report.parameters.insert("writes".to_owned(), writes.into())));
        }
        refused(&|report| drop(report.parameters.insert("block_bytes".to_owned(), 0_u64.into())));
        refused(&|report| drop(report.parameters.insert("block_bytes".to_owned(), (2_u64 << 20).into())));
    }
}

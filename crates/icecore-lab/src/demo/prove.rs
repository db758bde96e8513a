//! Proofs: every snapshot is opened and read in full, and must hold exactly what it held when it was taken.

use super::{DemoProgress, DemoStep, Taken};
use crate::error::{Error, Result};
use crate::stored::StoredDatabase;
use crate::valuation::Contents;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Page cache of a connection that proves: the integrity check visits index pages in random order.
const CACHE_KIBIBYTES: i64 = 24 << 10;

/// What was found in one snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// Name of the snapshot.
    pub snapshot: String,
    /// What `PRAGMA integrity_check` said, or why the snapshot could not be read.
    pub integrity: String,
    /// What the table held when the snapshot was taken.
    pub expected: Contents,
    /// What it holds now.
    pub found: Contents,
}

impl Proof {
    /// Whether the snapshot is whole, and what it was.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.integrity == "ok" && self.expected == self.found
    }
}

/// The first version joined with the last, in one query.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// The query.
    pub sql: String,
    /// Rows that are in both versions.
    pub rows: u64,
    /// How many of them have another value now.
    pub changed: u64,
    /// By how much the sum of all values differs.
    pub difference: f64,
    /// How many rows both versions must have in common.
    pub rows_expected: u64,
    /// How many of these must have changed.
    pub changed_expected: u64,
}

impl Joined {
    /// Whether the query found what it had to.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.rows == self.rows_expected && self.changed == self.changed_expected
    }
}

/// Proves every snapshot, on as many threads as there are cores.
pub(super) fn all(
    database: &StoredDatabase,
    taken: &[Taken],
    threads: Option<usize>,
    progress: &mut dyn FnMut(DemoProgress),
) -> Result<Vec<Proof>> {
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
    // The newest are the largest: taken first, no thread is left with a long one at the end.
    let left = AtomicUsize::new(taken.len());
    let (sender, receiver) = mpsc::channel();
    let of = u32::try_from(taken.len()).unwrap_or(u32::MAX);
    let mut proofs: Vec<Option<Proof>> = vec![None; taken.len()];
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, left) = (sender.clone(), &left);
            scope.spawn(move || {
                while let Some(index) = claim(left) {
                    if sender.send((index, prove(database, &taken[index]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (index, proof)) in (1..).zip(&receiver) {
            proofs[index] = Some(proof);
            progress(DemoProgress { step: DemoStep::Proof, done, of });
        }
    });
    let unproved = || Error::Panicked { what: "the proof of a snapshot".to_owned() };
    proofs.into_iter().map(|proof| proof.ok_or_else(unproved)).collect()
}

/// Takes the last index that no thread has taken.
fn claim(left: &AtomicUsize) -> Option<usize> {
    let take = |count: usize| count.checked_sub(1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|count| count - 1)
}

/// A snapshot that cannot be read is a failed proof, not an end of the demonstration.
fn prove(database: &StoredDatabase, taken: &Taken) -> Proof {
    let (integrity, found) =
        examine(database, taken).unwrap_or_else(|error| (error.to_string(), Contents::default()));
    Proof { snapshot: taken.name.clone(), integrity, expected: taken.contents, found }
}

fn examine(database: &StoredDatabase, taken: &Taken) -> Result<(String, Contents)> {
    let connection = database.connect(Some(&taken.name))?;
    connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES)?;
    let integrity = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    Ok((integrity, Contents::read(&connection)?))
}

/// Joins the first version with the last.
pub(super) fn join(database: &StoredDatabase, taken: &[Taken], periods: u32) -> Result<Joined> {
    let (Some(first), Some(last)) = (taken.first(), taken.last()) else {
        let reason = "no snapshot was taken".to_owned();
        return Err(Error::Inconclusive { what: "the demonstration".to_owned(), reason });
    };
    let connection = database.connect(Some(&last.name))?;
    connection.execute("ATTACH ?1 AS first", [database.uri(Some(&first.name))])?;
    let sql = "select count(*), count(nullif(old.value, new.value)), total(new.value - old.value)\n  \
               from first.valuation as old join main.valuation as new using (id)";
    let (rows, changed, sum): (i64, i64, f64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(Joined {
        sql: sql.to_owned(),
        rows: rows.cast_unsigned(),
        changed: changed.cast_unsigned(),
        difference: sum,
        rows_expected: u64::from(periods),
        // The second iteration changes every value of the first.
        changed_expected: if taken.len() > 1 { u64::from(periods) } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_claimed_once() {
        let left = AtomicUsize::new(3);
        let claimed: Vec<_> = std::iter::from_fn(|| claim(&left)).collect();
        assert_eq!(claimed, [2, 1, 0]);
        assert_eq!(claim(&left), None);
    }

    #[test]
    fn a_proof_fails_for_each_of_its_parts() {
        let contents = Contents { rows: 1, sum: 2 };
        let good = Proof {
            snapshot: "s".to_owned(),
            integrity: "ok".to_owned(),
            expected: contents,
            found: contents,
        };
        assert!(good.holds());
        assert!(!Proof { integrity: "row 1 missing".to_owned(), ..good.clone() }.holds());
        assert!(!Proof { found: Contents { rows: 2, sum: 2 }, ..good.clone() }.holds());
        assert!(!Proof { found: Contents { rows: 1, sum: 3 }, ..good }.holds());
    }
}

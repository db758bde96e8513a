//! The demonstration: 95 versions of a growing database, each of them proved afterwards, beside the same
//! work on the plain filesystem.

mod prove;
mod table;

pub use prove::{Joined, Proof};

use crate::error::{Doing, PLAIN, Result, STORED};
use crate::options::scratch_in;
use crate::sqlite::{self, Journal};
use crate::stored::StoredDatabase;
use crate::valuation::{self, Contents, Valuation};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Choices of the demonstration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemoOptions {
    /// The folder in which a temporary folder is made; the system's own choice if `None`.
    pub directory: Option<PathBuf>,
    /// Leave the temporary folder behind, to play with.
    pub keep: bool,
    /// Iterations, each followed by a snapshot.
    pub iterations: u32,
    /// Rows inserted by each iteration.
    pub periods: u32,
    /// Seed of the values.
    pub seed: u64,
    /// Threads that prove snapshots; `None` takes as many as there are cores.
    pub threads: Option<usize>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            directory: None,
            keep: false,
            iterations: valuation::ITERATIONS,
            periods: valuation::PERIODS,
            seed: 2014,
            threads: None,
        }
    }
}

/// What the demonstration is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DemoStep {
    /// The workload on the plain filesystem.
    Plain,
    /// The workload in a pool, a snapshot after each iteration.
    Stored,
    /// Proving snapshots.
    Proof,
}

/// Reported after each iteration, snapshot or proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DemoProgress {
    /// The step under way.
    pub step: DemoStep,
    /// How many are done.
    pub done: u32,
    /// Of how many.
    pub of: u32,
}

/// Everything that the demonstration found out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DemoReport {
    /// Seconds of SQL on the plain filesystem.
    pub plain_sql_s: f64,
    /// Seconds of SQL in the pool.
    pub stored_sql_s: f64,
    /// Seconds for taking each snapshot.
    pub snapshot_s: Vec<f64>,
    /// Seconds for all proofs.
    pub proof_s: f64,
    /// Seconds from beginning to end.
    pub total_s: f64,
    /// Bytes of the plain database file.
    pub plain_bytes: u64,
    /// What the pool holds.
    pub pool: PoolFigures,
    /// One proof for each snapshot, in the order in which they were taken.
    pub proofs: Vec<Proof>,
    /// The query that joins the first version with the last.
    pub joined: Joined,
    /// The folder, if it was kept.
    pub kept: Option<PathBuf>,
}

/// Space figures of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolFigures {
    /// Bytes of live data and metadata.
    pub used_bytes: u64,
    /// Bytes of the pool's files.
    pub file_bytes: u64,
    /// Bytes that only the first snapshot holds: what destroying it gives back.
    pub first_own_bytes: u64,
    /// Bytes that can be read in the first snapshot.
    pub first_referenced_bytes: u64,
    /// Bytes that can be read in all versions together, the present one included: what as many copies would
    /// take.
    pub copies_bytes: u64,
}

impl DemoReport {
    /// Whether every snapshot is proved and the join gave what it must.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        !self.proofs.is_empty() && self.proofs.iter().all(Proof::holds) && self.joined.holds()
    }

    /// The table and the verdict, for people.
    #[must_use]
    pub fn table(&self) -> String {
        table::table(self)
    }
}

/// Runs the demonstration. Proofs that fail are in the report: see [`DemoReport::succeeded`].
pub fn demo(options: &DemoOptions, progress: &mut dyn FnMut(DemoProgress)) -> Result<DemoReport> {
    let begin = Instant::now();
    let parent = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let folder = scratch_in(&parent)?;
    let (plain_sql_s, plain_bytes) =
        run_plain(folder.path(), options, progress).map_err(|error| error.of_side(PLAIN, folder.path()))?;
    let stored =
        run_stored(folder.path(), options, progress).map_err(|error| error.of_side(STORED, folder.path()))?;
    let proof_begin = Instant::now();
    let proofs = prove::all(&stored.database, &stored.taken, options.threads, progress)?;
    let joined = prove::join(&stored.database, &stored.taken, options.periods)?;
    let proof_s = proof_begin.elapsed().as_secs_f64();
    let pool = figures(&stored.database, &stored.taken)?;
    drop(stored.database);
    let kept = options.keep.then(|| folder.keep());
    Ok(DemoReport {
        plain_sql_s,
        stored_sql_s: stored.sql_s,
        snapshot_s: stored.snapshot_s,
        proof_s,
        total_s: begin.elapsed().as_secs_f64(),
        plain_bytes,
        pool,
        proofs,
        joined,
        kept,
    })
}

/// A snapshot, with what the database held when it was taken.
#[derive(Clone, Debug)]
struct Taken {
    name: String,
    contents: Contents,
}

struct Stored {
    database: StoredDatabase,
    taken: Vec<Taken>,
    sql_s: f64,
    snapshot_s: Vec<f64>,
}

fn run_plain(
    folder: &Path,
    options: &DemoOptions,
    progress: &mut dyn FnMut(DemoProgress),
) -> Result<(f64, u64)> {
    let path = folder.join("plain.db");
    let connection = sqlite::open_plain(&path, Journal::Wal)?;
    let mut workload = Valuation::begin(&connection, options.periods, options.seed)?;
    let begin = Instant::now();
    for done in 1..=options.iterations {
        workload.iterate()?;
        progress(DemoProgress { step: DemoStep::Plain, done, of: options.iterations });
    }
    let seconds = begin.elapsed().as_secs_f64();
    drop(workload);
    drop(connection);
    let bytes = path.metadata().doing(|| format!("measure {}", path.display()))?.len();
    Ok((seconds, bytes))
}

fn run_stored(
    folder: &Path,
    options: &DemoOptions,
    progress: &mut dyn FnMut(DemoProgress),
) -> Result<Stored> {
    let database = StoredDatabase::create(&folder.join("pool"), &icecore::OpenOptions::default())?;
    let connection = database.connect(None)?;
    let mut workload = Valuation::begin(&connection, options.periods, options.seed)?;
    let (mut taken, mut sql_s, mut snapshot_s) = (Vec::new(), 0.0, Vec::new());
    for done in 1..=options.iterations {
        let begin = Instant::now();
        workload.iterate()?;
        sql_s += begin.elapsed().as_secs_f64();
        let name = format!("after-{done:03}");
        let begin = Instant::now();
        StoredDatabase::snapshot(&connection, &name)?;
        snapshot_s.push(begin.elapsed().as_secs_f64());
        taken.push(Taken { name, contents: workload.contents() });
        progress(DemoProgress { step: DemoStep::Stored, done, of: options.iterations });
    }
    drop(workload);
    drop(connection);
    Ok(Stored { database, taken, sql_s, snapshot_s })
}

fn figures(database: &StoredDatabase, taken: &[Taken]) -> Result<PoolFigures> {
    let sizes = database.sizes()?;
    let first = taken.first().and_then(|taken| sizes.snapshots.iter().find(|size| size.name == taken.name));
    Ok(PoolFigures {
        used_bytes: sizes.used_bytes,
        file_bytes: sizes.file_bytes,
        first_own_bytes: first.map_or(0, |size| size.used_bytes),
        first_referenced_bytes: first.map_or(0, |size| size.referenced_bytes),
        copies_bytes: sizes.referenced_bytes
            + sizes.snapshots.iter().map(|size| size.referenced_bytes).sum::<u64>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(folder: &Path) -> DemoOptions {
        let directory = Some(folder.to_owned());
        DemoOptions { directory, iterations: 4, periods: 60, threads: Some(2), ..DemoOptions::default() }
    }

    #[test]
    fn every_snapshot_is_proved_and_the_folder_goes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut heard = Vec::new();
        let report = demo(&small(folder.path()), &mut |progress| heard.push(progress)).expect("run");
        assert!(report.succeeded(), "{}", report.table());
        assert_eq!(
            report.proofs.iter().map(|proof| proof.found.rows).collect::<Vec<_>>(),
            [60, 120, 180, 240]
        );
        assert_eq!((report.joined.rows, report.joined.changed), (60, 60));
        assert_eq!(heard.len(), 12);
        assert!(report.table().contains("all 4 snapshots pass integrity_check"));
        assert!(report.kept.is_none());
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_failure_names_its_side_and_what_the_store_says() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let init = icecore::InitOptions {
            segment_bytes: 2 << 20,
            size_limit: Some(icecore::units::ByteLength(32 << 20)),
            ..icecore::InitOptions::default()
        };
        let path = folder.path().join("pool");
        icecore::Pool::init_directory(&path, &init).expect("made");
        let database = StoredDatabase::open(&path, &icecore::OpenOptions::default()).expect("opened");
        let connection = database.connect(None).expect("connected");
        let mut workload = Valuation::begin(&connection, 2000, 1).expect("the table");
        let error = (0..100).find_map(|_| workload.iterate().err()).expect("too much for a small pool");
        let said = error.of_side(STORED, folder.path()).to_string();
        assert!(said.contains("the side with icecore failed") && said.contains("size limit"), "{said}");
        assert!(said.contains("MiB are free"), "{said}");
    }

    #[test]
    fn a_kept_pool_can_be_opened_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let report = demo(&DemoOptions { keep: true, ..small(folder.path()) }, &mut |_| ()).expect("run");
        let pool = report.kept.expect("kept").join("pool");
        let pool = icecore::Pool::open_directory(&pool, &icecore::OpenOptions::default()).expect("opened");
        let filter = icecore::ListFilter { snapshots: true, ..Default::default() };
        assert_eq!(pool.list(&filter).expect("listed").len(), 4);
    }

    #[test]
    fn a_snapshot_that_is_not_what_it_was_fails_its_proof_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = small(folder.path());
        let mut stored = run_stored(folder.path(), &options, &mut |_| ()).expect("run");
        stored.taken[1].contents.sum ^= 1;
        stored.taken[2].name = "not-there".to_owned();
        let proofs = prove::all(&stored.database, &stored.taken, None, &mut |_| ()).expect("proved");
        let holds: Vec<bool> = proofs.iter().map(Proof::holds).collect();
        assert_eq!(holds, [true, false, false, true]);
        assert!(proofs[2].integrity.contains("not-there"), "{}", proofs[2].integrity);
    }
}

//! `recovery`: opening a pool after a kill, with the longest log that the defaults allow.
//!
//! A process of its own writes with twice the default bound on the log, so that no checkpoint starts before
//! the log is as long as the defaults would ever let it grow; then it is killed with SIGKILL. What the page
//! cache holds of the pool's files is dropped before the pool is opened, as after a crash of the machine.

use super::Findings;
use crate::child::Job;
use crate::device::drop_cached;
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median};
use crate::storefile::StoreFile;
use icecore::OpenOptions;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::Instant;

const WRITE_BYTES: usize = 4 << 10;
/// A flush after so many writes: the records stay small, and the log is made in reasonable time.
const SYNC_WRITES: u64 = 8;
/// Printed when the log is long enough.
const READY: &str = "the log is long enough";

/// What the process that gets killed does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LongLog {
    /// Folder of the pool, not there yet.
    folder: PathBuf,
    /// Size of the file that is updated at random places.
    file_bytes: u64,
    /// Bytes of log to write.
    log_bytes: u64,
    seed: u64,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(10, 1);
    let log_bytes = options.size(OpenOptions::default().log_bytes_max, 8 << 20);
    let file_bytes = options.size(1 << 30, 16 << 20);
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let folder = options.scratch()?;
        let folder = folder.path().join("pool");
        let job = LongLog { folder, file_bytes, log_bytes, seed: options.seed + round as u64 };
        let seconds = run_once(options, &job)?;
        options.say(&format!("round {round} of {rounds}: {seconds:.2} s"))?;
        samples.push(seconds);
    }
    let mut findings = Findings::default();
    findings.check(Check::new("recovery.seconds", bootstrap(&samples, median, options.seed)));
    findings.system("open", System::new("s", samples));
    findings.parameter("rounds", rounds);
    findings.parameter("log_bytes", log_bytes);
    findings.parameter("file_bytes", file_bytes);
    findings.parameter("write_bytes", WRITE_BYTES);
    findings.parameter("sync_writes", SYNC_WRITES);
    Ok(findings)
}

fn run_once(options: &Options, job: &LongLog) -> Result<f64> {
    kill_when_ready(options, &Job::LongLog(job.clone()))?;
    drop_cached(&job.folder)?;
    let begin = Instant::now();
    let file = StoreFile::open_in(&job.folder, &OpenOptions::default())?;
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(file.size()?, job.file_bytes, "the file is there after recovery");
    Ok(seconds)
}

fn kill_when_ready(options: &Options, job: &Job) -> Result<()> {
    let mut child = options.child.start(job)?;
    let output = child.process().stdout.take().ok_or_else(|| job.failure("its output is not captured"))?;
    let ready =
        BufReader::new(output).lines().map_while(std::io::Result::ok).any(|line| line.contains(READY));
    // It never ends by itself, so whatever it is doing, this is when it dies.
    let killed = child.process().kill();
    let status = child.process().wait().doing(|| "wait for the process killed".to_owned())?;
    if !ready {
        return Err(job.failure(&format!("it ended before the log was long enough: {status}")));
    }
    killed.doing(|| "kill the process that writes".to_owned())
}

/// Runs in the process that gets killed.
pub(crate) fn serve(job: &LongLog) -> Result<()> {
    let default = OpenOptions::default();
    let mut random = Random::new(job.seed);
    let before = StoreFile::create_in(&job.folder, &default)?;
    before.fill(job.file_bytes, &mut random)?;
    // A clean close leaves no log behind: what is written from here on is all of it.
    before.pool().close()?;
    drop(before);
    let patient =
        OpenOptions { log_bytes_max: job.log_bytes.saturating_mul(4), dirty_bytes_max: u64::MAX, ..default };
    let file = StoreFile::open_in(&job.folder, &patient)?;
    let mut data = vec![0; WRITE_BYTES];
    random.fill(&mut data);
    let mut written: u64 = 0;
    loop {
        for _ in 0..SYNC_WRITES {
            let offset = random.below(job.file_bytes / WRITE_BYTES as u64) * WRITE_BYTES as u64;
            file.write(offset, &data)?;
            written += WRITE_BYTES as u64;
        }
        file.sync()?;
        // The header block that each flush adds.
        written += WRITE_BYTES as u64;
        if written >= job.log_bytes {
            // Said again after every further length: if no reader listens any more, that fails and ends it.
            println!("\n{READY}");
            std::io::stdout().flush().doing(|| "report that the log is long enough".to_owned())?;
            written = 0;
        }
    }
}

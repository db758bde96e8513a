//! `soak`: a pool that works for as long as one likes, and nothing grows.
//!
//! A real pool with the defaults, in a process of its own, on a real disk. Work goes in cycles: a SQLite
//! writer, a writer of groups, a thread that takes, holds and destroys snapshots, readers of the past,
//! clones, promotions, rollbacks, datasets that come and go, quotas, a scrub now and then, and a thread that
//! looks at all of it from outside. It is paced, not flat out: hours of it must not wear a disk out. Each
//! cycle ends by bringing the pool back to the same state. Contents are compared with what they have to be,
//! everything but three datasets is destroyed, and the books are verified. Then the experiment measures what
//! the process and the pool take.
//!
//! What counts as growth is the last quarter of the cycles against the second: the first one warms caches up.
//! They have bounds (64 MiB of blocks, 32 MiB of nodes). Files are several times as large and read in whole
//! in each cycle, so that they are full from the second cycle on. Segment files, each of which the pool keeps
//! open, are made before the first cycle, so that collection has work to do all the time.

mod branches;
mod database;
mod pieces;
pub mod process;
mod sample;
mod snapshots;
mod watch;

use super::Findings;
use crate::child::Job;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::report::{Check, System};
use crate::statistics::{Estimate, bootstrap, median};
use crate::tool;
use icecore::OpenOptions;
use process::{Line, Soak};
use sample::{Deeds, Sample};
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

/// How long it takes unless something else is asked for.
const USUAL: Duration = Duration::from_secs(10 * 60);
const QUICK: Duration = Duration::from_secs(12);
/// A cycle, where there is time for enough of them.
const CYCLE: Duration = Duration::from_secs(60);
/// So many cycles there are at least: fewer would have no quarters.
const CYCLES_MIN: u32 = 8;
const MEBIBYTE: f64 = (1 << 20) as f64;

pub(super) fn run(options: &Options) -> Result<Findings> {
    let duration = options.duration.unwrap_or(options.size(USUAL, QUICK));
    let folder = options.scratch()?;
    let inside = folder.path().canonicalize().doing(|| format!("find {}", folder.path().display()))?;
    let soak = Soak {
        folder: inside.join("pool"),
        mirror: inside.join("copies"),
        duration,
        cycle: CYCLE.min(duration / CYCLES_MIN),
        segment_bytes: options.size(16 << 20, 2 << 20),
        pool_bytes: options.size(1 << 30, 80 << 20),
        plain_bytes: options.size(400 << 20, 24 << 20),
        base_bytes: options.size(8 << 20, 2 << 20),
        rows: options.size(60_000, 2_000),
        seed: options.seed,
    };
    match watch_process(options, &soak) {
        Ok((samples, deeds)) => conclude(&soak, &samples, &deeds, options.seed),
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) => {
            // What is wrong with it can be found out only while it is there.
            let kept = folder.keep();
            Err(Error::Kept { source: Box::new(error), folder: kept })
        }
    }
}

/// Has the process do its work, and reads what it says.
fn watch_process(options: &Options, soak: &Soak) -> Result<(Vec<Sample>, Deeds)> {
    let job = Job::Soak(soak.clone());
    let mut child = options.child.start(&job)?;
    let output = child.process().stdout.take().ok_or_else(|| job.failure("its output is not captured"))?;
    let (mut samples, mut outcome) = (Vec::new(), None);
    let (mut reader, mut line) = (BufReader::new(output), String::new());
    // What the program itself prints may stand around its lines.
    loop {
        // A cycle takes a minute, and a stop must not wait for its end.
        tool::wait_for_output(&reader, || options.go_on())?;
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
        match serde_json::from_str(&line) {
            Ok(Line::Cycle(sample)) => {
                options.say(&sample.to_string())?;
                samples.push(sample);
            }
            Ok(Line::Done(deeds)) => outcome = Some(Ok(deeds)),
            Ok(Line::Failed(reason)) => outcome = Some(Err(job.failure(&reason))),
            Err(_) => {}
        }
    }
    // If the lines could not be read, it must not wait for a reader.
    drop(reader);
    let status = child.wait(options)?;
    match outcome {
        Some(Ok(deeds)) if status.success() => Ok((samples, deeds)),
        Some(Err(error)) => Err(error),
        _ => Err(job.failure(&status.to_string())),
    }
}

fn conclude(soak: &Soak, samples: &[Sample], deeds: &Deeds, seed: u64) -> Result<Findings> {
    let of = |value: fn(&Sample) -> f64| -> Vec<f64> { samples.iter().map(value).collect() };
    let resident = of(|sample| sample.resident_bytes as f64 / MEBIBYTE);
    let files = of(|sample| sample.other_files as f64);
    let host = of(|sample| sample.host_bytes as f64 / MEBIBYTE);
    let unexplained = of(|sample| sample.unexplained_bytes as f64);
    let exact = |value: f64| Estimate { value, low: value, high: value };
    let mut findings = Findings::default();
    findings.check(Check::new("soak.memory_growth_mib", growth_of_median(&resident, seed)?));
    findings.check(Check::new("soak.files_growth", exact(growth_of_highest(&files)?)));
    findings.check(Check::new("soak.space_growth_mib", exact(growth_of_highest(&host)?)));
    findings.check(Check::new("soak.unexplained_bytes", exact(highest(&unexplained))));
    findings.system("resident", System::new("MiB", resident));
    findings.system("open_files", System::new("files", of(|sample| sample.files as f64)));
    findings.system("open_files_beside_segments", System::new("files", files));
    findings.system("threads", System::new("threads", of(|sample| sample.threads as f64)));
    findings.system("host", System::new("MiB", host));
    findings.system("used", System::new("MiB", of(|sample| sample.used_bytes as f64 / MEBIBYTE)));
    findings.system("live", System::new("MiB", of(|sample| sample.live_bytes as f64 / MEBIBYTE)));
    findings.system("segments_free", System::new("segments", of(|sample| sample.segments_free as f64)));
    findings.system("unexplained", System::new("bytes", unexplained));
    let seconds = System::new("s", of(|sample| sample.seconds)).with_counters(deeds.counters());
    findings.system("cycle", seconds);
    parameters(soak, samples.len(), &mut findings);
    Ok(findings)
}

fn parameters(soak: &Soak, cycles: usize, findings: &mut Findings) {
    let open = OpenOptions::default();
    findings.parameter("duration_s", soak.duration.as_secs_f64());
    findings.parameter("cycle_s", soak.cycle.as_secs_f64());
    findings.parameter("cycles", cycles);
    findings.parameter("pool_bytes", soak.pool_bytes);
    findings.parameter("segment_bytes", soak.segment_bytes);
    findings.parameter("plain_bytes", soak.plain_bytes);
    findings.parameter("base_bytes", soak.base_bytes);
    findings.parameter("rows", u64::from(soak.rows));
    findings.parameter("block_cache_bytes", open.block_cache_bytes);
    findings.parameter("node_cache_bytes", open.node_cache_bytes);
    findings.parameter("map_memory_bytes", open.map_memory_bytes);
}

/// The second quarter of a run, and the last, equally long.
fn quarters(samples: &[f64]) -> Result<(&[f64], &[f64])> {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        let reason = format!("there were only {} cycles", samples.len());
        return Err(Error::Inconclusive { what: "a soak".to_owned(), reason });
    }
    Ok((&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]))
}

/// The median of how much more each cycle of the last quarter has than its counterpart in the second.
fn growth_of_median(samples: &[f64], seed: u64) -> Result<Estimate> {
    let (early, late) = quarters(samples)?;
    let differences: Vec<f64> = early.iter().zip(late).map(|(early, late)| late - early).collect();
    Ok(bootstrap(&differences, median, seed))
}

/// How much higher the last quarter comes than the second.
fn growth_of_highest(samples: &[f64]) -> Result<f64> {
    let (early, late) = quarters(samples)?;
    Ok(highest(late) - highest(early))
}

fn highest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_what_the_last_quarter_has_more_than_the_second() {
        let steady: Vec<f64> = (0..40_u32).map(|cycle| f64::from(100 + cycle % 5)).collect();
        assert_eq!(growth_of_median(&steady, 1).expect("enough").value, 0.0);
        assert_eq!(growth_of_highest(&steady).expect("enough"), 0.0);
        // Warming up is none.
        let warming: Vec<f64> = (0..40).map(|cycle| f64::from(cycle.min(9))).collect();
        assert_eq!(growth_of_highest(&warming[..]).expect("enough"), 0.0);
        let leaking: Vec<f64> = (0..40).map(f64::from).collect();
        let growth = growth_of_median(&leaking, 1).expect("enough");
        assert_eq!((growth.value, growth.low), (20.0, 20.0));
        assert_eq!(growth_of_highest(&leaking).expect("enough"), 20.0);
        assert!(growth_of_highest(&leaking[..3]).is_err());
    }
}

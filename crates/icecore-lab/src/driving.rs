//! What driving alone costs. Of fio(1) it is the time of a write to no disk. Of some work of the lab it is
//! the time without a disk. Of other programs and threads it is their processor time.

use crate::error::{Doing, Result};
use crate::experiments::Findings;
use crate::fio::{self, Driven};
use crate::options::Options;
use crate::statistics::median;
use crate::tool;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where results have it, in microseconds.
pub(crate) const PARAMETER: &str = "driving_us_per_op";
/// The same for starting a program, such as one that takes a snapshot.
pub(crate) const OF_PROGRAM: &str = "driving_us_per_program";

const HOW: &str = "randwrite";
/// How long it is looked at. A debug build shows only that it works.
const RUNTIME_MS: u64 = if cfg!(debug_assertions) { 100 } else { 1_000 };
/// How long it may take at least.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often work of the lab itself is repeated. The median counts.
const REPEATS: usize = 15;

/// Microseconds that fio takes for a write of so many bytes that goes nowhere (`ioengine=null`): it chooses
/// the place, fills the buffer and takes the time, as for a write to a disk.
pub(crate) fn overhead_us(block_bytes: u64, options: &Options) -> Result<f64> {
    let mut command = Command::new("fio");
    command
        .args(["--name=lab", "--ioengine=null", "--output-format=json", "--thread"])
        .args(["--buffer_compress_percentage=50", "--refill_buffers", "--size=1g"])
        .arg(format!("--bs={block_bytes}"))
        .args(["--time_based", &format!("--runtime={RUNTIME_MS}ms"), &format!("--rw={HOW}")]);
    // A limit is for a system that hangs, and may be shorter than this takes.
    let options = Options { time_limit: options.time_limit.max(PATIENCE), ..options.clone() };
    fio::run(&mut command, HOW, Path::new("nothing"), &options).map(microseconds)
}

fn microseconds(driven: Driven) -> f64 {
    1e6 / driven.rate
}

/// Median time of work that waits for no disk, in microseconds.
pub(crate) fn repeated_us(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times_us = Vec::new();
    for _ in 0..REPEATS {
        let begin = Instant::now();
        work()?;
        times_us.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&times_us))
}

/// Says what starting a program takes. Each snapshot that a program takes has this time in it.
pub(crate) fn report_programs(findings: &mut Findings, options: &Options) -> Result<()> {
    let cost_us = repeated_us(|| tool::output(&mut Command::new("true"), options).map(|_| ()))?;
    findings.parameter(OF_PROGRAM, cost_us);
    Ok(())
}

/// Whose processor time it is.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    /// The threads of this program.
    Threads,
    /// Programs that it has run to their end.
    Programs,
}

impl Of {
    /// Answers what the work does, and the microseconds that the driver has meanwhile taken in user mode.
    /// What it takes in the kernel is the system that is measured.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let before = self.ticks()?;
        let done = work()?;
        let ticks = self.ticks()?.saturating_sub(before);
        Ok((done, ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64))
    }

    fn ticks(self) -> Result<u64> {
        let path = "/proc/self/stat";
        let stat = fs::read_to_string(path).doing(|| format!("read {path}"))?;
        Ok(self.ticks_in(&stat).unwrap_or(0))
    }

    /// utime or cutime, the 14th and the 16th field (proc_pid_stat(5)).
    fn ticks_in(self, stat: &str) -> Option<u64> {
        // The second is a name in parentheses, which may have any character.
        let (_, fields) = stat.rsplit_once(')')?;
        let place = match self {
            Self::Threads => 14 - 3,
            Self::Programs => 16 - 3,
        };
        fields.split_whitespace().nth(place)?.parse().ok()
    }
}

/// Puts the median of what driving costs in the results, where any of it could be seen.
pub(crate) fn report(findings: &mut Findings, costs_us: impl IntoIterator<Item = f64>) {
    let costs_us: Vec<f64> = costs_us.into_iter().collect();
    if !costs_us.is_empty() && median(&costs_us) > 0.0 {
        findings.parameter(PARAMETER, median(&costs_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_threads_is_apart_from_that_of_programs() {
        let stat = "4711 (a ) b) S 1 4711 4711 0 -1 4194304 120 9 0 0 31 5 77 8 20 0 1 0 100 1000 50";
        assert_eq!(Of::Threads.ticks_in(stat), Some(31));
        assert_eq!(Of::Programs.ticks_in(stat), Some(77));
        assert_eq!(Of::Programs.ticks_in("4711 (a"), None);
    }

    #[test]
    fn a_program_that_counts_takes_processor_time() {
        let options = Options::new(".");
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let run = || tool::output(Command::new("sh").args(["-c", count]), &options);
        let (_, microseconds) = Of::Programs.during(run).expect("counted");
        assert!(microseconds > 50_000.0, "{microseconds}");
    }

    #[test]
    fn the_time_of_a_write_follows_from_the_report_of_fio() {
        let report = "note: something\n{\"fio version\": \"fio-3.33\", \"jobs\": [{\"jobname\": \"lab\",\
                      \"read\": {\"iops\": 0.0, \"total_ios\": 0},\
                      \"write\": {\"iops\": 400000.0, \"total_ios\": 400123}}]}";
        let driven = fio::parse(report, HOW).expect("a report");
        assert_eq!((driven.requests, microseconds(driven)), (400_123.0, 2.5));
        assert!(fio::parse(&report.replace("400000.0", "0.0"), HOW).is_none(), "nothing was written");
        assert!(fio::parse("fio: engine null not loadable\n", HOW).is_none());
    }
}

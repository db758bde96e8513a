//! `demo-rss`: peak resident memory of the demonstration, each in a process of its own.

use super::Findings;
use crate::child::Job;
use crate::demo::{DemoOptions, demo};
use crate::error::{Error, Result};
use crate::machine::peak_memory_bytes;
use crate::options::Options;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median};
use serde::{Deserialize, Serialize};

/// What the process prints.
#[derive(Serialize, Deserialize)]
struct Outcome {
    succeeded: bool,
    peak_memory_bytes: Option<u64>,
    seconds: f64,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(5, 1);
    let folder = options.scratch()?;
    let mut demo = DemoOptions { directory: Some(folder.path().to_owned()), ..DemoOptions::default() };
    demo.iterations = options.size(demo.iterations, 5);
    demo.periods = options.size(demo.periods, 200);
    let job = Job::Demo(demo.clone());
    let (mut peaks, mut seconds) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let outcome = run_once(options, &job)?;
        let peak =
            outcome.peak_memory_bytes.ok_or_else(|| job.failure("the kernel has no figure for the peak"))?;
        peaks.push(peak as f64 / f64::from(1 << 20));
        seconds.push(outcome.seconds);
        options.say(&format!("round {round} of {rounds}: {} MiB", peak >> 20))?;
    }
    let mut findings = Findings::default();
    findings.check(Check::new("demo.rss_mib", bootstrap(&peaks, median, options.seed)));
    findings.system("peak", System::new("MiB", peaks));
    findings.system("duration", System::new("s", seconds));
    findings.parameter("rounds", rounds);
    findings.parameter("iterations", u64::from(demo.iterations));
    findings.parameter("periods", u64::from(demo.periods));
    Ok(findings)
}

fn run_once(options: &Options, job: &Job) -> Result<Outcome> {
    let outcome: Outcome = options.child.run(job, options)?;
    if outcome.succeeded { Ok(outcome) } else { Err(job.failure("a proof failed")) }
}

/// Runs in the process of its own.
pub(crate) fn serve(options: &DemoOptions) -> Result<()> {
    let report = demo(options, &mut |_| ())?;
    let outcome = Outcome {
        succeeded: report.succeeded(),
        peak_memory_bytes: peak_memory_bytes(),
        seconds: report.total_s,
    };
    let text = serde_json::to_string(&outcome)
        .map_err(|error| Error::Child { job: "the demonstration".to_owned(), reason: error.to_string() })?;
    println!("\n{text}");
    Ok(())
}

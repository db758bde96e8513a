//! sysbench(1) in its mode `fileio`, the program of the study that `shock` repeats.

use crate::error::{Error, Result};
use crate::fio::{Driven, FileRun, Until};
use crate::options::Options;
use crate::tool;
use std::process::Command;

/// What sysbench calls its only file.
pub(crate) const FILE_NAME: &str = "test_file.0";

/// What sysbench did, and how much of it in each second.
pub(crate) struct FileIo {
    pub driven: Driven,
    /// Writes in each whole second.
    pub rate_per_s: Vec<f64>,
}

/// Writes with sysbench what `run` says, in the folder of its file, which has the name [`FILE_NAME`]. There
/// is one thread, and no rate.
pub(crate) fn drive(run: &FileRun<'_>, options: &Options) -> Result<FileIo> {
    let number = |name: &str, value: u64| format!("--{name}={value}");
    let mut command = Command::new("sysbench");
    command
        .current_dir(run.file.parent().unwrap_or(run.file))
        .args([
            "fileio",
            "--file-num=1",
            "--file-test-mode=rndwr",
            "--file-fsync-mode=fdatasync",
            "--threads=1",
        ])
        .args([number("file-total-size", run.bytes), number("file-block-size", run.block)])
        .args([number("rand-seed", 1 + run.seed % i32::MAX as u64), "--report-interval=1".to_owned()]);
    if run.direct {
        command.arg("--file-extra-flags=direct");
    }
    match run.sync_every {
        0 => command.arg("--file-fsync-freq=0"),
        1 => command.arg("--file-fsync-all=on"),
        every => command.arg(number("file-fsync-freq", every.into())),
    };
    match run.until {
        Until::Requests(count) => command.args([number("events", count), number("time", 0)]),
        Until::Time(time) => command.args([number("events", 0), number("time", time.as_secs().max(1))]),
        Until::End => command.args([number("events", run.bytes / run.block), number("time", 0)]),
    };
    let printed = tool::output(command.arg("run"), options)?;
    let mut done = parse(&printed, run).ok_or_else(|| Error::Child {
        job: format!("sysbench on {}", run.file.display()),
        reason: format!("it printed no rate: {}", tool::tail(&printed)),
    })?;
    if let Until::Time(time) = run.until {
        // The flush at the end may take some seconds more, in which nothing is written.
        done.rate_per_s.truncate(time.as_secs().max(1) as usize);
    }
    Ok(done)
}

/// `None` if the text is no report of writes.
fn parse(printed: &str, run: &FileRun<'_>) -> Option<FileIo> {
    let figure = |name: &str| -> Option<f64> {
        let line = printed.lines().map(str::trim).find(|line| line.starts_with(name))?;
        line[name.len()..].trim().trim_end_matches('s').parse().ok()
    };
    let rate = figure("writes/s:").filter(|rate| *rate > 0.0)?;
    let events = figure("total number of events:")?;
    // A flush after so many writes is an event of its own, and one after each is part of its write.
    let flushes = if run.sync_every > 1 { (events / f64::from(run.sync_every + 1)).floor() } else { 0.0 };
    let per_mebibyte = f64::from(1 << 20) / run.block as f64;
    let second = |line: &str| -> Option<f64> {
        let (_, rest) = line.trim().strip_prefix('[')?.split_once("writes: ")?;
        Some(rest.split_whitespace().next()?.parse::<f64>().ok()? * per_mebibyte)
    };
    Some(FileIo {
        driven: Driven { rate, requests: events - flushes },
        rate_per_s: printed.lines().filter_map(second).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_report_of_sysbench_is_read() {
        let printed = "\
            [ 1s ] reads: 0.00 MiB/s writes: 15.63 MiB/s fsyncs: 0.00/s latency (ms,95%): 1.304\n\
            [ 2s ] reads: 0.00 MiB/s writes: 7.81 MiB/s fsyncs: 0.00/s latency (ms,95%): 1.304\n\
            File operations:\n    reads/s:                      0.00\n    writes/s:                     20708.72\n\
            General statistics:\n    total time:                          0.0176s\n    \
            total number of events:              400\n";
        let run = |sync_every| FileRun {
            file: Path::new("file"),
            bytes: 1 << 20,
            how: "randwrite",
            block: 16 << 10,
            direct: false,
            jobs: 1,
            sync_every,
            rate: None,
            until: Until::Requests(400),
            seed: 0,
            log: None,
            record: None,
        };
        let report = parse(printed, &run(0)).expect("a report");
        assert_eq!((report.driven.rate, report.driven.requests), (20708.72, 400.0));
        assert_eq!(report.rate_per_s.iter().map(|rate| rate.round()).collect::<Vec<_>>(), [1000.0, 500.0]);
        // As strace(1) counted them: a flush after each is no event, one after 100 is.
        for (sync_every, writes) in [(1, 400.0), (100, 397.0)] {
            assert_eq!(parse(printed, &run(sync_every)).expect("a report").driven.requests, writes);
        }
        assert!(parse("FATAL: Cannot open file\n", &run(0)).is_none());
    }
}

//! fio(1), the program that drives a filesystem.

use crate::error::{Error, Result};
use crate::options::Options;
use crate::tool;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A run of fio over files that are there already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive<'a> {
    /// Where the files are.
    pub folder: &'a Path,
    /// `randwrite`, `randread` or `read`.
    pub how: &'static str,
    /// Bytes of one read or write.
    pub block: u64,
    /// Threads. Each has a file of its own, but for random reads: these are spread over all files.
    pub jobs: usize,
    /// How many files there are.
    pub files: usize,
    /// Bytes of a file.
    pub bytes: u64,
    /// Writes to a `fdatasync`; 0 for none.
    pub sync_every: u32,
    /// How long.
    pub time: Duration,
}

impl Drive<'_> {
    /// Reads or writes a second.
    pub(crate) fn rate(&self, options: &Options) -> Result<f64> {
        let number = |name: &str, value: u64| format!("--{name}={value}");
        let mut command = Command::new("fio");
        // Over all files, so that a pool's page cache, which a slice fills, holds few of the next reads.
        let (files, bytes) = if self.how == "randread" {
            let names: Vec<String> = (0..self.files).map(|number| format!("file.{number}")).collect();
            (format!("--filename={}", names.join(":")), self.bytes * self.files as u64)
        } else {
            ("--filename_format=file.$jobnum".to_owned(), self.bytes)
        };
        // The folder first: it concerns the files that are named after it.
        command
            .args(["--name=lab", &format!("--directory={}", self.folder.display()), &files])
            .args(["--file_service_type=random", "--direct=1", "--ioengine=psync"])
            .args(["--group_reporting", "--output-format=json", "--randrepeat=0", "--time_based"])
            .args(["--fallocate=none", "--overwrite=1", "--allow_file_create=0", "--thread"])
            .arg(format!("--rw={}", self.how))
            .arg(format!("--runtime={}ms", self.time.as_millis()))
            .args([number("bs", self.block), number("numjobs", self.jobs as u64), number("size", bytes)]);
        if self.sync_every > 0 {
            command.arg(number("fdatasync", self.sync_every.into()));
        }
        Ok(run(&mut command, self.how, self.folder, options)?.rate)
    }
}

/// When a run of fio over one file ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After so many requests.
    Requests(u64),
    /// After so long, however often the file is gone through.
    Time(Duration),
    /// After the whole file.
    End,
}

/// Reads and writes at random places, a fifth of them writes.
pub(crate) const MIXED: &str = "randrw";
const MIXED_WRITE_PERCENT: u64 = 20;

/// Requests on their way at the same time, at a fixed rate.
const DEPTH: u64 = 4096;

/// A run of fio over one file. What it writes is half compressible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRun<'a> {
    /// The file.
    pub file: &'a Path,
    /// Its size in bytes.
    pub bytes: u64,
    /// `randwrite`, `write`, or [`MIXED`].
    pub how: &'static str,
    /// Bytes of one request.
    pub block: u64,
    /// Whether the page cache is left out.
    pub direct: bool,
    /// Threads, each in a part of its own of the file. In a mix all of them are everywhere.
    pub jobs: u64,
    /// Writes to a `fdatasync`; 0 for one `fsync` at the end.
    pub sync_every: u32,
    /// Requests a second: those that a stall delays are made at once after it, and the log has the latency of
    /// each from there. Then each is durable by itself if `sync_every` is 1. `None`: one after the other.
    pub rate: Option<u32>,
    /// When it ends.
    pub until: Until,
    /// Where each write is.
    pub seed: u64,
    /// Begins the names of the files for a log of each write, if there is to be one.
    pub log: Option<&'a Path>,
    /// A new file for a list of the requests, as [`Trace::read`](crate::trace::Trace::read) takes it, if
    /// there is to be one.
    pub record: Option<&'a Path>,
}

/// What a run of fio did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driven {
    /// Requests a second.
    pub rate: f64,
    /// Requests.
    pub requests: f64,
}

impl FileRun<'_> {
    pub(crate) fn drive(&self, options: &Options) -> Result<Driven> {
        let number = |name: &str, value: u64| format!("--{name}={value}");
        let is_mixed = self.how == MIXED;
        let parts = if is_mixed { 1 } else { self.jobs };
        let part = self.bytes / parts / self.block * self.block;
        let mut command = Command::new("fio");
        command
            .args(["--name=lab", "--group_reporting", "--output-format=json", "--thread"])
            .args([
                "--fallocate=none",
                "--overwrite=0",
                "--buffer_compress_percentage=50",
                "--refill_buffers",
            ])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--rw={}", self.how))
            .args([number("bs", self.block), number("numjobs", self.jobs), number("size", part)])
            .arg(number("offset_increment", if is_mixed { 0 } else { part }))
            // A run with `randrepeat` has fio's own seed, whatever `randseed` is.
            .args(["--randrepeat=0".to_owned(), number("randseed", self.seed)])
            .arg(number("direct", self.direct.into()));
        match self.until {
            Until::Requests(count) => {
                let of_job = count.div_ceil(self.jobs);
                // Without `io_size` a job ends at the latest when it has written its part once.
                command.args([number("number_ios", of_job), number("io_size", of_job * self.block)])
            }
            Until::Time(time) => command.arg("--time_based").arg(format!("--runtime={}ms", time.as_millis())),
            Until::End => &mut command,
        };
        match self.rate {
            None => command.arg("--ioengine=psync"),
            Some(rate) => command
                .arg("--ioengine=libaio")
                .args([number("iodepth", DEPTH), number("rate_iops", rate.into())]),
        };
        match self.sync_every {
            0 => command.arg("--end_fsync=1"),
            1 if self.rate.is_some() => command.arg("--sync=dsync"),
            every => command.arg(number("fdatasync", every.into())),
        };
        if is_mixed {
            command.arg(number("rwmixwrite", MIXED_WRITE_PERCENT));
        }
        if let Some(log) = self.log {
            command.arg(format!("--write_lat_log={}", log.display())).arg("--log_unix_epoch=1");
        }
        if let Some(record) = self.record {
            command.arg(format!("--write_iolog={}", record.display()));
        }
        run(&mut command, self.how, self.file, options)
    }
}

/// Runs fio to its end, and reads what it prints.
pub(crate) fn run(command: &mut Command, how: &str, on: &Path, options: &Options) -> Result<Driven> {
    let text = tool::output(command, options)?;
    parse(&text, how).ok_or_else(|| Error::Child {
        job: format!("fio on {}", on.display()),
        reason: format!("it printed no rate: {}", tool::tail(&text)),
    })
}

/// Reads a report of fio in JSON, before which it may print other lines. `None` if nothing was done.
pub(crate) fn parse(text: &str, how: &str) -> Option<Driven> {
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let kinds: &[&str] = match how {
        MIXED => &["read", "write"],
        how if how.ends_with("write") => &["write"],
        _ => &["read"],
    };
    let number = |name: &str| {
        let job = &report["jobs"][0];
        kinds.iter().map(|kind| job[kind][name].as_f64()).sum::<Option<f64>>()
    };
    let (rate, requests) = (number("iops")?, number("total_ios")?);
    (rate > 0.0).then_some(Driven { rate, requests })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn a_seed_repeats_its_writes_and_another_makes_others() {
        if crate::systems::has_program("fio", "fio").is_err() {
            eprintln!("left out: it needs fio");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (file, options) = (folder.path().join("file"), Options::new(folder.path()));
        let writes = |list: &str, seed| {
            let list = folder.path().join(list);
            let run = FileRun {
                file: &file,
                bytes: 4 << 20,
                how: "randwrite",
                block: 4096,
                direct: false,
                jobs: 1,
                sync_every: 0,
                rate: None,
                until: Until::Requests(100),
                seed,
                log: None,
                record: Some(&list),
            };
            run.drive(&options).expect("fio runs");
            let events = Trace::read(&list).expect("a list of writes").events;
            events.into_iter().map(|(_, event)| event).collect::<Vec<_>>()
        };
        let first = writes("first", 1);
        assert_eq!(first, writes("again", 1));
        assert_ne!(first, writes("other", 2));
    }
}

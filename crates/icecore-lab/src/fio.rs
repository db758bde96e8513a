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
    /// Processes, each with a file of its own.
    pub jobs: usize,
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
        command
            .args(["--name=lab", "--filename_format=file.$jobnum", "--direct=1", "--ioengine=psync"])
            .args(["--group_reporting", "--output-format=json", "--randrepeat=0", "--time_based"])
            .args(["--fallocate=none", "--overwrite=1", "--thread"])
            .arg(format!("--directory={}", self.folder.display()))
            .arg(format!("--rw={}", self.how))
            .arg(format!("--runtime={}ms", self.time.as_millis()))
            .args([
                number("bs", self.block),
                number("numjobs", self.jobs as u64),
                number("size", self.bytes),
            ]);
        if self.sync_every > 0 {
            command.arg(number("fdatasync", self.sync_every.into()));
        }
        let text = tool::output(&mut command, options)?;
        let report =
            text.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&text[at..]).ok());
        let kind = if self.how.ends_with("write") { "write" } else { "read" };
        let rate = report.and_then(|report| report["jobs"][0][kind]["iops"].as_f64());
        rate.filter(|rate| *rate > 0.0).ok_or_else(|| Error::Child {
            job: format!("fio in {}", self.folder.display()),
            reason: format!("it printed no rate: {}", tool::tail(&text)),
        })
    }
}

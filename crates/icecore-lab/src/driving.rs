//! What driving alone costs: the time that fio(1) itself takes for each write of a study.

use crate::error::Result;
use crate::fio::{self, Driven};
use crate::options::Options;
use std::path::Path;
use std::process::Command;

const HOW: &str = "randwrite";
/// How long it is looked at. A debug build shows only that it works.
const RUNTIME_MS: u64 = if cfg!(debug_assertions) { 100 } else { 1_000 };

/// Microseconds that fio takes for a write of `shock` that goes nowhere (`ioengine=null`): it chooses the
/// place, fills the buffer and takes the time, as for a write to a disk.
pub(crate) fn overhead_us(options: &Options) -> Result<f64> {
    let mut command = Command::new("fio");
    command
        .args(["--name=lab", "--ioengine=null", "--output-format=json", "--thread"])
        .args(["--buffer_compress_percentage=50", "--refill_buffers", "--bs=16k", "--size=1g"])
        .args(["--time_based", &format!("--runtime={RUNTIME_MS}ms"), &format!("--rw={HOW}")]);
    fio::run(&mut command, HOW, Path::new("nothing"), options).map(microseconds)
}

fn microseconds(driven: Driven) -> f64 {
    1e6 / driven.rate
}

#[cfg(test)]
mod tests {
    use super::*;

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

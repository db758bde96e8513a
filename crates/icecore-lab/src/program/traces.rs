//! The options of `icecore lab run` about traces: what `shock` records, and how `model` replays it.

use super::RunArguments;
use super::size::chunk;
use crate::exit;
use crate::format::parse_size;
use clap::Args;
use icecore::retention::parse_duration;
use icecore::units::ByteLength;
use icecore_lab::counted::Counted;
use icecore_lab::policies::Every;
use icecore_lab::trace::Trace;
use icecore_lab::{LoadTool, Options};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct TraceArguments {
    /// Record writes of `plain` as fio(1) does, for `shock`: as many as are
    /// counted, and each durable. `model` and `icecore lab size` take the file
    /// as their --trace
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Writes that fio(1) recorded, or blkparse(1) printed, for `model`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Hold the predictions of `model` against this result of `shock`, with the
    /// same writes (published counts unless said otherwise; `all` takes its own)
    #[arg(long, value_name = "RESULT", conflicts_with_all = ["trace", "chunk", "every"])]
    against: Option<PathBuf>,

    /// Size of a chunk of LVM's classic snapshots, for `model` (4K unless said
    /// otherwise)
    #[arg(long, value_name = "SIZE", value_parser = chunk)]
    chunk: Option<u64>,

    /// Take a snapshot every so many writes, such as `500`, or in such a time of
    /// the trace, such as `10m`, for `model`: the last ones are kept (all are
    /// taken before the writes unless said otherwise)
    #[arg(long, value_name = "INTERVAL", value_parser = every)]
    every: Option<Every>,

    /// Say when a copy area of this size is full, for `model`: that of a classic
    /// LVM snapshot taken before the writes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    area: Option<ByteLength>,
}

impl TraceArguments {
    /// Refuses what this run would ignore.
    pub(super) fn check(&self, name: &str, run: &RunArguments) -> anyhow::Result<()> {
        self.check_record(name, run)?;
        let of_model = [
            ("--trace", self.trace.is_some()),
            ("--against", self.against.is_some()),
            ("--chunk", self.chunk.is_some()),
            ("--every", self.every.is_some()),
            ("--area", self.area.is_some()),
        ];
        let Some((option, _)) = of_model.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        if ![super::all::ALL, "model"].contains(&name) {
            return Err(exit::usage(format!("{name} replays no writes: {option} goes with model")));
        }
        if run.guest.is_wanted() {
            let reason = "and the answer of model is the same outside: leave out --guest";
            return Err(exit::usage(format!("the guest does not get {option}, {reason}")));
        }
        if name == super::all::ALL && !run.systems.is_empty() {
            let reason = "which --systems leaves out";
            return Err(exit::usage(format!("{option} is about model, {reason}: give one of the two")));
        }
        if name == super::all::ALL {
            self.read()?;
        }
        if self.trace.is_none() && matches!(self.every, Some(Every::Time(_))) {
            let reason = "the writes of model itself have no times";
            return Err(exit::usage(format!("{reason}: give --every a number of writes, or a --trace")));
        }
        Ok(())
    }

    /// Refuses files that `model` cannot use. A run of all studies would come to that after hours.
    fn read(&self) -> anyhow::Result<()> {
        if let Some(path) = &self.trace {
            Trace::read(path).map_err(super::with_exit_code)?;
        }
        if let Some(path) = &self.against {
            Counted::read(path).map_err(super::with_exit_code)?;
        }
        Ok(())
    }

    fn check_record(&self, name: &str, run: &RunArguments) -> anyhow::Result<()> {
        let tool = run.tool.unwrap_or_default();
        let has_plain = run.systems.is_empty() || run.systems.iter().any(|system| system == "plain");
        let reason = match &self.record {
            None => return Ok(()),
            Some(_) if name != "shock" => format!("{name} records no writes: --record goes with shock"),
            Some(_) if tool != LoadTool::Fio => {
                format!("{} records no writes: --record goes with --tool fio", tool.name())
            }
            Some(_) if run.guest.is_wanted() => {
                let reason = "and plain makes the same writes outside: leave out --guest";
                format!("the file of --record would stay in the guest, {reason}")
            }
            Some(_) if !has_plain => "--record is about the writes of plain: add it to --systems".to_owned(),
            Some(_) => return Ok(()),
        };
        Err(exit::usage(reason))
    }

    /// Puts them into the options of the run.
    pub fn apply(&self, options: &mut Options) {
        options.record.clone_from(&self.record);
        options.trace.clone_from(&self.trace);
        options.against.clone_from(&self.against);
        options.chunk = self.chunk;
        options.every = self.every;
        options.area = self.area.map(ByteLength::get);
    }
}

fn every(text: &str) -> Result<Every, String> {
    if let Ok(writes) = text.parse() {
        return Ok(Every::Writes(writes));
    }
    match parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(Every::Time(time)),
        _ => Err("write a number of writes, such as 500, or a time, such as 10m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;
    use std::time::Duration;

    #[test]
    fn an_interval_is_a_number_of_writes_or_a_time() {
        assert_eq!(every("500"), Ok(Every::Writes(NonZeroU64::new(500).unwrap())));
        assert_eq!(every("10m"), Ok(Every::Time(Duration::from_secs(600))));
        for wrong in ["", "0", "0s", "-5", "5k", "often"] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }
}

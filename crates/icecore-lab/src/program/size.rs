//! `icecore lab size`

use super::with_exit_code;
use crate::exit;
use crate::format;
use crate::output::Output;
use clap::Args;
use icecore::retention::parse_duration;
use icecore::units::ByteLength;
use icecore_lab::copy_area::{CopyArea, Question};
use icecore_lab::trace::Trace;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `lvcreate --chunksize` takes.
const CHUNKS: std::ops::RangeInclusive<u64> = 4 << 10..=512 << 10;

#[derive(Args, Debug)]
#[command(after_help = "\
A classic LVM snapshot copies each chunk away before it is written the first
time, and is lost when its copy area is full. This finds the part of the trace
that writes to the most chunks in such a time. blktrace(8) records the disk of
a database, and blkparse(1) prints it. fio(1) records its own writes:
`fio --write_iolog=FILE`, or `icecore lab run shock --record FILE`.

Example:
  blktrace -d /dev/sdb -a queue -w 86400 -o - | blkparse -i - > day.log
  icecore lab size --trace day.log --duration 4h
  icecore lab size --trace day.log --duration 4h --area 20G")]
pub struct Arguments {
    /// Writes that fio(1) recorded, or blkparse(1) printed
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,

    /// How long the snapshot lives, such as a backup takes (as long as the
    /// trace unless said otherwise)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Size of a chunk, as `lvcreate --chunksize` takes it
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = chunk)]
    chunk: u64,

    /// Say when a copy area of this size is full
    #[arg(long, value_name = "SIZE", value_parser = area)]
    area: Option<ByteLength>,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("a snapshot lives for longer than that".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn area(text: &str) -> Result<ByteLength, String> {
    match format::parse_size(text)? {
        ByteLength(0) => Err("an area has some bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(super) fn chunk(text: &str) -> Result<u64, String> {
    let bytes = format::parse_size(text)?.get();
    if bytes.is_power_of_two() && CHUNKS.contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{text:?} is no size of a chunk: write a power of two from 4K to 512K"))
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let trace = Trace::read(&arguments.trace).map_err(with_exit_code)?;
    let question = Question {
        duration: arguments.duration,
        chunk_bytes: arguments.chunk,
        area_bytes: arguments.area.map(ByteLength::get),
    };
    let area = CopyArea::of(&trace, question);
    if arguments.duration.is_some() && area.trace_s.is_none() {
        let path = arguments.trace.display();
        return Err(exit::usage(format!("{path} has no times (version 2 of the log): leave out --duration")));
    }
    if arguments.duration.is_some() && area.trace_s == Some(0.0) {
        let path = arguments.trace.display();
        return Err(exit::usage(format!("all requests of {path} have one time: leave out --duration")));
    }
    let mut output = Output::new();
    if arguments.json {
        output.document("lab size", Path::new(""), json!({ "area": area }))?;
    } else {
        print(&mut output, arguments, &area)?;
    }
    output.finish()
}

fn print(output: &mut Output, arguments: &Arguments, area: &CopyArea) -> anyhow::Result<()> {
    let size = |bytes| format::size(ByteLength(bytes));
    let seconds = |seconds: f64| format!("{seconds:.0} s");
    let lasts = area.trace_s.map_or_else(String::new, |time| format!(" in {}", seconds(time)));
    output.line(format!("trace        {} writes, {}{lasts}", area.writes, size(area.written_bytes)))?;
    let bound = if area.extrapolated { " at most (the trace is shorter)" } else { "" };
    let time =
        area.duration_s.or(area.trace_s).map_or_else(String::new, |time| format!(" in {}", seconds(time)));
    output.line(format!("copied       {}{time}{bound}", size(area.copied_bytes)))?;
    output.line(format!("copy area    {} with its table", size(area.needed_bytes)))?;
    output.line(format!("recommended  {}, a tenth of it to spare", size(area.recommended_bytes)))?;
    output.line(format!(
        "             lvcreate --snapshot --chunksize {}k --size {}b --name NAME ORIGIN",
        arguments.chunk >> 10,
        area.recommended_bytes
    ))?;
    let Some(asked) = arguments.area else { return Ok(()) };
    let asked = size(asked.get());
    let line = match (area.full_after_writes, area.full_after_s) {
        (None, _) => format!("{asked}: not full at the end of the trace"),
        (Some(writes), None) => format!("{asked}: full after {writes} writes, and the snapshot is lost"),
        (Some(writes), Some(time)) => {
            format!("{asked}: full after {writes} writes, {}, and the snapshot is lost", seconds(time))
        }
    };
    output.line(line)?;
    Ok(())
}

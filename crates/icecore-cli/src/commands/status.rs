//! `icecore status`

use super::{finish, take};
use crate::format;
use crate::output::{Align, Output, Table};
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::admin::protocol::Status;
use icecore::admin::{Request, Response};
use icecore::units::ByteLength;
use icecore::{Quantiles, Statistics};
use serde_json::{Map, Value, json};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Counters begin when the pool is opened: ask while the process that uses it
runs.

Example:
  icecore status /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Exact values: bytes and nanoseconds
    #[arg(short, long)]
    parsable: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// How the counters are grouped; those that are not named come last.
const SECTIONS: &[(&str, &[&str])] = &[
    (
        "space",
        &[
            "used_bytes",
            "freeing_bytes",
            "freeing_versions",
            "size_limit_bytes",
            "capacity_bytes",
            "available_bytes",
            "kept_bytes",
            "live_bytes",
            "segment_file_bytes",
            "copy_file_bytes",
            "copies_missing",
            "segments",
            "segments_free",
            "segments_vacated",
            "segments_corrupt",
            "log_bytes",
            "dirty_bytes",
            "pins",
        ],
    ),
    (
        "done",
        &[
            "write_calls",
            "write_bytes",
            "read_calls",
            "read_bytes",
            "commits",
            "committed_operations",
            "flushes",
            "copy_flushes",
            "snapshots",
            "checkpoints",
            "stalls",
        ],
    ),
    (
        "written to disk",
        &[
            "logged_data_bytes",
            "logged_header_bytes",
            "node_bytes",
            "checkpoint_bytes",
            "frame_bytes",
            "ahead_bytes",
            "moved_data_bytes",
            "moved_node_bytes",
            "moved_header_bytes",
            "copy_node_bytes",
            "copy_checkpoint_bytes",
            "copy_frame_bytes",
            "copy_data_bytes",
            "copy_restored_bytes",
        ],
    ),
    (
        "errors",
        &[
            "failed_reads",
            "failed_writes",
            "failed_flushes",
            "damaged_reads",
            "healed_places",
            "unhealed_places",
        ],
    ),
    (
        "collection",
        &["segments_collected", "collected_bytes", "left_behind_bytes", "disk_read_bytes_collect"],
    ),
];

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let mut access = open_to_read(&pool)?;
    let remote = access.is_remote();
    let response = access.call(Request::Status);
    let status = take!(finish(access, response)?, Response::Status(status) => status);
    let mut output = Output::new();
    if arguments.json {
        output.document("status", &pool, document(&status, remote))?;
    } else {
        print(&status, remote, arguments.parsable, &mut output)?;
    }
    output.finish()
}

fn print(status: &Status, remote: bool, exact: bool, output: &mut Output) -> anyhow::Result<()> {
    let owner = match crate::output::stale() {
        _ if remote => format!("process {}, icecore {}", status.process, status.program),
        Some(why) => why.to_owned(),
        None => "none".to_owned(),
    };
    output.line(format!("pool   {}", status.path))?;
    output.line(format!("id     {}", status.id))?;
    output.line(format!("owner  {owner}"))?;
    if let Some(failure) = &status.statistics.failure {
        output.line(format!("reads only, since a failure: {failure}"))?;
    }
    if let Some(reason) = &status.statistics.unreachable {
        output.line(format!("other processes cannot reach it: {reason}"))?;
    }
    if let Some(bytes) = segment_bytes(&status.statistics) {
        let shown = if exact { bytes.to_string() } else { format::size(ByteLength(bytes)) };
        output.line(format!("files  {} segments of {shown}", status.statistics.segments))?;
    }
    output.line(format!("copies {}", super::copies::sentence(&status.statistics.copies)))?;
    print_incidents(status, output)?;
    status.readers.iter().try_for_each(|reader| output.line(format!("reader {reader}")))?;
    let width = status.statistics.counters().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (title, counters) in sections(&status.statistics) {
        output.line(format!("\n{title}"))?;
        let mut table = Table::new([(" ".repeat(width + 2), Align::Left), (" ".repeat(10), Align::Right)]);
        for (name, value) in counters {
            table.row(vec![format!("  {name}"), value_text(name, value, exact)]);
        }
        table.print_bare(output)?;
    }
    output.line("")?;
    sentences(&status.statistics).iter().try_for_each(|sentence| output.line(sentence))?;
    print_quantiles(&status.statistics, exact, output)
}

/// What writing costs, and what collection does about it.
fn sentences(statistics: &Statistics) -> [String; 3] {
    let full = statistics.collected_utilisation() * 100.0;
    [
        format!("written to disk for each byte written by callers: {:.2}", statistics.write_amplification()),
        format!("segments that were emptied were {full:.0} % full on average"),
        format!("collection: {}", statistics.collector),
    ]
}

/// The size of a segment: all have the same.
const fn segment_bytes(statistics: &Statistics) -> Option<u64> {
    statistics.segment_file_bytes.checked_div(statistics.segments)
}

/// What went wrong, and the scrub that goes on.
fn print_incidents(status: &Status, output: &mut Output) -> anyhow::Result<()> {
    for incident in &status.incidents {
        let times = match incident.times {
            1 => String::new(),
            times => format!(" ({times} times, last {})", incident.last.to_rfc3339()),
        };
        output.line(format!("error  {}  {}{times}", incident.when.to_rfc3339(), incident.what))?;
    }
    if let Some(now) = status.scrubbing {
        let (done, total) = (format::size(ByteLength(now.done)), format::size(ByteLength(now.total)));
        let damaged = if now.damaged == 0 { String::new() } else { format!(", {} damaged", now.damaged) };
        output.line(format!("scrub  {done} of {total}{damaged}"))?;
    }
    Ok(())
}

/// Counters by section, each exactly once.
fn sections(statistics: &Statistics) -> Vec<(&'static str, Vec<(&'static str, u64)>)> {
    let mut rest = statistics.counters();
    let mut sections: Vec<_> = SECTIONS
        .iter()
        .map(|(title, names)| {
            let (mut found, others): (Vec<_>, Vec<_>) =
                rest.drain(..).partition(|(name, _)| names.contains(name));
            rest = others;
            found.sort_by_key(|(name, _)| names.iter().position(|known| known == name));
            (*title, found)
        })
        .collect();
    sections.push(("caches and reads", rest));
    sections
}

/// What was measured, with its unit.
fn quantiles(statistics: &Statistics) -> [(&'static str, &Quantiles, bool); 3] {
    [
        ("flush", &statistics.commit_nanoseconds, true),
        ("snapshot", &statistics.snapshot_nanoseconds, true),
        ("operations in a flush", &statistics.operations_per_commit, false),
    ]
}

fn print_quantiles(statistics: &Statistics, exact: bool, output: &mut Output) -> anyhow::Result<()> {
    output.line("")?;
    let headers = ["distributions", "COUNT", "MEDIAN", "P99", "MAX"];
    let mut table =
        Table::new(headers.iter().enumerate().map(|(index, header)| {
            ((*header).to_owned(), if index == 0 { Align::Left } else { Align::Right })
        }));
    for (name, quantiles, is_time) in quantiles(statistics) {
        let shown = |value: u64| if is_time && !exact { format::duration(value) } else { value.to_string() };
        table.row(vec![
            format!("  {name}"),
            quantiles.count.to_string(),
            shown(quantiles.median),
            shown(quantiles.p99),
            shown(quantiles.max),
        ]);
    }
    table.print(output, false)
}

fn value_text(name: &str, value: u64, exact: bool) -> String {
    if name == "size_limit_bytes" && value == 0 && !exact {
        return "none".to_owned();
    }
    if name.contains("bytes") && !exact { format::size(ByteLength(value)) } else { value.to_string() }
}

fn document(status: &Status, remote: bool) -> Value {
    let statistics = &status.statistics;
    let counters: Map<String, Value> =
        statistics.counters().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    json!({
        "path": status.path,
        "id": status.id.to_string(),
        "owner": remote.then_some(status.process),
        "program": status.program,
        "read_only": status.read_only,
        "segment_bytes": segment_bytes(statistics),
        "failure": statistics.failure,
        "unreachable": statistics.unreachable,
        "readers": status.readers.iter().map(reader).collect::<Vec<_>>(),
        "incidents": status.incidents.iter().map(incident).collect::<Vec<_>>(),
        "scrub": status.scrubbing.map(|now| {
            json!({ "done_bytes": now.done, "total_bytes": now.total, "damaged_blocks": now.damaged })
        }),
        "copies": {
            "mode": statistics.copies.mode,
            "folder": statistics.copies.folder,
            "degraded_since": statistics.copies.degraded_since.map(|since| since.to_rfc3339()),
            "why": statistics.copies.why,
        },
        "counters": counters,
        "write_amplification": statistics.write_amplification(),
        "collected_utilisation": statistics.collected_utilisation(),
        "collector": statistics.collector,
        "flush_nanoseconds": statistics.commit_nanoseconds,
        "snapshot_nanoseconds": statistics.snapshot_nanoseconds,
        "operations_per_flush": statistics.operations_per_commit,
    })
}

/// A reader that keeps something from being used again.
pub fn reader(reader: &icecore::ReaderHold) -> Value {
    json!({
        "process": reader.process,
        "what": reader.what,
        "version": reader.version,
        "since": reader.since.to_rfc3339(),
        "keeps_bytes": reader.keeps.0,
    })
}

fn incident(incident: &icecore::Incident) -> Value {
    json!({
        "when": incident.when.to_rfc3339(),
        "last": incident.last.to_rfc3339(),
        "what": incident.what,
        "times": incident.times,
        "unhealed": incident.unhealed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writing_costs_and_what_collection_does_are_sentences() {
        let doing = "emptying segment.00000007, 12 % full (409600 bytes): 3 free segments, 5 kept";
        let statistics = Statistics {
            write_bytes: 400,
            logged_data_bytes: 400,
            moved_data_bytes: 300,
            moved_node_bytes: 100,
            copy_data_bytes: 100,
            collected_bytes: 2000,
            collector: doing.to_owned(),
            ..Statistics::default()
        };
        assert_eq!(
            sentences(&statistics),
            [
                "written to disk for each byte written by callers: 2.25".to_owned(),
                "segments that were emptied were 20 % full on average".to_owned(),
                format!("collection: {doing}"),
            ]
        );
    }

    #[test]
    fn every_counter_is_shown_once() {
        let statistics = Statistics::default();
        let mut shown: Vec<_> =
            sections(&statistics).into_iter().flat_map(|(_, counters)| counters).collect();
        let mut all = statistics.counters();
        shown.sort_unstable();
        all.sort_unstable();
        assert_eq!(shown, all);
        for (_, names) in SECTIONS {
            for name in *names {
                assert!(all.iter().any(|(known, _)| known == name), "{name} is no counter");
            }
        }
    }
}

//! `icecore status`

use super::{finish, take};
use crate::format;
use crate::output::{Align, Output, Table};
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::admin::protocol::{Counter, Status, Unit};
use icecore::admin::{Request, Response};
use icecore::units::ByteLength;
use serde_json::{Map, Value, json};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Counters begin when the pool is opened: ask while the process that uses the pool runs.

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
    let owner = match (remote, status.read_only) {
        (true, false) => format!("process {}, icecore {}", status.process, status.program),
        (true, true) => format!("process {}, icecore {}, reading only", status.process, status.program),
        (false, _) => "nobody".to_owned(),
    };
    output.line(format!("pool   {}", status.path))?;
    output.line(format!("id     {}", status.id))?;
    output.line(format!("owner  {owner}"))?;
    for section in &status.sections {
        output.line(format!("\n{}", section.name))?;
        let mut table = Table::new([(String::new(), Align::Left), (String::new(), Align::Right)]);
        for counter in &section.counters {
            table.row(vec![format!("  {}", counter.name), value_text(counter, exact)]);
        }
        table.print_bare(output)?;
    }
    print_latencies(status, exact, output)
}

fn print_latencies(status: &Status, exact: bool, output: &mut Output) -> anyhow::Result<()> {
    if status.latencies.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let headers = ["latencies", "COUNT", "MEDIAN", "P99", "MAX"];
    let mut table =
        Table::new(headers.iter().enumerate().map(|(index, header)| {
            ((*header).to_owned(), if index == 0 { Align::Left } else { Align::Right })
        }));
    for latency in &status.latencies {
        let time = |value: u64| if exact { value.to_string() } else { format::duration(value) };
        table.row(vec![
            format!("  {}", latency.name),
            latency.count.to_string(),
            time(latency.median_ns),
            time(latency.p99_ns),
            time(latency.max_ns),
        ]);
    }
    table.print(output, false)
}

fn value_text(counter: &Counter, exact: bool) -> String {
    match counter.unit {
        Unit::Bytes if !exact => format::size(ByteLength(counter.value)),
        Unit::Nanoseconds if !exact => format::duration(counter.value),
        _ => counter.value.to_string(),
    }
}

fn document(status: &Status, remote: bool) -> Value {
    let sections: Map<String, Value> = status
        .sections
        .iter()
        .map(|section| {
            let counters = section.counters.iter().map(|one| (one.name.clone(), json!(one.value)));
            (section.name.clone(), Value::Object(counters.collect()))
        })
        .collect();
    let latencies: Map<String, Value> = status
        .latencies
        .iter()
        .map(|one| {
            let body = json!({
                "count": one.count,
                "median_ns": one.median_ns,
                "p99_ns": one.p99_ns,
                "max_ns": one.max_ns,
            });
            (one.name.clone(), body)
        })
        .collect();
    json!({
        "path": status.path,
        "id": status.id,
        "owner": remote.then_some(status.process),
        "program": status.program,
        "read_only": status.read_only,
        "counters": sections,
        "latencies": latencies,
    })
}

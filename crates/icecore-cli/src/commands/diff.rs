//! `icecore diff`

use super::{request_once, take};
use crate::exit;
use crate::format::escaped;
use crate::output::{Output, insert_name};
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::admin::{Request, Response};
use icecore::{Change, DiffEntry};
use serde_json::{Map, Value, json};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Lines begin with + (added), - (removed), M (modified) or R (renamed).

Example:
  icecore diff db@monday                   against the dataset as it is now
  icecore diff -b db@monday @friday        with the byte ranges that differ")]
pub struct Arguments {
    /// The older version
    #[arg(value_name = "SNAPSHOT")]
    from: OsString,

    /// The newer version: a snapshot, or a dataset as it is now; @NAME is enough within one dataset
    #[arg(value_name = "VERSION")]
    to: Option<OsString>,

    /// Show the kind of each file: / for directories, F for everything else
    #[arg(short = 'F', long)]
    classify: bool,

    /// Show the byte ranges that differ within files
    #[arg(short, long)]
    bytes: bool,

    /// For scripts: tabs between columns
    #[arg(short = 'H', long)]
    no_header: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let (pool, from) = context.name(&arguments.from)?;
    let to = newer_version(context, arguments, &pool, &from)?;
    let request = Request::Diff { from: from.clone(), to: to.clone() };
    let changes = take!(request_once(open_to_read(&pool)?, request)?, Response::Diff(changes) => changes);
    let mut output = Output::new();
    if arguments.json {
        let changes: Vec<Value> = changes.iter().map(document).collect();
        output.document("diff", &pool, json!({ "from": from, "to": to, "changes": changes }))?;
    } else {
        changes.iter().try_for_each(|change| print(change, arguments, &mut output))?;
    }
    output.finish()
}

fn newer_version(
    context: &Context,
    arguments: &Arguments,
    pool: &std::path::Path,
    from: &str,
) -> anyhow::Result<String> {
    let dataset = from.split('@').next().unwrap_or_default();
    let Some(to) = &arguments.to else { return Ok(dataset.to_owned()) };
    if let Some(short) = to.to_str().filter(|text| text.starts_with('@')) {
        return Ok(format!("{dataset}{short}"));
    }
    let (other, to) = context.name(to)?;
    if other == *pool {
        return Ok(to);
    }
    Err(exit::usage(format!("{} and {} are two pools", pool.display(), other.display())))
}

/// The sign and the word for a change.
const fn names(change: &Change) -> (&'static str, &'static str) {
    match change {
        Change::Added => ("+", "added"),
        Change::Removed => ("-", "removed"),
        Change::Modified => ("M", "modified"),
        Change::Renamed(_) => ("R", "renamed"),
    }
}

/// A path within a dataset, from its root.
fn shown(path: &[u8]) -> String {
    format!("/{}", escaped(path.strip_prefix(b"/").unwrap_or(path)))
}

fn print(entry: &DiffEntry, arguments: &Arguments, output: &mut Output) -> anyhow::Result<()> {
    let mut columns = vec![names(&entry.change).0.to_owned()];
    if arguments.classify {
        columns.push(if entry.directory { "/" } else { "F" }.to_owned());
    }
    let path = shown(&entry.path);
    match &entry.change {
        Change::Renamed(former) if arguments.no_header => columns.extend([shown(former), path]),
        Change::Renamed(former) => columns.push(format!("{} -> {path}", shown(former))),
        _ => columns.push(path),
    }
    if arguments.no_header {
        if arguments.bytes {
            let ranges = entry.ranges.iter().map(|range| format!("{}+{}", range.offset, range.length));
            columns.push(ranges.collect::<Vec<_>>().join(","));
        }
        return output.line(columns.join("\t"));
    }
    output.line(columns.join("  "))?;
    if arguments.bytes {
        for range in &entry.ranges {
            let end = range.offset + range.length;
            output.line(format!("     bytes {} to {end} ({})", range.offset, range.length))?;
        }
    }
    Ok(())
}

fn document(entry: &DiffEntry) -> Value {
    let mut object = Map::new();
    object.insert("change".into(), json!(names(&entry.change).1));
    object.insert("directory".into(), json!(entry.directory));
    insert_name(&mut object, "path", &entry.path);
    if let Change::Renamed(former) = &entry.change {
        insert_name(&mut object, "former_path", former);
    }
    let ranges: Vec<Value> =
        entry.ranges.iter().map(|range| json!({ "offset": range.offset, "length": range.length })).collect();
    object.insert("ranges".into(), json!(ranges));
    Value::Object(object)
}

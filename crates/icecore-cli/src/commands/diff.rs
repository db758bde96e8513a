//! `icecore diff`

use super::{request_once, take};
use crate::exit;
use crate::format::escaped;
use crate::output::{Output, insert_name};
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::admin::protocol::{Change, ChangeKind, FileKind};
use icecore::admin::{Request, Response};
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

    /// Show the kind of each file: F file, / directory, @ link, | pipe, = socket, C and B devices
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

const fn sign(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "+",
        ChangeKind::Removed => "-",
        ChangeKind::Modified => "M",
        ChangeKind::Renamed => "R",
    }
}

const fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Modified => "modified",
        ChangeKind::Renamed => "renamed",
    }
}

const fn class(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "F",
        FileKind::Directory => "/",
        FileKind::Symlink => "@",
        FileKind::Pipe => "|",
        FileKind::Socket => "=",
        FileKind::CharacterDevice => "C",
        FileKind::BlockDevice => "B",
    }
}

fn print(change: &Change, arguments: &Arguments, output: &mut Output) -> anyhow::Result<()> {
    let mut columns = vec![sign(change.kind).to_owned()];
    if arguments.classify {
        columns.push(class(change.file).to_owned());
    }
    let path = format!("/{}", escaped(&change.path));
    match &change.former_path {
        Some(former) if arguments.no_header => columns.extend([format!("/{}", escaped(former)), path]),
        Some(former) => columns.push(format!("/{} -> {path}", escaped(former))),
        None => columns.push(path),
    }
    let ranges = change.ranges.iter().map(|(offset, length)| format!("{offset}+{length}"));
    if arguments.no_header {
        if arguments.bytes {
            columns.push(ranges.collect::<Vec<_>>().join(","));
        }
        return output.line(columns.join("\t"));
    }
    output.line(columns.join("  "))?;
    if arguments.bytes {
        for (offset, length) in &change.ranges {
            output.line(format!("     bytes {offset} to {} ({length})", offset + length))?;
        }
    }
    Ok(())
}

fn document(change: &Change) -> Value {
    let mut object = Map::new();
    object.insert("change".into(), json!(word(change.kind)));
    object.insert("type".into(), json!(super::files::kind_name(change.file)));
    insert_name(&mut object, "path", &change.path);
    if let Some(former) = &change.former_path {
        insert_name(&mut object, "former_path", former);
    }
    let ranges: Vec<Value> =
        change.ranges.iter().map(|(offset, length)| json!({ "offset": offset, "length": length })).collect();
    object.insert("ranges".into(), json!(ranges));
    Value::Object(object)
}

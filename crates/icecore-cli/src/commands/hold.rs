//! `icecore hold`, `icecore release` and `icecore holds`

use super::{finish, take, with_descendants};
use crate::format;
use crate::output::{Align, Output, Table};
use crate::pool::{Context, open_to_read, open_to_write};
use clap::Args;
use icecore::Hold;
use icecore::admin::{Access, Request, Response};
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  icecore hold audit-2026 db@monday")]
pub struct HoldArguments {
    #[command(flatten)]
    what: TagAndSnapshots,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  icecore release audit-2026 db@monday")]
pub struct ReleaseArguments {
    #[command(flatten)]
    what: TagAndSnapshots,
}

#[derive(Args, Debug)]
struct TagAndSnapshots {
    /// Names the hold: a snapshot may have several
    #[arg(value_name = "TAG")]
    tag: String,

    /// The snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<OsString>,

    /// Those of the same name in all datasets below as well
    #[arg(short, long)]
    recursive: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  icecore holds db@monday")]
pub struct HoldsArguments {
    /// The snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<OsString>,

    /// Those of the same name in all datasets below as well
    #[arg(short, long)]
    recursive: bool,

    /// For scripts: no headers, tabs between columns
    #[arg(short = 'H', long)]
    no_header: bool,

    /// Exact values: times in seconds since 1970
    #[arg(short, long)]
    parsable: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn hold(context: &Context, arguments: &HoldArguments) -> anyhow::Result<()> {
    for_each(context, &arguments.what, |tag, snapshot| Request::Hold { tag, snapshot })
}

pub fn release(context: &Context, arguments: &ReleaseArguments) -> anyhow::Result<()> {
    for_each(context, &arguments.what, |tag, snapshot| Request::Release { tag, snapshot })
}

fn for_each(
    context: &Context,
    what: &TagAndSnapshots,
    request: impl Fn(String, String) -> Request,
) -> anyhow::Result<()> {
    let (pool, names) = context.names(&what.snapshots)?;
    let mut access = open_to_write(&pool)?;
    let done = expanded(&mut access, names, what.recursive).and_then(|names| {
        for name in names {
            take!(access.call(request(what.tag.clone(), name))?, Response::Done => ());
        }
        Ok(())
    });
    finish(access, done)
}

fn expanded(access: &mut Access, names: Vec<String>, recursive: bool) -> anyhow::Result<Vec<String>> {
    if !recursive {
        return Ok(names);
    }
    let mut all = Vec::new();
    for name in &names {
        all.extend(with_descendants(access, name)?);
    }
    Ok(all)
}

pub fn list(context: &Context, arguments: &HoldsArguments) -> anyhow::Result<()> {
    let (pool, names) = context.names(&arguments.snapshots)?;
    let mut access = open_to_read(&pool)?;
    let found = find(&mut access, names, arguments.recursive);
    let found = finish(access, found)?;
    let mut output = Output::new();
    if arguments.json {
        let holds: Vec<_> = found
            .iter()
            .map(|(name, hold)| {
                json!({ "name": name, "tag": hold.tag, "created": format::exact_time(hold.created) })
            })
            .collect();
        output.document("holds", &pool, json!({ "holds": holds }))?;
        return output.finish();
    }
    let columns = ["NAME", "TAG", "TIMESTAMP"].map(|header| (header.to_owned(), Align::Left));
    let mut table = Table::new(columns);
    for (name, hold) in found {
        let time = if arguments.parsable {
            format::epoch_seconds(hold.created).to_string()
        } else {
            format::time(hold.created)
        };
        table.row(vec![name, hold.tag, time]);
    }
    table.print(&mut output, arguments.no_header)?;
    output.finish()
}

fn find(access: &mut Access, names: Vec<String>, recursive: bool) -> anyhow::Result<Vec<(String, Hold)>> {
    let mut found = Vec::new();
    for name in expanded(access, names, recursive)? {
        let holds = access.call(Request::Holds { snapshot: name.clone() })?;
        let holds = take!(holds, Response::Holds(holds) => holds);
        found.extend(holds.into_iter().map(|hold| (name.clone(), hold)));
    }
    Ok(found)
}

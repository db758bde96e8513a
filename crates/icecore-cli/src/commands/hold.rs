//! `icecore hold`, `icecore release` and `icecore holds`

use super::{finish, take, with_descendants};
use crate::exit;
use crate::format;
use crate::output::{Align, Output, Table};
use crate::pool::{Context, open_to_read, open_to_write};
use clap::Args;
use icecore::Hold;
use icecore::admin::{Access, Request, Response};
use icecore::retention::parse_duration;
use icecore::units::Timestamp;
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
A hold that expires is still there afterwards, until `icecore prune` takes it
off.

Example:
  icecore hold audit-2026 db@monday
  icecore hold --expires 30d migration db@before-upgrade")]
pub struct HoldArguments {
    #[command(flatten)]
    what: TagAndSnapshots,

    /// Let prune release it after this long (7d, 12h), or from a date on (2027-01-31, in UTC)
    #[arg(long, value_name = "WHEN")]
    expires: Option<String>,
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
    let expires = arguments.expires.as_deref().map(expiry).transpose()?;
    for_each(context, &arguments.what, |tag, snapshot| Request::Hold { tag, snapshot, expires })
}

/// A moment: so long from now, or a date, or a time as RFC 3339 has it.
fn expiry(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(duration) = parse_duration(text) {
        let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        return Ok(Timestamp(Timestamp::now().get().saturating_add(nanoseconds)));
    }
    let moment =
        Timestamp::from_rfc3339(text).or_else(|| Timestamp::from_rfc3339(&format!("{text}T00:00:00Z")));
    moment.ok_or_else(|| {
        exit::usage(format!("--expires: {text:?} is neither a duration (7d, 12h) nor a date (2027-01-31)"))
    })
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
                json!({
                    "name": name,
                    "tag": hold.tag,
                    "created": format::exact_time(hold.created),
                    "expires": hold.expires.map(format::exact_time),
                })
            })
            .collect();
        output.document("holds", &pool, json!({ "holds": holds }))?;
        return output.finish();
    }
    let columns = ["NAME", "TAG", "TIMESTAMP", "EXPIRES"].map(|header| (header.to_owned(), Align::Left));
    let mut table = Table::new(columns);
    for (name, hold) in found {
        let time = |moment: Timestamp| {
            if arguments.parsable { format::epoch_seconds(moment).to_string() } else { format::time(moment) }
        };
        let expires = hold.expires.map_or_else(|| "-".to_owned(), time);
        table.row(vec![name, hold.tag, time(hold.created), expires]);
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

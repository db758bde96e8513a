//! `icecore rollback`

use super::{finish, list_entries, take};
use crate::output::{print_document, say};
use crate::pool::{Context, open_to_read, open_to_write};
use clap::Args;
use icecore::ListFilter;
use icecore::admin::{Failure, Request, Response};
use icecore::names::SnapshotName;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

#[derive(Args, Debug)]
#[command(after_help = "\
Nothing is lost: newer snapshots stay, and the state before the rollback is
kept as a snapshot, whose name is printed. Rolling back to that one undoes the
rollback.

Example:
  icecore rollback db@monday")]
pub struct Arguments {
    /// The snapshot to return to
    #[arg(value_name = "SNAPSHOT")]
    snapshot: OsString,

    /// Do it although files of the dataset are open: they must be opened again
    #[arg(short, long)]
    force: bool,

    /// Do nothing; say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let (pool, name) = context.name(&arguments.snapshot)?;
    let snapshot = SnapshotName::parse(&name).map_err(Failure::from)?;
    if arguments.dry_run {
        return explain(&pool, &snapshot, arguments.json);
    }
    let mut access = open_to_write(&pool)?;
    let response = access.call(Request::Rollback { snapshot: name.clone(), force: arguments.force });
    let saved_as = take!(finish(access, response)?, Response::RolledBack { saved_as } => saved_as);
    if arguments.json {
        return print_document("rollback", &pool, json!({ "snapshot": name, "saved_as": saved_as }));
    }
    say(format!("{} is back at {name}; its former state is kept as {saved_as}", snapshot.dataset_str()))
}

fn explain(pool: &Path, snapshot: &SnapshotName, json: bool) -> anyhow::Result<()> {
    let mut access = open_to_read(pool)?;
    let root = Some(snapshot.as_str().to_owned());
    let found =
        list_entries(&mut access, ListFilter { root, depth: Some(0), datasets: false, snapshots: true });
    finish(access, found)?;
    let (dataset, snapshot) = (snapshot.dataset_str(), snapshot.as_str());
    if json {
        return print_document("rollback", pool, json!({ "snapshot": snapshot, "dry_run": true }));
    }
    say(format!(
        "would take {dataset} back to {snapshot}; its present state would be kept as a snapshot, and newer snapshots stay"
    ))
}

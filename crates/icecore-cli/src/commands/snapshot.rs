//! `icecore snapshot`

use super::{finish, keys_and_values, list_entries, take};
use crate::exit;
use crate::output::{Output, print_document};
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::ListFilter;
use icecore::admin::{Access, Request, Response};
use icecore::retention::AUTOMATIC_PREFIX;
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
All snapshots of one command are taken at the same moment, and are durable
when it returns. Without a name, the moment becomes it, and it is printed.

Example:
  icecore snapshot db@monday
  icecore snapshot -r team      makes team@auto-2026-11-21T20:01:02.003Z
  icecore snapshot -r team@before-upgrade")]
pub struct Arguments {
    /// The new snapshots; those of a bare dataset are named by the moment, which also completes a name that ends in
    /// `*`. With -a, the pool if -P does not name it
    #[arg(value_name = "DATASET[@NAME]")]
    names: Vec<OsString>,

    /// Of all datasets of the pool
    #[arg(short, long)]
    all: bool,

    /// What names made of the moment begin with
    #[arg(long, value_name = "TEXT", default_value = AUTOMATIC_PREFIX)]
    prefix: String,

    /// Take them of all datasets below as well
    #[arg(short, long)]
    recursive: bool,

    /// Set a user property
    #[arg(short = 'o', long = "property", value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,

    /// Name every snapshot that was taken
    #[arg(short, long)]
    verbose: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: Arguments) -> anyhow::Result<()> {
    let properties = keys_and_values(&arguments.properties)?;
    let (pool, names) = match (arguments.all, arguments.names.as_slice()) {
        (true, []) => (context.pool()?, Vec::new()),
        (true, [pool]) => (context.pool_or(Some(pool.as_os_str()))?, Vec::new()),
        (true, _) => return Err(exit::usage("-a means all datasets: name none, or name some without it")),
        (false, []) => return Err(exit::usage("name a snapshot, DATASET@NAME, or a dataset, or use -a")),
        (false, names) => context.names(names)?,
    };
    let automatic = arguments.all || names.iter().any(|name| !name.contains('@') || name.ends_with('*'));
    let mut access = open_to_write(&pool)?;
    let taken = take_snapshots(&mut access, names, properties, &arguments);
    let taken = finish(access, taken)?;
    if arguments.json {
        return print_document("snapshot", &pool, json!({ "snapshots": taken }));
    }
    let mut output = Output::new();
    if arguments.verbose || automatic {
        taken.iter().try_for_each(|name| output.line(name))?;
    }
    output.finish()
}

fn take_snapshots(
    access: &mut Access,
    mut names: Vec<String>,
    properties: Vec<(String, String)>,
    arguments: &Arguments,
) -> anyhow::Result<Vec<String>> {
    if arguments.all {
        let filter = ListFilter { root: None, depth: None, datasets: true, snapshots: false };
        names = list_entries(access, filter)?.into_iter().map(|entry| entry.name).collect();
        if names.is_empty() {
            return Ok(names);
        }
    }
    for name in names.iter_mut().filter(|name| !name.contains('@')) {
        *name = format!("{name}@{}*", arguments.prefix);
    }
    // All datasets are named already.
    let recursive = arguments.recursive && !arguments.all;
    let response = access.call(Request::Snapshot { names, recursive, properties })?;
    Ok(take!(response, Response::Names(taken) => taken))
}

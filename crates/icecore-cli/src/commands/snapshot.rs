//! `icecore snapshot`

use super::{keys_and_values, request_once, take};
use crate::output::{Output, print_document};
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::{Request, Response};
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
All snapshots of one command are taken at the same moment, and are durable
when it returns.

Example:
  icecore snapshot db@monday
  icecore snapshot -r team@before-upgrade")]
pub struct Arguments {
    /// The new snapshots
    #[arg(value_name = "DATASET@NAME", required = true)]
    names: Vec<OsString>,

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
    let (pool, names) = context.names(&arguments.names)?;
    let request = Request::Snapshot { names, recursive: arguments.recursive, properties };
    let taken = take!(request_once(open_to_write(&pool)?, request)?, Response::Names(taken) => taken);
    if arguments.json {
        return print_document("snapshot", &pool, json!({ "snapshots": taken }));
    }
    let mut output = Output::new();
    if arguments.verbose {
        taken.iter().try_for_each(|name| output.line(name))?;
    }
    output.finish()
}

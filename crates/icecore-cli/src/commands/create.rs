//! `icecore create`

use super::{keys_and_values, request_once, take, with_limits};
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::{Request, Response};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  icecore create db\n  icecore create -p -o team:owner=ada team/reports/db"
)]
pub struct Arguments {
    /// The new dataset
    #[arg(value_name = "DATASET")]
    name: OsString,

    /// Make missing datasets above it as well
    #[arg(short, long)]
    parents: bool,

    /// Set a user property, a quota or a reservation
    #[arg(short = 'o', long = "property", value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
}

pub fn run(context: &Context, arguments: Arguments) -> anyhow::Result<()> {
    let properties = with_limits(keys_and_values(&arguments.properties)?)?;
    let (pool, name) = context.name(&arguments.name)?;
    let request = Request::Create { name, parents: arguments.parents, properties };
    take!(request_once(open_to_write(&pool)?, request)?, Response::Done => Ok(()))
}

//! `icecore clone`

use super::{request_once, take};
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::{Request, Response};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
A clone takes up no space until it is written to.

Example:
  icecore clone db@monday try-it")]
pub struct Arguments {
    /// The snapshot to begin with
    #[arg(value_name = "SNAPSHOT")]
    snapshot: OsString,

    /// The new dataset
    #[arg(value_name = "DATASET")]
    target: OsString,

    /// Make missing datasets above it as well
    #[arg(short, long)]
    parents: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let (pool, mut names) = context.names(&[&arguments.snapshot, &arguments.target])?;
    let (target, snapshot) = (names.pop().unwrap_or_default(), names.pop().unwrap_or_default());
    let request = Request::Clone { snapshot, target, parents: arguments.parents };
    take!(request_once(open_to_write(&pool)?, request)?, Response::Done => Ok(()))
}

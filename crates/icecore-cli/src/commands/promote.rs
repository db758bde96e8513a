//! `icecore promote`

use super::{request_once, take};
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::{Request, Response};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
After that the snapshots up to the clone's origin belong to the clone, and the
dataset that it was cloned from is a clone of one of them. A clone whose origin
was destroyed (origin `-` in icecore list) has nothing to take over.

Example:
  icecore promote try-it")]
pub struct Arguments {
    /// The clone
    #[arg(value_name = "DATASET")]
    dataset: OsString,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let (pool, dataset) = context.name(&arguments.dataset)?;
    take!(request_once(open_to_write(&pool)?, Request::Promote { dataset })?, Response::Done => Ok(()))
}

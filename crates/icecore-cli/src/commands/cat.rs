//! `icecore cat`

use super::files::{pin, read_all, regular};
use super::{finish, take};
use crate::exit;
use crate::output::Output;
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::admin::{Access, Request, Response};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  icecore cat db@monday/notes.txt")]
pub struct Arguments {
    /// The files, one after the other
    #[arg(value_name = "VERSION/FILE", required = true)]
    files: Vec<OsString>,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let locations =
        arguments.files.iter().map(|file| context.locate(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let Some(first) = locations.first() else { return Ok(()) };
    if locations.iter().any(|location| location.pool != first.pool) {
        return Err(exit::usage("one command works on one pool, and these are several"));
    }
    let mut access = open_to_read(&first.pool)?;
    let mut output = Output::new();
    let done = locations.iter().try_for_each(|location| print(&mut access, location.path()?, &mut output));
    // What was read before an error is printed all the same.
    let printed = output.finish();
    finish(access, done.and(printed))
}

fn print(access: &mut Access, path: &[u8], output: &mut Output) -> anyhow::Result<()> {
    let pinned = pin(access, path)?;
    read_all(access, pinned.pin, regular(&pinned)?, |_, data| output.bytes(data))?;
    take!(access.call(Request::Unpin { pin: pinned.pin })?, Response::Done => Ok(()))
}

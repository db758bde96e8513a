//! `icecore scrub`

use super::{finish, take};
use crate::format;
use crate::output::{Output, say};
use crate::pool::{Context, open_to_read};
use crate::progress::Progress;
use clap::Args;
use icecore::admin::protocol::Scrubbed;
use icecore::admin::{ErrorCode, Failure, Request, Response};
use icecore::units::ByteLength;
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Reads everything that any version reaches and compares it with its checksums. Nothing is changed. Each
place that is damaged is printed, and the exit code is 5.

Example:
  icecore scrub /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let mut access = open_to_read(&pool)?;
    let progress = Progress::new("scrubbing", 0);
    let response = access.call_with(Request::Scrub, &mut |now| {
        progress.set_total(now.total);
        progress.set(now.done);
    });
    drop(progress);
    let report = take!(finish(access, response)?, Response::Scrubbed(report) => report);
    if arguments.json {
        let body = json!({
            "data_bytes": report.data_bytes,
            "metadata_bytes": report.metadata_bytes,
            "damage": report.damage,
        });
        let mut output = Output::new();
        output.document("scrub", &pool, body)?;
        output.finish()?;
    } else {
        print(&report)?;
    }
    verdict(&report)
}

fn print(report: &Scrubbed) -> anyhow::Result<()> {
    let data = format::size(ByteLength(report.data_bytes));
    let metadata = format::size(ByteLength(report.metadata_bytes));
    let read = format!("verified {data} of data and {metadata} of metadata");
    if report.damage.is_empty() {
        return say(format!("{read}: no damage"));
    }
    let mut output = Output::new();
    report.damage.iter().try_for_each(|place| output.line(place))?;
    output.line(read)?;
    output.finish()
}

fn verdict(report: &Scrubbed) -> anyhow::Result<()> {
    let message = match report.damage.len() {
        0 => return Ok(()),
        1 => "1 place is damaged: restore what it belongs to from a copy, or destroy it".to_owned(),
        count => {
            format!("{count} places are damaged: restore what they belong to from a copy, or destroy it")
        }
    };
    Err(Failure::new(ErrorCode::Damaged, message).into())
}

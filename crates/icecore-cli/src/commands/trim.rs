//! `icecore trim`

use super::{request_once, take};
use crate::format;
use crate::output;
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::{Request, Response};
use icecore::units::ByteLength;
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Removes the files of segments in which nothing lives. A few stay: deleting and
checkpoints may need them. A pool does this by itself when nothing is written
for some seconds, when it is closed, and when the filesystem runs short. For
the next writes it keeps half of what lives in it and 256 MiB, and five minutes
later, or closed, a quarter and 32 MiB.
Snapshots and data are not touched. Works while another process has the pool
open.

Segments in which something lives stay as well. Destroy snapshots first if
they hold what you want to be rid of: `icecore list -t snapshot -o name,used`
shows what each holds.

Example:
  icecore trim /srv/pool")]
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
    let response = request_once(open_to_write(&pool)?, Request::Trim)?;
    let report = take!(response, Response::Trimmed(report) => report);
    if arguments.json {
        let body = json!({
            "segments": report.segments,
            "bytes": report.bytes,
            "segments_free": report.segments_free,
        });
        return output::print_document("trim", &pool, body);
    }
    let size = format::size(ByteLength(report.bytes));
    let files = if report.segments == 1 { "file" } else { "files" };
    output::say(format!("gave back {size} in {} {files}", report.segments))
}

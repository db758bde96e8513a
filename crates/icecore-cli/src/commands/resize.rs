//! `icecore resize`

use super::request_once;
use crate::format::parse_size;
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::Request;
use icecore::units::ByteLength;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Works on a full pool, and while another process has it open: who was refused
goes on with the next write. The limit cannot be less than what the files of
the pool take up, what it needs to go on, and what is reserved for datasets;
the refusal says how much that is. `icecore trim` gives free segments back
before that. `icecore status` shows the limit (size_limit_bytes).

Example:
  icecore resize --size-limit 20G /srv/pool
  icecore resize --size-limit none /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Most that the files of the pool may take up together; `none` for no limit
    #[arg(long, value_name = "SIZE", required = true, value_parser = parse_limit)]
    size_limit: SizeLimit,
}

/// A limit, or that there is to be none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeLimit(pub Option<ByteLength>);

/// Reads a limit: a size, or `none`.
pub fn parse_limit(text: &str) -> Result<SizeLimit, String> {
    if text == "none" { Ok(SizeLimit(None)) } else { parse_size(text).map(|size| SizeLimit(Some(size))) }
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let request = Request::SetSizeLimit { limit: arguments.size_limit.0 };
    request_once(open_to_write(&pool)?, request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size_or_none() {
        assert_eq!(parse_limit("none"), Ok(SizeLimit(None)));
        assert_eq!(parse_limit("2G"), Ok(SizeLimit(Some(ByteLength(2 << 30)))));
        assert!(parse_limit("").is_err() && parse_limit("all").is_err());
    }
}

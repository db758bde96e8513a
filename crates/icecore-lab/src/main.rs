//! `icecore-lab`: studies of snapshots under databases, and the demonstration. `icecore lab` and `icecore
//! demo` start it.

mod program;

use icecore_terminal::{exit, format, interrupt, output, progress};

use clap::FromArgMatches as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = program::command().try_get_matches();
    match matches.and_then(|matches| program::Cli::from_arg_matches(&matches)) {
        Ok(arguments) => exit::report(program::run(&arguments)),
        Err(error) => icecore_terminal::usage::show(&error),
    }
}

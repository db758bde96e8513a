//! `icecore`: snapshots for databases, from the command line.

mod cli;
mod commands;
mod daemon;
mod locate;
mod owner;
mod pool;
mod properties;

use clap::FromArgMatches as _;
use icecore_terminal::{exit, format, interrupt, output, progress};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parsed = cli::command().try_get_matches().and_then(|matches| cli::Cli::from_arg_matches(&matches));
    match parsed {
        Ok(arguments) => exit::report(commands::run(arguments)),
        Err(error) => usage(&error),
    }
}

/// Nagios wants its own form also for a command line that makes no sense.
fn usage(error: &clap::Error) -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if error.use_stderr() && commands::monitor::is_meant(&arguments) {
        let rendered = error.render().to_string();
        return exit::report(commands::monitor::tell_usage(&arguments, &in_a_line(&rendered)));
    }
    icecore_terminal::usage::show(error)
}

/// What is wrong with the command line, without the advice that follows in other lines.
fn in_a_line(rendered: &str) -> String {
    let said = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let lines: Vec<&str> = said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    format!("{} (icecore monitor --help)", lines.join(" "))
}

//! `icecore`: snapshots for databases, from the command line.

mod allocator;
mod cli;
mod commands;
mod daemon;
mod exit;
mod format;
mod interrupt;
mod output;
mod pool;
mod progress;
mod properties;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let parsed = cli::command().try_get_matches().and_then(|matches| cli::Cli::from_arg_matches(&matches));
    match parsed {
        Ok(arguments) => exit::report(commands::run(arguments)),
        Err(error) => usage(&error),
    }
}

/// Help and version go to standard output and are no failure; everything else is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    let rendered = error.render().to_string();
    if !error.use_stderr() {
        let _ = std::io::stdout().lock().write_all(rendered.as_bytes());
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    if commands::monitor::is_meant(&arguments) {
        return exit::report(commands::monitor::tell_usage(&arguments, &in_a_line(&rendered)));
    }
    let text = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => rendered,
        _ => format!("icecore: {}", rendered.strip_prefix("error: ").unwrap_or(&rendered)),
    };
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    exit::USAGE.into()
}

/// What is wrong with the command line, without the advice that follows in other lines.
fn in_a_line(rendered: &str) -> String {
    let said = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let lines: Vec<&str> = said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    format!("{} (icecore monitor --help)", lines.join(" "))
}

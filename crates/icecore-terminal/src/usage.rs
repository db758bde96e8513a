//! A command line that makes no sense, and help.

use crate::exit;
use clap::error::ErrorKind;
use std::io::Write as _;
use std::process::ExitCode;

/// Shows what clap has to say. Help and version go to standard output and are no failure; everything else is
/// a usage error.
#[must_use]
pub fn show(error: &clap::Error) -> ExitCode {
    let rendered = error.render().to_string();
    if !error.use_stderr() {
        let _ = std::io::stdout().lock().write_all(rendered.as_bytes());
        return ExitCode::SUCCESS;
    }
    let text = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => rendered,
        _ => format!("icecore: {}", rendered.strip_prefix("error: ").unwrap_or(&rendered)),
    };
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    exit::USAGE.into()
}

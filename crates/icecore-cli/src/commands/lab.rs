//! `icecore lab` and `icecore demo`: a program of its own, that who only wants the store need not have.

use anyhow::Context as _;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the program.
const PROGRAM: &str = "icecore-lab";

#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Example:
  icecore lab doctor
  icecore lab run all --quick"
)]
pub struct Arguments {
    /// What `icecore lab help` explains
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    rest: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Example:
  icecore demo
  icecore demo --keep --directory /srv"
)]
pub struct DemoArguments {
    /// What `icecore demo --help` explains
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    rest: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    become_lab(&arguments.rest)
}

pub fn demo(arguments: &DemoArguments) -> anyhow::Result<()> {
    let command = OsString::from("demo");
    let all: Vec<OsString> = std::iter::once(command).chain(arguments.rest.iter().cloned()).collect();
    become_lab(&all)
}

/// The lab goes on in this process: signals and exit codes are its own.
fn become_lab(arguments: &[OsString]) -> anyhow::Result<()> {
    let this = std::env::current_exe().ok();
    let path = std::env::var_os("PATH");
    let found = found(this.as_deref().and_then(Path::parent), path.as_deref());
    let Some(program) = found else {
        anyhow::bail!(
            "the lab is not installed: it is the package {PROGRAM}, a program that belongs beside {} or into the \
             PATH (from the sources: `cargo install --path crates/{PROGRAM}`)",
            this.as_deref().unwrap_or(Path::new("icecore")).display()
        );
    };
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// The program beside this one, else the first in the path.
fn found(beside: Option<&Path>, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let folders = beside.map(Path::to_owned).into_iter();
    let mut all =
        folders.chain(path.into_iter().flat_map(std::env::split_paths)).map(|one| one.join(PROGRAM));
    all.find(|program| program.is_file())
}

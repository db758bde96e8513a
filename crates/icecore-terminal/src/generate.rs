//! `completions` and `man` of a program: what packages carry.

use crate::exit;
use crate::output::Output;
use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// Which completions are printed.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore completions bash > /etc/bash_completion.d/icecore
  icecore completions zsh > /usr/share/zsh/site-functions/_icecore")]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Which manual page is printed.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore man list | man -l -
  icecore man /usr/share/man/man1/")]
pub struct ManArguments {
    /// A command, for its page on standard output; or an existing folder, which all pages are written to
    #[arg(value_name = "COMMAND|FOLDER")]
    what: Option<PathBuf>,
}

/// Prints the completions of a program.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(arguments: &CompletionsArguments, mut program: Command) -> anyhow::Result<()> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    print(&script)
}

/// Prints a manual page of a program, or writes all of them.
///
/// # Errors
/// There is no such page, or it cannot be written.
pub fn man(arguments: &ManArguments, program: Command) -> anyhow::Result<()> {
    let whole = program.get_name().to_owned();
    let what = arguments.what.clone().unwrap_or_else(|| PathBuf::from(&whole));
    if what.is_dir() {
        return write_pages(&what, program);
    }
    let name = what.to_string_lossy();
    let command = pages(program).into_iter().find(|page| {
        let full = page.get_name();
        let short = full.strip_prefix(&whole).and_then(|rest| rest.strip_prefix('-'));
        full == name || short.is_some_and(|short| short == name)
    });
    let command = command.ok_or_else(|| {
        exit::usage(format!(
            "{name:?} is neither a command nor an existing folder: `{whole} help` lists the commands"
        ))
    })?;
    print(&render(command)?)
}

fn write_pages(folder: &Path, program: Command) -> anyhow::Result<()> {
    for page in pages(program) {
        let path = folder.join(format!("{}.1", page.get_name()));
        std::fs::write(&path, render(page)?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A program as a whole and each of its commands, under the names of their pages.
#[must_use]
pub fn pages(program: Command) -> Vec<Command> {
    let shown = |arg: clap::Arg| arg.hide_env(false).hide_env_values(true);
    let mut whole = program.disable_help_subcommand(true);
    let name_of_whole = whole.get_name().to_owned();
    let names: Vec<String> = whole.get_subcommands().map(|part| part.get_name().to_owned()).collect();
    for name in names {
        whole = whole.mut_subcommand(name, |part| part.mut_args(shown));
    }
    whole.build();
    let parts = whole.get_subcommands().filter(|part| !part.is_hide_set()).map(|part| {
        let name = format!("{name_of_whole}-{}", part.get_name());
        part.clone().name(name.clone()).display_name(name)
    });
    let parts: Vec<Command> = parts.collect();
    std::iter::once(whole).chain(parts).collect()
}

/// The text of a page.
///
/// # Errors
/// None that memory does not have.
pub fn render(page: Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source = concat!("icecore ", env!("CARGO_PKG_VERSION"));
    Man::new(page).source(source).manual("Icecore").render(&mut text)?;
    Ok(text)
}

fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut output = Output::new();
    output.bytes(bytes)?;
    output.finish()
}

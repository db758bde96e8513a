//! `icecore completions` and `icecore man`: what packages carry.

use crate::cli;
use crate::exit;
use crate::output::Output;
use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::{Path, PathBuf};

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

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore man list | man -l -
  icecore man /usr/share/man/man1/")]
pub struct ManArguments {
    /// A command, for its page on standard output; or an existing folder, which all pages are written to
    #[arg(value_name = "COMMAND|FOLDER", default_value = "icecore")]
    what: PathBuf,
}

pub fn completions(arguments: &CompletionsArguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "icecore", &mut script);
    print(&script)
}

pub fn man(arguments: &ManArguments) -> anyhow::Result<()> {
    if arguments.what.is_dir() {
        return write_pages(&arguments.what);
    }
    let name = arguments.what.to_string_lossy();
    let command = pages().into_iter().find(|page| {
        let full = page.get_name();
        full == name || full.strip_prefix("icecore-").is_some_and(|short| short == name)
    });
    let command = command.ok_or_else(|| {
        exit::usage(format!(
            "{name:?} is neither a command nor an existing folder: `icecore help` lists the commands"
        ))
    })?;
    print(&render(command)?)
}

fn write_pages(folder: &Path) -> anyhow::Result<()> {
    for page in pages() {
        let path = folder.join(format!("{}.1", page.get_name()));
        std::fs::write(&path, render(page)?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The command as a whole and each of its commands, under the names of their pages.
fn pages() -> Vec<Command> {
    let shown = |arg: clap::Arg| arg.hide_env(false).hide_env_values(true);
    let mut whole = cli::command().disable_help_subcommand(true);
    let names: Vec<String> = whole.get_subcommands().map(|part| part.get_name().to_owned()).collect();
    for name in names {
        whole = whole.mut_subcommand(name, |part| part.mut_args(shown));
    }
    whole.build();
    let parts = whole.get_subcommands().map(|part| {
        let name = format!("icecore-{}", part.get_name());
        part.clone().name(name.clone()).display_name(name)
    });
    let parts: Vec<Command> = parts.collect();
    std::iter::once(whole).chain(parts).collect()
}

fn render(page: Command) -> anyhow::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_example() {
        for page in pages() {
            let name = page.get_name().to_owned();
            let text = String::from_utf8(render(page).unwrap()).unwrap();
            assert!(text.contains(".SH NAME"), "{name}");
            assert!(text.contains("icecore"), "{name}");
        }
        let list = pages().into_iter().find(|page| page.get_name() == "icecore-list").unwrap();
        assert!(String::from_utf8(render(list).unwrap()).unwrap().contains("ICECORE_LIST_JSON"));
        assert!(pages().iter().any(|page| page.get_name() == "icecore-destroy"));
    }

    #[test]
    fn every_shell_gets_completions() {
        use clap::ValueEnum as _;
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut cli::command(), "icecore", &mut script);
            assert!(String::from_utf8(script).unwrap().contains("snapshot"), "{shell}");
        }
    }
}

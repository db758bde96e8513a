//! The command line as a whole: global options, the list of commands, and the environment variables.

use crate::commands::*;
use crate::exit;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Command, CommandFactory as _, Parser, Subcommand};
use icecore_terminal::environment::with_environment;
use icecore_terminal::generate;
use std::path::PathBuf;

/// Snapshots for databases that cost nothing
#[derive(Parser, Debug)]
#[command(
    name = "icecore",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Cli {
    /// The pool: the folder that `icecore init` made
    #[arg(short = 'P', long, global = true, value_name = "FOLDER", env = "ICECORE_POOL")]
    #[arg(value_parser = folder_or_empty_variable())]
    pub pool: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Commands,
}

/// An empty path is refused, unless it may be that of the variable: a script clears a variable by nothing.
fn folder_or_empty_variable() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let is_variable = std::env::var_os("ICECORE_POOL").is_some_and(|variable| variable.is_empty());
        if text.is_empty() && !is_variable {
            return Err("it is empty: name the folder of a pool");
        }
        Ok(PathBuf::from(text))
    })
}

#[derive(Subcommand, Debug)]
pub enum Commands {
    /// Make a pool
    Init(init::Arguments),
    /// Make a dataset
    Create(create::Arguments),
    /// List datasets and snapshots
    List(list::Arguments),
    /// Take snapshots
    #[command(visible_alias = "snap")]
    Snapshot(snapshot::Arguments),
    /// Make a writable dataset of a snapshot
    Clone(clone::Arguments),
    /// Take a dataset back to a snapshot
    Rollback(rollback::Arguments),
    /// Make a clone the owner of the history it shares
    Promote(promote::Arguments),
    /// Rename a dataset or a snapshot
    Rename(rename::Arguments),
    /// Destroy snapshots or a dataset
    Destroy(destroy::Arguments),
    /// Destroy the snapshots that a policy does not keep
    Prune(prune::Arguments),
    /// Show what changed between two versions
    Diff(diff::Arguments),
    /// Keep snapshots from being destroyed
    Hold(hold::HoldArguments),
    /// Take holds back
    Release(hold::ReleaseArguments),
    /// List the holds on snapshots
    Holds(hold::HoldsArguments),
    /// Show properties
    Get(property::GetArguments),
    /// Set user properties, quotas and reservations
    Set(property::SetArguments),
    /// Remove a user property, so that the inherited one counts
    Inherit(property::InheritArguments),
    /// Copy a file into a dataset
    Import(import::Arguments),
    /// Copy a file out of any version
    Export(export::Arguments),
    /// Print files of any version
    Cat(cat::Arguments),
    /// List the files of any version
    Ls(ls::Arguments),
    /// Read and verify everything
    Scrub(scrub::Arguments),
    /// Check the books of a pool that no process has open, and repair them
    Check(check::Arguments),
    /// Say how second copies stand, change what is copied, or make what is missing
    Copies(copies::Arguments),
    /// Change how large a pool may become
    Resize(resize::Arguments),
    /// Give free space back to the filesystem
    Trim(trim::Arguments),
    /// Say whether all is well, as Nagios wants it
    Monitor(monitor::Arguments),
    /// Show who has the pool, how full it is, and its counters
    Status(status::Arguments),
    /// Watch what the pool is doing
    Top(top::Arguments),
    /// Mount a dataset, so that every program can use its files
    Mount(mount::Arguments),
    /// Unmount, and wait until the pool is closed
    Umount(umount::Arguments),
    /// Ask a database in any version
    Sql(sql::Arguments),
    /// Watch 95 versions of a database being kept and proved (of the package icecore-lab)
    Demo(lab::DemoArguments),
    /// Measure: studies of snapshots under databases (of the package icecore-lab)
    Lab(lab::Arguments),
    /// Print the completions for a shell
    Completions(generate::CompletionsArguments),
    /// Print a manual page, or write all of them into a folder
    Man(generate::ManArguments),
}

const NAMES_HELP: &str = "\
Names:
  DATASET            team/db
  SNAPSHOT           team/db@monday
  file in a version  team/db/app.db, team/db@monday/app.db
A name is looked up in the pool that -P or ICECORE_POOL gives. Written as a
path through a pool's folder (/srv/pool/team/db@monday) it needs neither. A
relative path (pool/team/db) goes before ICECORE_POOL, and -P before both.

Environment:
  Every option can be given as ICECORE_COMMAND_OPTION, as in
  ICECORE_LIST_JSON=1; the pool is ICECORE_POOL.

Commands work while another process has the pool open: they are sent there.
But `check` wants a pool that no process uses, `sql` can only read then, and
`import -f` and `rollback` refuse to replace a database that a program uses.";

const FIRST_STEPS: &str = "\
First steps:
  icecore init /srv/pool
  export ICECORE_POOL=/srv/pool
  icecore create db
  icecore import app.db db/app.db
  icecore snapshot db@monday
  icecore list -t all";

/// The command with everything that is not derived: environment variables, and the long texts.
pub fn command() -> Command {
    let command = Cli::command()
        .after_help(FIRST_STEPS)
        .after_long_help(format!("{FIRST_STEPS}\n\n{NAMES_HELP}\n\n{}", exit::HELP));
    with_environment(command, "ICECORE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches as _;
    use proptest::prelude::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        let all = std::iter::once("icecore").chain(arguments.iter().copied());
        Cli::from_arg_matches(&command().try_get_matches_from(all)?)
    }

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        for one in command().get_subcommands() {
            let name = one.get_name();
            let help = one.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("icecore {name}")), "{name} has no example");
            assert!(one.get_about().is_some(), "{name} has no description");
        }
    }

    #[test]
    fn long_texts_fit_a_narrow_terminal() {
        let whole = command();
        for one in whole.get_subcommands().chain([&whole]) {
            for text in [one.get_after_help(), one.get_after_long_help()].into_iter().flatten() {
                for line in text.to_string().lines() {
                    assert!(line.chars().count() <= 79, "{}: {line}", one.get_name());
                }
            }
        }
    }

    #[test]
    fn every_option_has_a_description_and_a_variable() {
        for one in command().get_subcommands() {
            for arg in one.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| long != "help")) {
                let what = format!("{} --{}", one.get_name(), arg.get_long().unwrap_or_default());
                assert!(arg.get_help().is_some(), "{what} has no description");
                let variable = arg.get_env().and_then(|name| name.to_str()).unwrap_or_default();
                assert!(variable.starts_with("ICECORE_"), "{what} has no variable");
            }
        }
    }

    #[test]
    fn options_come_before_or_after_the_command() {
        let before = parse(&["-P", "/pool", "list", "-H"]).unwrap();
        let after = parse(&["list", "-H", "-P", "/pool"]).unwrap();
        assert_eq!((before.pool.is_some(), after.pool), (true, before.pool));
        assert!(parse(&["list", "-H", "-H", "-o", "name", "-o", "used"]).is_ok());
        assert!(parse(&["list", "--nonsense"]).is_err());
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn the_commands_of_the_units_make_sense() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
        let mut commands = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            if path.extension().is_some_and(|extension| extension == "service") {
                // What the README tells people to change.
                for line in [
                    "ReadWritePaths=%f",
                    "#ReadWritePaths=-/mnt/other/copies",
                    "EnvironmentFile=-/etc/icecore/%i.conf",
                ] {
                    assert!(text.lines().any(|found| found == line), "{}: {line}", path.display());
                }
            }
            for command in text.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/icecore ")) {
                let arguments: Vec<&str> = command.split(' ').collect();
                assert_eq!(arguments.last(), Some(&"%f"), "{}", path.display());
                assert!(parse(&arguments).is_ok(), "{}: {command}", path.display());
                commands += 1;
            }
        }
        assert_eq!(commands, 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_command_line_panics(arguments in proptest::collection::vec("-[a-zA-Z]|--[a-z-]{0,8}|list|destroy|set|get|[a-z@%/=,.:]{0,6}|\\PC{0,6}", 0..6)) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let _ = parse(&arguments);
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_example() {
        let pages = generate::pages(command());
        for page in &pages {
            let name = page.get_name().to_owned();
            let text = String::from_utf8(generate::render(page.clone()).unwrap()).unwrap();
            assert!(text.contains(".SH NAME"), "{name}");
            assert!(text.contains("icecore"), "{name}");
        }
        let list = pages.iter().find(|page| page.get_name() == "icecore-list").unwrap();
        let text = String::from_utf8(generate::render(list.clone()).unwrap()).unwrap();
        assert!(text.contains("ICECORE_LIST_JSON"));
        assert!(pages.iter().any(|page| page.get_name() == "icecore-destroy"));
    }
}

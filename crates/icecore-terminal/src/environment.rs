//! Variables for options.

use clap::builder::{FalseyValueParser, OsStr};
use clap::{Arg, ArgAction, Command};

/// Gives every long option of every command its variable. Help mentions that once instead of at each option,
/// the manual at each.
#[must_use]
pub fn with_environment(command: Command, prefix: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let prefix = format!("{prefix}_{}", variable_part(&name));
        command.mut_subcommand(name, |one| {
            with_environment(one.mut_args(|arg| with_variable(arg, &prefix)), &prefix)
        })
    })
}

/// Gives an option its variable, which begins so.
#[must_use]
pub fn with_variable(arg: Arg, prefix: &str) -> Arg {
    let Some(long) = arg.get_long().filter(|long| *long != "help" && *long != "version") else { return arg };
    let variable = OsStr::from(format!("{prefix}_{}", variable_part(long)));
    let id = arg.get_id().clone();
    let arg = arg.env(variable).hide_env(true);
    // Given twice, as an alias in a shell makes it happen, the last one counts.
    match arg.get_action() {
        // For a variable, the empty text is no wish at all.
        ArgAction::SetTrue => arg.value_parser(FalseyValueParser::new()).overrides_with(id),
        ArgAction::Set => arg.overrides_with(id),
        _ => arg,
    }
}

fn variable_part(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

//! What a result was measured with: the versions of the programs, and how each system was mounted.

use crate::error::Result;
use crate::machine;
use crate::options::Options;
use crate::programs::{self, PROGRAMS, Program};
use crate::report::{Parameter, System};
use crate::tool;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest time in which a program says its version.
const LIMIT: Duration = Duration::from_secs(30);
/// Stands for a version that a program does not say.
const UNKNOWN: &str = "unknown";

/// How the systems of one run are mounted, and the disks of `placement`, by their names.
#[derive(Default)]
pub(crate) struct Mounts(Mutex<BTreeMap<String, String>>);

impl Mounts {
    /// Notes how the folder of a system or disk is mounted.
    pub(crate) fn note(&self, name: &str, folder: &Path) -> Result<()> {
        let words = machine::mount_words(folder)?;
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.insert(name.to_owned(), words);
        Ok(())
    }

    fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The versions of the programs that a run has used, and the mounts of its systems, as parameters.
/// `parameters` are those of the run itself.
pub(crate) fn of(
    experiment: &str,
    systems: &BTreeMap<String, System>,
    parameters: &BTreeMap<String, Parameter>,
    options: &Options,
) -> Vec<(String, String)> {
    let mounts = options.mounts.all().into_iter().map(|(name, words)| (format!("mount.{name}"), words));
    let users = programs::users(experiment, systems, parameters);
    let used = PROGRAMS.iter().filter(|program| program.is_used(&users));
    mounts.chain(used.filter_map(|program| of_program(program, options))).collect()
}

/// The version of one of the programs that are looked for, as a parameter.
pub(crate) fn version(name: &str, options: &Options) -> Option<(String, String)> {
    PROGRAMS.iter().find(|program| program.name() == name).and_then(|program| of_program(program, options))
}

fn of_program(program: &Program, options: &Options) -> Option<(String, String)> {
    let (ask, place) = (program.ask?, program.place()?);
    let package = ["--show", "--showformat=${Package} ${Version}\\n", program.name()];
    let version = if ask.is_empty() {
        said(Path::new("dpkg-query"), &package, LIMIT, options)
    } else {
        said(&place, ask, LIMIT, options)
    };
    Some((format!("tool.{}", program.name()), version))
}

/// What a program says about its version. A run does not fail by a program that says nothing.
fn said(program: &Path, arguments: &[&str], limit: Duration, options: &Options) -> String {
    // Some print it to standard error, and bonnie++ prints it and fails. A status from 126 on says that the
    // program did not run.
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" \"$@\" 2>&1 || [ $? -lt 126 ]"]).arg(program).args(arguments);
    let printed = tool::output(&mut command, &Options { time_limit: limit, ..options.unstoppable() });
    printed.ok().and_then(|text| line_of_version(&text)).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The line that has the version: the one that says so, or the first with a digit.
fn line_of_version(printed: &str) -> Option<String> {
    let mut lines = printed.lines().map(str::trim);
    let has_digit = |line: &&str| line.contains(|character: char| character.is_ascii_digit());
    let says = |line: &&str| {
        // MariaDB may print a warning with the date before it.
        line.starts_with("Version") || line.starts_with("LVM version") || line.contains(" Ver ")
    };
    let said = lines.clone().find(says);
    said.or_else(|| lines.find(has_digit)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::Bench;
    use crate::systems::{Areas, SYSTEMS};
    use std::time::Instant;

    #[test]
    fn the_line_of_the_version_is_found() {
        let line = |printed| line_of_version(printed).expect("a version");
        assert_eq!(line("fio-3.33\n"), "fio-3.33");
        assert_eq!(line("\n  LVM version: 2.03.16(2)\n  Library version: 1.02\n"), "LVM version: 2.03.16(2)");
        let warned = "File descriptor 3 leaked on lvm invocation.\n  LVM version: 2.03.16(2)\n";
        assert_eq!(line(warned), "LVM version: 2.03.16(2)");
        let warned = "2026-11-28  2:27:52 0 [Warning] failed\nmariadbd  Ver 10.11.19-MariaDB for Linux\n";
        assert_eq!(line(warned), "mariadbd  Ver 10.11.19-MariaDB for Linux");
        let usage = "bonnie++: invalid option -- '-'\n[-x number-of-tests 1]\n\nVersion: 2.00a\n";
        assert_eq!(line(usage), "Version: 2.00a");
        let usage = "\nblogbench 1.2\n\n--commenters=<n> (-c <n>): number of comments posters\n";
        assert_eq!(line(usage), "blogbench 1.2");
        assert_eq!(line_of_version("command not found\n"), None);
    }

    #[test]
    fn a_program_that_says_no_version_does_not_hold_the_run() {
        let options = Options::new(".");
        let begin = Instant::now();
        assert_eq!(said(Path::new("sleep"), &["600"], Duration::from_millis(200), &options), UNKNOWN);
        assert!(begin.elapsed() < Duration::from_secs(60));
        assert_eq!(said(Path::new("/no/such/program"), &[], LIMIT, &options), UNKNOWN);
        assert_eq!(said(Path::new("echo"), &["one 1.5"], LIMIT, &options), "one 1.5");
    }

    #[test]
    fn a_system_that_is_set_up_notes_its_mount() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(folder.path());
        let plain = SYSTEMS.iter().find(|kind| kind.name == "plain").expect("it is there");
        let _bench = Bench::begin(plain, 1 << 20, Areas::default(), &options).expect("set up");
        let words = machine::mount_words(folder.path()).expect("examined");
        let none = of("many-store", &BTreeMap::new(), &BTreeMap::new(), &options);
        assert_eq!(none, [("mount.plain".to_owned(), words)]);
    }
}

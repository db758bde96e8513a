//! What a result was measured with: the versions of the programs, and how each system was mounted.

use crate::charts::Key;
use crate::doctor;
use crate::error::Result;
use crate::machine;
use crate::options::Options;
use crate::report::{Parameter, System};
use crate::server::postgres;
use crate::tool;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest time in which a program says its version.
const LIMIT: Duration = Duration::from_secs(30);
/// Stands for a version that a program does not say.
const UNKNOWN: &str = "unknown";

/// How the systems of one run are mounted, by system.
#[derive(Default)]
pub(crate) struct Mounts(Mutex<BTreeMap<String, String>>);

impl Mounts {
    /// Notes how the folder of a system is mounted.
    pub(crate) fn note(&self, system: &str, folder: &Path) -> Result<()> {
        let words = machine::mount_words(folder)?;
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.insert(system.to_owned(), words);
        Ok(())
    }

    fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A program whose version belongs to the results of those that use it.
struct Program {
    /// Its name, or where it is.
    path: &'static str,
    /// The arguments with which it prints its version.
    ask: &'static [&'static str],
    /// The experiments that use it, the systems, or single measurements such as `lvm/mylvmbackup`.
    used_by: &'static [&'static str],
}

const fn program(
    path: &'static str,
    ask: &'static [&'static str],
    used_by: &'static [&'static str],
) -> Program {
    Program { path, ask, used_by }
}

/// Those of the load that a run chooses stand in its parameter `tool`.
const PROGRAMS: [Program; 13] = [
    program("fio", &["--version"], &["shock", "fragment", "mount"]),
    program("sysbench", &["--version"], &["mariadb", "clone", "backup", "placement"]),
    program("bonnie++", &["--version"], &[]),
    program("/usr/sbin/mariadbd", &["--version"], &["mariadb", "clone", "backup", "placement"]),
    program("postgres", &["--version"], &["postgres"]),
    program("pgbench", &["--version"], &["postgres"]),
    program("zstd", &["--version"], &["backup"]),
    program(
        "/usr/sbin/mkfs.ext4",
        &["-V"],
        &["lvm", "lvm-thin", "icecore-mount", "icecore-sqlite", "placement"],
    ),
    program("/usr/sbin/mkfs.xfs", &["-V"], &["xfs", "xfs-reflink"]),
    program("/usr/sbin/mkfs.btrfs", &["--version"], &["btrfs", "btrfs_oltp_write_only"]),
    program("/usr/sbin/lvm", &["version"], &["lvm", "lvm-thin"]),
    program("/usr/sbin/zfs", &["version"], &["zfs"]),
    program("mylvmbackup", &[], &["lvm/mylvmbackup"]),
];

impl Program {
    fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Where it is, if it is installed.
    fn place(&self) -> Option<PathBuf> {
        let path = match self.path {
            "postgres" | "pgbench" => postgres::program(self.path),
            path => PathBuf::from(path),
        };
        doctor::find(&path.to_string_lossy())
    }

    /// Whether the experiment, or one of the systems that it measured, uses it.
    fn is_used(
        &self,
        experiment: &str,
        systems: &BTreeMap<String, System>,
        load: Option<&Parameter>,
    ) -> bool {
        let by = |user: &str| self.used_by.contains(&user);
        let by_system = |(name, system): (&String, &System)| {
            system.unavailable.is_none() && (by(name) || by(Key::of(name).system))
        };
        let is_load = |tool: &str| matches!(load, Some(Parameter::Text(name)) if name == tool);
        // bonnie++ makes its files itself. All other loads write to one that fio has made.
        let has_no_part = self.name() == "fio" && is_load("bonnie++");
        is_load(self.name()) || (by(experiment) && !has_no_part) || systems.iter().any(by_system)
    }

    fn version(&self, place: &Path, options: &Options) -> String {
        if self.ask.is_empty() {
            // It has no option for this that all of its versions know.
            let package = ["--show", "--showformat=${Package} ${Version}\\n", self.name()];
            return said(Path::new("dpkg-query"), &package, LIMIT, options);
        }
        said(place, self.ask, LIMIT, options)
    }
}

/// The versions of the programs that a run has used, and the mounts of its systems, as parameters.
/// `load` is the parameter `tool` of the run.
pub(crate) fn of(
    experiment: &str,
    systems: &BTreeMap<String, System>,
    load: Option<&Parameter>,
    options: &Options,
) -> Vec<(String, String)> {
    let mounts = options.mounts.all().into_iter().map(|(name, words)| (format!("mount.{name}"), words));
    let used = PROGRAMS.iter().filter(|program| program.is_used(experiment, systems, load));
    let versions = used.filter_map(|program| {
        let place = program.place()?;
        Some((format!("tool.{}", program.name()), program.version(&place, options)))
    });
    mounts.chain(versions).collect()
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
    let said = lines.clone().find(|line| line.starts_with("Version") || line.starts_with("LVM version"));
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
        let usage = "bonnie++: invalid option -- '-'\n[-x number-of-tests 1]\n\nVersion: 2.00a\n";
        assert_eq!(line(usage), "Version: 2.00a");
        assert_eq!(line_of_version("command not found\n"), None);
    }

    #[test]
    fn a_result_has_the_programs_of_its_experiment_and_of_the_systems_that_ran() {
        let systems: BTreeMap<String, System> = [
            ("xfs-reflink/sync/0".to_owned(), System::new("writes/s", vec![1.0])),
            ("btrfs".to_owned(), System::unavailable("writes/s", "no btrfs in this kernel")),
        ]
        .into();
        let used = |experiment, load: Option<&Parameter>| -> Vec<&str> {
            let used = PROGRAMS.iter().filter(|program| program.is_used(experiment, &systems, load));
            used.map(Program::name).collect()
        };
        assert_eq!(used("shock", Some(&"fio".into())), ["fio", "mkfs.xfs"]);
        assert_eq!(used("shock", Some(&"sysbench".into())), ["fio", "sysbench", "mkfs.xfs"]);
        assert_eq!(used("shock", Some(&"bonnie++".into())), ["bonnie++", "mkfs.xfs"]);
        assert_eq!(used("full", None), ["mkfs.xfs"]);
    }

    #[test]
    fn the_programs_have_users_that_there_are() {
        let is_system = |user: &str| SYSTEMS.iter().any(|kind| kind.name == Key::of(user).system);
        let is_experiment = |user: &str| crate::EXPERIMENTS.iter().any(|one| one.name == user);
        for user in PROGRAMS.iter().flat_map(|program| program.used_by) {
            let of_mariadb = user.strip_prefix("btrfs_").is_some_and(|workload| workload.starts_with("oltp"));
            assert!(is_system(user) || is_experiment(user) || of_mariadb, "{user}");
        }
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
        assert_eq!(of("many-store", &BTreeMap::new(), None, &options), [("mount.plain".to_owned(), words)]);
    }
}

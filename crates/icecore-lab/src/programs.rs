//! The programs that the lab runs: where each is, how one gets it, and what uses it.

use crate::error::{Error, Result};
use crate::report::{Parameter, System};
use crate::server::postgres;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How one gets a program.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// Debian has this package of it.
    Package(&'static str),
    /// Debian has none. Its source is here.
    Source(&'static str),
}

impl Origin {
    /// What to do where the program is not there.
    pub(crate) fn advice(self) -> String {
        match self {
            Self::Package(package) => format!("apt-get install {package}"),
            Self::Source(place) => format!("build it from its source ({place})"),
        }
    }
}

impl From<&'static str> for Origin {
    fn from(package: &'static str) -> Self {
        Self::Package(package)
    }
}

/// A program that experiments run, or that the guest needs.
pub(crate) struct Program {
    /// Its name, or where it is.
    path: &'static str,
    /// How one gets it, unless it is in a package that apt-get may not find.
    pub origin: Option<Origin>,
    /// The arguments with which it prints its version, if results have that. Without arguments it is the
    /// version of the package: mylvmbackup has no option for this that all of its versions know.
    pub ask: Option<&'static [&'static str]>,
    /// What uses it: an experiment, one with an option, a system, an experiment on a system, a run of one;
    /// or the guest.
    pub used_by: &'static [&'static str],
}

const fn program(
    path: &'static str,
    package: &'static str,
    ask: Option<&'static [&'static str]>,
    used_by: &'static [&'static str],
) -> Program {
    Program { path, origin: Some(Origin::Package(package)), ask, used_by }
}

/// Debian dropped the package.
pub(crate) const BCACHEFS_TOOLS: Origin = Origin::Source("github.com/koverstreet/bcachefs-tools");

const VERSION: Option<&[&str]> = Some(&["--version"]);

/// Those that are looked for. Unless said otherwise their packages are in Debian's main.
pub(crate) const PROGRAMS: [Program; 23] = [
    // bonnie++ makes its files itself. All other loads of shock write to one that fio has made.
    program("fio", "fio", VERSION, &["shock --tool fio", "shock --tool sysbench", "fragment", "mount"]),
    program(
        "/usr/sbin/mkfs.ext4",
        "e2fsprogs",
        Some(&["-V"]),
        &["lvm", "lvm-thin", "icecore-mount", "icecore-sqlite", "placement"],
    ),
    program("/usr/sbin/filefrag", "e2fsprogs", None, &["fragment"]),
    program("/usr/sbin/mkfs.xfs", "xfsprogs", Some(&["-V"]), &["xfs", "xfs-reflink"]),
    program("/usr/sbin/mkfs.btrfs", "btrfs-progs", VERSION, &["btrfs"]),
    Program {
        path: "bcachefs",
        origin: Some(BCACHEFS_TOOLS),
        ask: Some(&["version"]),
        used_by: &["bcachefs"],
    },
    program("/usr/sbin/lvm", "lvm2", Some(&["version"]), &["lvm", "lvm-thin"]),
    program("thin_check", "thin-provisioning-tools", None, &["lvm-thin"]),
    // Its package is in contrib, so there is none to install.
    Program { path: "/usr/sbin/zfs", origin: None, ask: Some(&["version"]), used_by: &["zfs"] },
    program("fusermount3", "fuse3", None, &["icecore-mount"]),
    program("zstd", "zstd", VERSION, &["backup"]),
    program(
        "/usr/sbin/mariadbd",
        "mariadb-server",
        VERSION,
        &["mariadb", "clone", "backup", "placement --server mariadb"],
    ),
    program(
        "sysbench",
        "sysbench",
        VERSION,
        &["mariadb", "clone", "backup", "placement", "shock --tool sysbench"],
    ),
    program("mariadb-backup", "mariadb-backup", VERSION, &["backup by mariadb-backup"]),
    program("mylvmbackup", "mylvmbackup", Some(&[]), &["backup on lvm"]),
    program("bonnie++", "bonnie++", VERSION, &["shock --tool bonnie++"]),
    Program {
        path: "blogbench",
        origin: Some(Origin::Source("github.com/jedisct1/Blogbench")),
        // It has no option for its version alone.
        ask: Some(&["--help"]),
        used_by: &["blog --tool blogbench"],
    },
    program("postgres", "postgresql", VERSION, &["postgres", "placement --server postgres"]),
    program("pgbench", "postgresql-contrib", VERSION, &["postgres"]),
    program("qemu-system-x86_64", "qemu-system-x86", VERSION, &["--guest"]),
    program("mmdebstrap", "mmdebstrap", None, &["--guest, building it"]),
    program("unshare", "util-linux", None, &["--guest, building it"]),
    program(
        "setpriv",
        "util-linux",
        None,
        &["mariadb", "clone", "postgres", "backup", "placement", "--guest"],
    ),
];

impl Program {
    pub(crate) fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Debian's package that has it, if there is one.
    pub(crate) fn package(&self) -> Option<&'static str> {
        match self.origin? {
            Origin::Package(package) => Some(package),
            Origin::Source(_) => None,
        }
    }

    /// Where it is, if it is installed.
    pub(crate) fn place(&self) -> Option<PathBuf> {
        find(match self.path {
            "postgres" | "pgbench" => postgres::program(self.path),
            path => PathBuf::from(path),
        })
    }

    /// Whether one of these uses it.
    pub(crate) fn is_used(&self, users: &BTreeSet<String>) -> bool {
        self.used_by.iter().any(|user| users.contains(*user))
    }
}

/// All that used programs in a run, in the words of [`Program::used_by`].
pub(crate) fn users(
    experiment: &str,
    systems: &BTreeMap<String, System>,
    parameters: &BTreeMap<String, Parameter>,
) -> BTreeSet<String> {
    let mut users = BTreeSet::from([experiment.to_owned()]);
    for option in ["tool", "server"] {
        if let Some(Parameter::Text(chosen)) = parameters.get(option) {
            users.insert(format!("{experiment} --{option} {chosen}"));
        }
    }
    // The policies of a model have names of systems, and no system runs.
    let has_run = |system: &System| system.unavailable.is_none() && experiment != "model";
    for (name, _) in systems.iter().filter(|(_, system)| has_run(system)) {
        // Studies have the run behind a slash, and `mariadb` has it behind `_`.
        let (system, run) = name.split_once(['/', '_']).unwrap_or((name, ""));
        users.extend([
            system.to_owned(),
            format!("{experiment} on {system}"),
            format!("{experiment} by {run}"),
        ]);
    }
    users
}

/// Refuses an experiment of which a program is not there. `option`: what chooses programs of it, such as
/// `--tool fio`.
pub(crate) fn require(experiment: &'static str, option: &str) -> Result<()> {
    let users = BTreeSet::from([experiment.to_owned(), format!("{experiment} {option}")]);
    let lacks = |program: &&Program| program.is_used(&users) && program.place().is_none();
    PROGRAMS.iter().find(lacks).map_or(Ok(()), |program| {
        let advice = program.origin.map(Origin::advice).unwrap_or_default();
        Err(Error::Missing { experiment, program: program.name().to_owned(), advice })
    })
}

/// A program in the folders of the path, or of the system's programs.
pub(crate) fn find(program: impl AsRef<Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let executable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    folders.map(|folder| folder.join(&program)).find(executable)
}

/// A command that runs the program from where [`find`] finds it.
pub(crate) fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| program.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn a_program_is_found_in_the_path() {
        let shell = find("sh").expect("every system has a shell");
        assert!(shell.ends_with("sh") && find(&shell).is_some_and(|found| found == shell));
        assert!(find("no-such-program").is_none());
        require("commits", "").expect("it needs none");
    }

    #[test]
    fn a_run_uses_the_programs_of_its_experiment_its_options_and_the_systems_that_ran() {
        let systems: BTreeMap<String, System> = [
            ("xfs-reflink/sync/0".to_owned(), System::new("writes/s", vec![1.0])),
            ("btrfs".to_owned(), System::unavailable("writes/s", "no btrfs in this kernel")),
        ]
        .into();
        let used = |experiment, option: &str, chosen: &str| -> Vec<&str> {
            let parameters = BTreeMap::from([(option.to_owned(), Parameter::from(chosen))]);
            let users = users(experiment, &systems, &parameters);
            PROGRAMS.iter().filter(|program| program.is_used(&users)).map(Program::name).collect()
        };
        assert_eq!(used("shock", "tool", "fio"), ["fio", "mkfs.xfs"]);
        assert_eq!(used("shock", "tool", "sysbench"), ["fio", "mkfs.xfs", "sysbench"]);
        assert_eq!(used("shock", "tool", "bonnie++"), ["mkfs.xfs", "bonnie++"]);
        assert_eq!(used("blog", "tool", "blogbench"), ["mkfs.xfs", "blogbench"]);
        assert_eq!(used("blog", "workload", "the mix of blogbench"), ["mkfs.xfs"]);
        assert_eq!(used("full", "rounds", "3"), ["mkfs.xfs"]);
        let of_postgres = ["mkfs.ext4", "mkfs.xfs", "sysbench", "postgres", "setpriv"];
        assert_eq!(used("placement", "server", "postgres"), of_postgres);
        let names = ["btrfs_oltp_write_only", "lvm/mylvmbackup"];
        let systems = BTreeMap::from(names.map(|name| (name.to_owned(), System::default())));
        let users = users("backup", &systems, &BTreeMap::new());
        let expected = ["btrfs", "lvm", "backup on lvm", "backup by mylvmbackup", "backup"];
        assert!(expected.iter().all(|user| users.contains(*user)), "{users:?}");
    }

    #[test]
    fn the_programs_have_users_that_there_are() {
        for user in PROGRAMS.iter().flat_map(|program| program.used_by) {
            let name = user.split(' ').next().unwrap_or(user);
            let is_system = SYSTEMS.iter().any(|kind| kind.name == name);
            let is_experiment = crate::EXPERIMENTS.iter().any(|one| one.name == name);
            assert!(is_system || is_experiment || name.starts_with("--guest"), "{user}");
        }
    }
}

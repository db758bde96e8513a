//! What this machine can measure: what of the kernel, of programs, of space and of the guest is there, and
//! how one gets what lacks.

use crate::error::{Doing, Error, Result};
use crate::experiments::EXPERIMENTS;
use crate::guest;
use crate::options::Options;
use crate::programs::PROGRAMS;
use crate::room;
use crate::systems;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One thing that experiments use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Whether it is there.
    pub available: bool,
    /// Where it is; or what lacks, and how one gets it.
    pub detail: String,
    /// What uses it.
    pub used_for: String,
    /// Debian's package that has it, if there is one.
    pub package: Option<String>,
}

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A part of the kernel, or a right.
    Kernel,
    /// Room on the disk.
    Space,
    /// A program.
    Program,
    /// A system that studies compare.
    System,
    /// The machine of QEMU, or what runs it.
    Guest,
}

/// Looks at everything. `directory` is on the filesystem to measure.
///
/// # Errors
/// The filesystem of the directory cannot be examined.
pub fn examine(directory: &Path) -> Result<Vec<Finding>> {
    let mut findings = kernel();
    findings.push(space(directory)?);
    findings.extend(PROGRAMS.iter().filter_map(|program| {
        let (origin, place) = (program.origin?, program.place());
        Some(Finding {
            name: program.name().to_owned(),
            kind: Kind::Program,
            available: place.is_some(),
            detail: place.map_or_else(|| origin.advice(), |place| place.display().to_string()),
            used_for: program.used_by.join(", "),
            package: program.package().map(str::to_owned),
        })
    }));
    findings.extend(systems::examine().into_iter().map(|(name, probed)| Finding {
        name: name.to_owned(),
        kind: Kind::System,
        available: probed.is_ok(),
        detail: probed.err().unwrap_or_else(|| "this machine runs it".to_owned()),
        used_for: "studies".to_owned(),
        package: None,
    }));
    findings.extend(guest::examine().map(|(name, available, detail)| Finding {
        name: name.to_owned(),
        kind: Kind::Guest,
        available,
        detail,
        used_for: "--guest".to_owned(),
        package: None,
    }));
    Ok(findings)
}

/// The packages of everything that lacks, each once.
#[must_use]
pub fn packages(findings: &[Finding]) -> Vec<&str> {
    let lacking = findings.iter().filter(|finding| !finding.available);
    let mut packages: Vec<&str> = lacking.filter_map(|finding| finding.package.as_deref()).collect();
    packages.dedup();
    packages
}

fn kernel() -> Vec<Finding> {
    let facts: [(&str, bool, &str, &str); 4] = [
        ("root", rustix::process::geteuid().is_root(), "run as root", "mounts, loop devices, servers"),
        ("FUSE", Path::new("/dev/fuse").exists(), "no /dev/fuse in this kernel", "system icecore-mount"),
        (
            "loop devices",
            Path::new("/dev/loop-control").exists(),
            "no loop devices in this kernel",
            "file systems in a file",
        ),
        (
            "device-mapper",
            systems::has_device_mapper().is_ok(),
            systems::NO_DEVICE_MAPPER,
            "systems lvm, lvm-thin",
        ),
    ];
    let finding = |(name, available, lacks, used_for): (&str, bool, &str, &str)| Finding {
        name: name.to_owned(),
        kind: Kind::Kernel,
        available,
        detail: if available { "there" } else { lacks }.to_owned(),
        used_for: used_for.to_owned(),
        package: None,
    };
    facts.into_iter().map(finding).collect()
}

/// Bytes in which each study has room at full size.
fn needed(directory: &Path) -> u64 {
    let options = Options::new(directory);
    EXPERIMENTS.iter().map(|experiment| (experiment.room)(&options)).max().unwrap_or(0)
}

fn space(directory: &Path) -> Result<Finding> {
    let examined = || format!("examine {}", directory.display());
    if !fs::metadata(directory).doing(examined)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory)).doing(examined);
    }
    let free = room::free(directory).doing(examined)?;
    let gibibytes = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    let needed = needed(directory);
    Ok(Finding {
        name: "space".to_owned(),
        kind: Kind::Space,
        available: free >= needed,
        detail: format!(
            "{:.0} GiB are free in {}, and studies at full size need {:.0}",
            gibibytes(free),
            directory.display(),
            gibibytes(needed)
        ),
        used_for: "all studies at full size".to_owned(),
        package: None,
    })
}

/// Installs packages with apt-get(8), which shows what it does on standard error. Servers in them are not
/// started.
///
/// # Errors
/// The caller is not root, there is no apt-get, or it fails.
pub fn install(packages: &[&str]) -> Result<()> {
    let refuse = |reason: String| Error::Child { job: "installing packages".to_owned(), reason };
    if !rustix::process::geteuid().is_root() {
        return Err(refuse(format!("only root can: run `sudo apt-get install {}`", packages.join(" "))));
    }
    let _policy = Policy::begin(Path::new("/usr/sbin/policy-rc.d"))?;
    for arguments in [&["update", "-qq"][..], &["install", "-qq", "--no-install-recommends"][..]] {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        if arguments[0] == "install" {
            command.args(packages);
        }
        // Standard output is for results.
        let status = command.stdout(io::stderr()).status();
        let status = status.map_err(|error| {
            refuse(format!("cannot run apt-get ({error}): install {} by hand", packages.join(" ")))
        })?;
        if !status.success() {
            return Err(refuse(format!(
                "apt-get {} failed ({status}): its messages stand above",
                arguments[0]
            )));
        }
    }
    Ok(())
}

/// While it is there, packages start no servers (invoke-rc.d(8)).
struct Policy(Option<PathBuf>);

impl Policy {
    fn begin(path: &Path) -> Result<Self> {
        if path.exists() {
            return Ok(Self(None));
        }
        let doing = || format!("write {}", path.display());
        fs::write(path, "#!/bin/sh\nexit 101\n").doing(doing)?;
        let policy = Self(Some(path.to_owned()));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).doing(doing)?;
        Ok(policy)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_names_its_package_once_and_this_machine_can_be_examined() {
        let findings = examine(Path::new(".")).expect("examined");
        let lacking: Vec<Finding> = findings
            .into_iter()
            .filter(|finding| finding.kind == Kind::Program)
            .map(|finding| Finding { available: false, ..finding })
            .collect();
        let packages = packages(&lacking);
        assert_eq!(packages.iter().filter(|package| **package == "e2fsprogs").count(), 1);
        for package in ["xfsprogs", "lvm2", "thin-provisioning-tools", "mariadb-backup"] {
            assert_eq!(packages.iter().filter(|found| **found == package).count(), 1, "{package}");
        }
        assert!(lacking.iter().any(|finding| finding.name == "blogbench" && finding.package.is_none()));
        assert!(!packages.contains(&"blogbench"), "there is no such package");
    }

    #[test]
    fn the_policy_goes_and_one_of_the_machine_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("policy-rc.d");
        let policy = Policy::begin(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o755);
        drop(policy);
        assert!(!path.exists());
        fs::write(&path, "mine").expect("written");
        drop(Policy::begin(&path).expect("there already"));
        assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
    }
}

//! A small machine of QEMU, with a kernel that has what this one lacks: the studies run in it as they do
//! outside.
//!
//! It is made of Debian's packages once, and kept. Each run boots it anew, with an empty disk, and nothing of
//! the run stays.

mod boot;
mod build;
pub(crate) mod study;
mod watch;

use crate::error::{Error, Result};
use crate::experiments::{EXPERIMENTS, Experiment, Group};
use crate::options::Options;
use crate::programs::PROGRAMS;
use crate::report::Report;
use crate::systems;
use std::path::PathBuf;

/// Which guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guest {
    /// The folder in which it is kept.
    pub cache: PathBuf,
    /// Whether it must have OpenZFS, which is compiled once.
    pub zfs: bool,
}

impl Guest {
    /// Where the guest is kept unless said otherwise: `icecore/guest` in the user's folder for caches (XDG
    /// Base Directory).
    #[must_use]
    pub fn default_cache() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(caches.join("icecore/guest"))
    }

    /// Whether it is there. Otherwise a run builds it first.
    #[must_use]
    pub fn is_built(&self) -> bool {
        build::find(self).is_some()
    }

    /// Builds it where it is not there, or was built by another version of this program.
    ///
    /// # Errors
    /// The caller is not root, a program or room lacks, or a package cannot be had.
    pub fn build(&self, options: &Options) -> Result<()> {
        build::ready(self, options).map(|_| ())
    }
}

/// Whether a run with these options has a guest whose processor QEMU has to emulate: KVM does not run a
/// machine here. Where there is a guest this takes up to two seconds.
pub(crate) fn is_emulated(options: &Options) -> bool {
    options.guest.is_some() && !boot::kvm_works().unwrap_or(false)
}

/// What [doctor](crate::doctor) says of the guest: the name of each thing, whether it is there, and where or
/// what that means.
pub(crate) fn examine() -> [(&'static str, bool, String); 3] {
    let advice = |zfs| {
        let option = if zfs { " --with zfs" } else { "" };
        format!("not built: the first run builds it, or sudo icecore lab guest{option}")
    };
    let built = |name, zfs| {
        let place = Guest::default_cache().and_then(|cache| build::find(&Guest { cache, zfs }));
        (name, place.is_some(), place.map_or_else(|| advice(zfs), |place| place.display().to_string()))
    };
    let (accelerated, speed) = match boot::kvm_works() {
        Ok(true) => (true, "QEMU runs with it, and emulates the processor where it gives up"),
        Ok(false) => (false, "QEMU emulates the processor, and a study runs several times slower"),
        Err(_) => (false, "QEMU does not run"),
    };
    [built("guest", false), built("guest with ZFS", true), ("KVM", accelerated, speed.to_owned())]
}

/// Runs a study in the guest. Its result says that the machine is emulated.
pub(crate) fn run(study: &Experiment, options: &Options, guest: &Guest) -> Result<Report> {
    if study.group != Group::Study {
        let studies = EXPERIMENTS.iter().filter(|experiment| experiment.group == Group::Study);
        let known = studies.map(|study| study.name).collect::<Vec<_>>().join(", ");
        return Err(Error::UnknownExperiment { name: format!("{} for the guest", study.name), known });
    }
    let built = build::ready(guest, options)?;
    boot::run(&built, study, options)
}

/// An error of the guest.
fn failure(reason: impl Into<String>) -> Error {
    Error::Child { job: "the guest".to_owned(), reason: reason.into() }
}

/// Refuses where one of these programs is not there.
fn require(names: &[&str]) -> Result<()> {
    for program in PROGRAMS.iter().filter(|program| names.contains(&program.name())) {
        systems::has_program(program.name(), program.package().unwrap_or_default())
            .map_err(|reason| failure(format!("{reason}, or icecore lab doctor --install")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    #[test]
    fn an_experiment_of_the_store_does_not_run_in_the_guest() {
        let folder = tempfile::tempdir().expect("a folder");
        let guest = Guest { cache: folder.path().join("cache"), zfs: false };
        let options = Options { guest: Some(guest.clone()), ..Options::new(folder.path()) };
        let error = experiments::run("commits", &options).expect_err("refused").to_string();
        assert!(error.contains("commits for the guest") && error.contains("shock"), "{error}");
        assert!(!guest.cache.exists() && !guest.is_built());
    }
}

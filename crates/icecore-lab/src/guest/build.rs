//! Makes the guest, and keeps it.

use super::{Guest, failure, require, watch};
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::room;
use crate::tool::{self, Tool};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = include_str!("build.sh");
/// The recipe by which a guest was made lies beside it: another one makes it anew.
const RECIPE: &str = "recipe";
/// While it is made there are two copies of its files.
const ROOM_BYTES: u64 = 4 << 30;
/// Longest time without a step.
const SILENCE: Duration = Duration::from_secs(45 * 60);
const LOOK: Duration = Duration::from_millis(200);

/// The folder of a guest that is there and current. One with ZFS also does where none is wanted.
pub(super) fn find(guest: &Guest) -> Option<PathBuf> {
    let current = |name: &&str| {
        fs::read_to_string(guest.cache.join(name).join(RECIPE)).is_ok_and(|recipe| recipe == SCRIPT)
    };
    let names: &[&str] = if guest.zfs { &["zfs"] } else { &["plain", "zfs"] };
    names.iter().find(|name| current(name)).map(|name| guest.cache.join(name))
}

/// The folder of the guest, which is built if it is not there.
pub(super) fn ready(guest: &Guest, options: &Options) -> Result<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        return Err(failure("it is for x86-64, and this machine is another"));
    }
    if let Some(built) = find(guest) {
        return Ok(built);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(failure("only root can build it: run `sudo icecore lab guest`"));
    }
    require(&["mmdebstrap", "unshare", "setpriv"])?;
    fs::create_dir_all(&guest.cache).doing(|| format!("make {}", guest.cache.display()))?;
    let _lock = lock(&guest.cache, options)?;
    // Another run may have built it in the meantime.
    if let Some(built) = find(guest) {
        return Ok(built);
    }
    room::require(&guest.cache, ROOM_BYTES, "building the guest")?;
    build(guest, options)
}

/// One build at a time.
fn lock(cache: &Path, options: &Options) -> Result<File> {
    let path = cache.join("lock");
    let doing = || format!("lock {}", path.display());
    let file = File::create(&path).doing(doing)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => options.go_on()?,
            Err(TryLockError::Error(error)) => return Err(error).doing(doing),
        }
        std::thread::sleep(LOOK);
    }
}

fn build(guest: &Guest, options: &Options) -> Result<PathBuf> {
    remove_unfinished(&guest.cache);
    let doing = || format!("make a folder in {}", guest.cache.display());
    let folder = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&guest.cache).doing(doing)?;
    let (script, log, steps) =
        (folder.path().join("build.sh"), guest.cache.join("build.log"), folder.path().join("steps"));
    let write = |path: &Path, text: &str| fs::write(path, text).doing(|| format!("write {}", path.display()));
    let create = |path: &Path| File::create(path).doing(|| format!("make {}", path.display()));
    write(&script, SCRIPT)?;
    // Mounts and processes of the script end with its namespaces, however it ends (unshare(1)), and a lab
    // that is killed takes it along (setpriv(1)).
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount-proc", "bash"]);
    command.arg(&script).arg(folder.path());
    if guest.zfs {
        command.arg("zfs");
    }
    let tool = Tool::start(command.stdout(create(&steps)?).stderr(create(&log)?))?;
    let status = watch::until_end(tool, &steps, SILENCE, || Ok(()), options)?;
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let (said, log) = (tool::tail(&said), log.display());
        return Err(failure(format!("building it failed ({status}): {said}; {log} has the whole log")));
    }
    for path in [&script, &steps, &log] {
        let _ = fs::remove_file(path);
    }
    write(&folder.path().join(RECIPE), SCRIPT)?;
    let target = guest.cache.join(if guest.zfs { "zfs" } else { "plain" });
    let _ = fs::remove_dir_all(&target);
    let finished = folder.keep();
    fs::rename(&finished, &target).doing(|| format!("rename {}", finished.display()))?;
    Ok(target)
}

const UNFINISHED: &str = "unfinished-";

/// A build that was killed could not remove its folder.
fn remove_unfinished(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_of_another_recipe_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let guest = |zfs| Guest { cache: folder.path().to_owned(), zfs };
        let put = |name: &str, recipe: &str| {
            fs::create_dir_all(folder.path().join(name)).expect("made");
            fs::write(folder.path().join(name).join(RECIPE), recipe).expect("written");
        };
        put("plain", "an old recipe");
        assert_eq!(find(&guest(false)), None);
        put("plain", SCRIPT);
        assert_eq!(find(&guest(false)), Some(folder.path().join("plain")));
        assert_eq!(find(&guest(true)), None);
        put("zfs", SCRIPT);
        fs::remove_dir_all(folder.path().join("plain")).expect("removed");
        assert_eq!(find(&guest(false)), find(&guest(true)));
    }

    #[test]
    fn what_a_killed_build_left_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("unfinished-x/root")).expect("made");
        fs::create_dir_all(folder.path().join("plain")).expect("made");
        remove_unfinished(folder.path());
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}

//! The last act of the demonstration: a file on a mount, in the past, in a copy, and back again.

use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BEFORE: &str = "as it was on Monday";
const AFTER: &str = "what somebody did to it on Tuesday";

/// A pool that is mounted, until this is dropped.
struct Mount {
    icecore: PathBuf,
    pool: PathBuf,
    point: PathBuf,
    _folder: tempfile::TempDir,
}

/// Runs the act in a temporary folder, and answers what to show. Where nothing can be mounted it says so.
///
/// # Errors
/// What was read is not what should be there, or a command failed.
pub fn run(directory: &Path) -> anyhow::Result<String> {
    let mount = match Mount::make(directory) {
        Ok(mount) => mount,
        Err(reason) => return Ok(format!("The mount is not shown here: {reason:#}")),
    };
    let file = mount.point.join("db/file");
    fs::write(&file, BEFORE).with_context(|| format!("cannot write {}", file.display()))?;
    let snapshot = mount.command(&["snapshot", "db@monday"])?;
    fs::write(&file, AFTER)?;
    expect(&mount.point.join("db/.icecore/snapshots/monday/file"), BEFORE)?;
    let clone = mount.command(&["clone", "db@monday", "trial"])?;
    expect(&mount.point.join("trial/file"), BEFORE)?;
    expect(&file, AFTER)?;
    let rollback = mount.command(&["rollback", "db@monday"])?;
    expect(&file, BEFORE)?;
    Ok(format!(
        "On a mount, for any program: snapshot in {} ms, a clone beside it in {} ms, back to the snapshot in {} ms.",
        snapshot.as_millis(),
        clone.as_millis(),
        rollback.as_millis()
    ))
}

fn expect(file: &Path, content: &str) -> anyhow::Result<()> {
    let found = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(found == content, "{} holds {found:?} instead of {content:?}", file.display());
    Ok(())
}

impl Mount {
    fn make(directory: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("icecore-mount-").tempdir_in(directory)?;
        // The one that belongs to this program, else the first in the path.
        let beside = std::env::current_exe()?.with_file_name("icecore");
        let icecore = if beside.is_file() { beside } else { PathBuf::from("icecore") };
        let (pool, point) = (folder.path().join("pool"), folder.path().join("mnt"));
        let mount = Self { icecore, pool, point, _folder: folder };
        fs::create_dir(&mount.point)?;
        let (pool, point) = (mount.pool.to_string_lossy(), mount.point.to_string_lossy());
        mount.command(&["init", &*pool])?;
        mount.command(&["create", "db"])?;
        mount.command(&["mount", &*pool, &*point])?;
        Ok(mount)
    }

    /// Runs `icecore` on the pool, and answers how long that took.
    fn command(&self, arguments: &[&str]) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let output = Command::new(&self.icecore)
            .args(arguments)
            .env("ICECORE_POOL", &self.pool)
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "icecore {} failed: {}", arguments.join(" "), text.trim());
        Ok(begin.elapsed())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Fails where the mount was never made. Before the folder goes: nothing may be deleted through it.
        let _ = self.command(&["umount", &self.point.to_string_lossy()]);
    }
}

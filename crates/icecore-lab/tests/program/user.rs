//! The program as a user who is not root.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// The user `nobody` of Debian.
const USER: &str = "65534";

/// A folder that this user may write, with the program in it: its own folder need not be open to all.
fn ground() -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        eprintln!("left out: only root becomes another user, by setpriv");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("icecore-lab");
    fs::copy(env!("CARGO_BIN_EXE_icecore-lab"), &program).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    Some(folder)
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(folder.join("icecore-lab"));
    command.args(["run", "--quick", "--directory"]).arg(folder).args(arguments);
    command.env("TMPDIR", folder).env("HOME", folder).current_dir(folder).output().unwrap()
}

#[test]
fn what_needs_no_mount_is_measured_and_the_rest_says_that_it_needs_root() {
    let Some(folder) = ground() else { return };
    let output = run(folder.path(), &["valuation", "--systems", "plain,btrfs,icecore-sqlite", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["systems"]["plain/none"]["samples"][0].is_number(), "{result}");
    for system in ["btrfs", "icecore-sqlite"] {
        let reason = result["systems"][system]["unavailable"].as_str().unwrap_or_default();
        assert!(reason.contains("run it as root"), "{system}: {result}");
    }
    // Nothing but the program is left.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_study_of_what_needs_root_alone_is_refused() {
    let Some(folder) = ground() else { return };
    for arguments in [&["many", "--systems", "btrfs"], &["placement", "--pairs", "1"]] {
        let output = run(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("root"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

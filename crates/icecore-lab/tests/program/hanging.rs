//! A program of a rival that hangs.

use crate::fixture::{can_mount, program};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_rival_that_hangs_is_left_out_when_its_time_is_up() {
    if !can_mount() {
        return;
    }
    let (programs, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hangs = programs.path().join("btrfs");
    fs::write(&hangs, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&hangs, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut command = program();
    command.args(["run", "valuation", "--quick", "--json", "--systems", "plain,btrfs", "--time-limit", "2"]);
    command.arg("--directory").arg(measured.path()).env("PATH", path);
    let assert = command.assert().success();
    let document: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let reason = document["systems"]["btrfs"]["unavailable"].as_str().unwrap();
    assert!(reason.contains("`btrfs ") && reason.contains("(--time-limit)"), "{reason}");
    assert!(document["systems"]["plain/none"]["samples"][0].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(measured.path()).unwrap().count(), 0, "files are left");
}

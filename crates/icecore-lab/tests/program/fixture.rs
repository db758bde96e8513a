//! The program.

use assert_cmd::Command;
use std::path::Path;

/// The program, with nothing of the caller's environment that it would heed.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore-lab"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ICECORE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs what must succeed, and answers its output.
pub fn printed(arguments: &[&str], paths: &[&Path]) -> String {
    let assert = program().args(arguments).args(paths).assert().success().stderr("");
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// Runs what must fail with this code, and answers its complaint: one line, unless the command line makes no
/// sense.
pub fn refused(code: i32, arguments: &[&str], paths: &[&Path]) -> String {
    let assert = program().args(arguments).args(paths).assert().code(code);
    let text = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(text.starts_with("icecore: "), "{text}");
    if code != 2 {
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    text
}

/// Whether mounts can be made here. Where they cannot, a test says so and ends.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("left out: a mount needs /dev/fuse and, in these tests, root");
    }
    can
}

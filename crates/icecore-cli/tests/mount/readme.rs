//! The README's example of a mount, word for word.

use crate::fixture::{FORGET_OTHER_MOUNTS, can_mount};
use crate::install::install;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What comes before the example: a folder in place of `/mnt`, `/tmp` and the home, and the pool that the
/// README has made by then.
const BEFORE: &str = r#"
clean_up() {
    kill $(jobs -p) 2>/dev/null || true
    wait
    icecore umount /mnt/pool || umount -l /mnt/pool
}
trap clean_up EXIT
mkdir home tmp run
chmod 1777 tmp
mount --bind . /mnt
mount --bind tmp /tmp
cd /
export HOME=/mnt/home PATH="/mnt:$PATH"
icecore init ~/pool
"#;
/// What comes behind the example: both servers answer, and everything ends.
const AFTER: &str = r#"
for socket in one two; do
    for _ in $(seq 600); do
        mariadb --user=root --socket=/tmp/$socket.sock --batch --skip-column-names -e "select '$socket'" 2>/dev/null && break
        sleep 0.1
    done
done
"#;

#[test]
fn the_example_of_the_readme_runs() {
    if !can_mount() {
        return;
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let is_example = |block: &&str| block.starts_with("sh\n") && block.contains("mariadbd");
    let example =
        readme.split("```").find(is_example).expect("an example with MariaDB").trim_start_matches("sh\n");
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    install(assert_cmd::cargo::cargo_bin("icecore"), &folder.path().join("icecore"));
    let output = Command::new("timeout")
        .args([
            "120",
            "unshare",
            "--mount",
            "bash",
            "-euc",
            &[FORGET_OTHER_MOUNTS, BEFORE, example, AFTER].concat(),
        ])
        .stdin(std::process::Stdio::null())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(printed.contains("one\n") && printed.contains("two\n"), "{output:?}");
}

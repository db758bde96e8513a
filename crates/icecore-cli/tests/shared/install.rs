//! Programs that tests copy.

use std::path::Path;
use std::process::Command;

/// Puts a program somewhere else. Another process writes the copy: a child that a test starts in that moment
/// would inherit the open file, and the copy could not be run until the child runs its own program (ETXTBSY).
pub fn install(program: impl AsRef<Path>, copy: &Path) {
    let mut install = Command::new("install");
    let status = install.args(["-m", "755"]).arg(program.as_ref()).arg(copy).status().unwrap();
    assert!(status.success(), "{status}");
}

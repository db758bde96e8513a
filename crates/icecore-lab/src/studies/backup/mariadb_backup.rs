//! A backup by mariadb-backup(1), as one makes it where there are no snapshots: it copies the files of the
//! running server, and what the server logs meanwhile, and locks the tables at the end.
//! <https://mariadb.com/kb/en/mariadb-backup-options/>

use super::program::beside;
use super::{NAME, Phase, Scope};
use crate::compress::bytes_of_files;
use crate::error::{Error, Result};
use crate::options::{Options, scratch_in};
use crate::server::{Server, option};
use crate::systems::has_program;
use crate::tool;
use std::path::Path;
use std::process::Command;

/// The program and its package.
pub(super) const PROGRAM: &str = "mariadb-backup";
/// The stream of the program goes where that of the other phases goes.
const PIPE: &str = "\"$@\" | zstd -1 --quiet --stdout > /dev/null";

/// Why there is no such backup on this machine.
pub(super) fn probe() -> std::result::Result<(), String> {
    has_program(PROGRAM, PROGRAM)
}

/// Drives the server until a backup of it is done.
pub(super) fn run(server: &Server<'_>, data: &Path, scope: &Scope, options: &Options) -> Result<Phase> {
    // What it writes beside the stream belongs on another disk, too.
    let folder = scratch_in(&std::env::temp_dir())?;
    let bytes = bytes_of_files(&data.join(NAME))?;
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", PIPE, PROGRAM, PROGRAM, "--no-defaults", "--backup"]);
    command.args(["--stream=mbstream", "--user=root", "--innodb-flush-method=O_DIRECT"]);
    command.arg(option("--socket", server.sockets().join("sock")));
    command.arg(option("--datadir", data.join(NAME)));
    command.arg(option("--target-dir", folder.path())).arg(option("--tmpdir", folder.path()));
    beside(server, bytes, scope, || match tool::output(&mut command, options) {
        Err(Error::Child { reason, .. }) => Err(Error::Child { job: PROGRAM.to_owned(), reason }),
        outcome => outcome.map(drop),
    })
}

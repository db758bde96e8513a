//! A backup by mariadb-backup(1), as one makes it where there are no snapshots. It copies the files of the
//! running server, and what the server logs meanwhile. At the end it keeps the server from committing.
//! <https://mariadb.com/kb/en/mariadb-backup-options/>

use super::program::{beside, require};
use super::{NAME, Phase, Scope};
use crate::compress::output_compressed;
use crate::error::Result;
use crate::options::{Options, scratch_in};
use crate::server::{Server, option};
use std::path::Path;
use std::process::Command;

/// The program and its package.
pub(super) const PROGRAM: &str = "mariadb-backup";

/// Drives the server until a backup of it is done.
pub(super) fn run(server: &Server<'_>, data: &Path, scope: &Scope, options: &Options) -> Result<Phase> {
    require(PROGRAM)?;
    // It asks for a folder, also where all goes into the stream.
    let folder = scratch_in(&std::env::temp_dir())?;
    let mut command = Command::new(PROGRAM);
    command.args(["--no-defaults", "--backup", "--stream=mbstream", "--user=root"]);
    command.arg("--innodb-flush-method=O_DIRECT");
    command.arg(option("--socket", server.sockets().join("sock")));
    command.arg(option("--datadir", data.join(NAME)));
    command.arg(option("--target-dir", folder.path())).arg(option("--tmpdir", folder.path()));
    beside(server, scope, || output_compressed(&mut command, options))
}

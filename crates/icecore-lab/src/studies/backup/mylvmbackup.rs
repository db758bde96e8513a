//! A backup by mylvmbackup(1), as in the study: the tables are locked for as long as it takes to make a
//! classic snapshot of their volume, and tar(1) archives that.

use super::program::{beside, require};
use super::{NAME, Phase, Scope};
use crate::compress::{Copied, bytes_of_files};
use crate::error::{Doing, Error, Result};
use crate::options::{Options, scratch_in};
use crate::server::Server;
use crate::systems::LogicalVolume;
use crate::systems::loopback::{SBIN, unmount};
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The program and its package.
pub(super) const PROGRAM: &str = "mylvmbackup";
/// What may stand otherwise in the configuration of this machine, which the program reads first.
const CONFIGURATION: &str = "\
[mysql]\nhost=localhost\nport=\npassword=\n\
[misc]\ninnodb_recover=0\nkeep_mount=0\nkeep_snapshot=0\nquiet=0\nskip_flush_tables=0\nsuffix=\n\
tarsuffixarg=\nthin=0\n\
[fs]\nxfs=0\n[logging]\nlog_method=console\n[reporting]\nmail_report_on=never\n";
/// What the program calls its snapshot, its mount and its archive.
const PREFIX: &str = "lab";
const SUFFIX: &str = ".tar.zst";

/// Where the program works.
struct Place<'a> {
    /// Folder for its mount, its archive and its temporary files.
    folder: &'a Path,
    /// The folder of the data in the volume.
    data: &'a Path,
    volume: &'a LogicalVolume,
}

/// Drives the server until a backup of its volume is done. The archive lies in `folder`, beside the volume,
/// and goes.
pub(super) fn run(
    server: &Server<'_>,
    folder: &Path,
    data: &Path,
    volume: &LogicalVolume,
    scope: &Scope,
    options: &Options,
) -> Result<Phase> {
    require(PROGRAM)?;
    let folder = scratch_in(folder)?;
    let place = Place { folder: folder.path(), data, volume };
    let bytes = bytes_of_files(&data.join(NAME))?;
    let phase = beside(server, scope, || {
        let began = Instant::now();
        place.back_up(server, scope.area_bytes, options)?;
        Ok(Copied::at_once(bytes, began.elapsed()))
    })?;
    place.verify(options)?;
    Ok(phase)
}

impl Place<'_> {
    fn back_up(&self, server: &Server<'_>, area_bytes: u64, options: &Options) -> Result<()> {
        let _mount = Mount(self.mount());
        let configuration = self.configuration();
        fs::write(&configuration, CONFIGURATION).doing(|| format!("write {}", configuration.display()))?;
        // A command of LVM that is killed half-way leaves suspended volumes.
        let said = tool::output(&mut self.command(server, area_bytes), &options.unstoppable())?;
        options.go_on()?;
        // It succeeds also where a command of it has failed.
        match said.lines().find(|line| line.contains(" Error: ")) {
            Some(line) => Err(Error::Child { job: PROGRAM.to_owned(), reason: line.to_owned() }),
            None => Ok(()),
        }
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("mylvmbackup.conf")
    }

    fn mount(&self) -> PathBuf {
        self.folder.join("mount").join(PREFIX)
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("archives")
    }

    fn command(&self, server: &Server<'_>, area_bytes: u64) -> Command {
        // The program gives these words to a shell.
        let of_lvm = |name: &str| format!("--{name}={SBIN}/{name} --config '{}'", self.volume.config);
        let shown = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        let inside = self.data.file_name().map(Path::new).unwrap_or(Path::new("")).join(NAME);
        let mut command = Command::new(PROGRAM);
        // No file of the user says anything about servers either.
        command.env("TMPDIR", self.folder).env("HOME", self.folder);
        command.arg(shown("configfile", self.configuration()));
        command.args(["--user=root", "--skip_mycnf", "--skip_hooks", "--backuptype=tar", "--tararg=cf"]);
        command.args(["--compress=zstd", "--compressarg=-1 --quiet --stdout"]);
        command.args([format!("--prefix={PREFIX}"), format!("--tarfilesuffix={SUFFIX}")]);
        command.arg(shown("socket", server.sockets().join("sock")));
        command.args([shown("mountdir", self.folder.join("mount")), shown("backupdir", self.archives())]);
        command.arg(format!("--vgname={}", self.volume.group)).arg(format!("--lvname={}", self.volume.name));
        command.arg(format!("--lvsize={area_bytes}b")).arg(shown("relpath", inside));
        command.args(["lvcreate", "lvremove", "lvs"].map(of_lvm));
        command
    }

    /// There is one archive, it is whole, and it has the files of the server.
    fn verify(&self, options: &Options) -> Result<()> {
        let doing = || format!("list {}", self.archives().display());
        let mut archives = fs::read_dir(self.archives()).doing(doing)?.flatten().map(|entry| entry.path());
        let archive = archives.find(|path| path.to_string_lossy().ends_with(SUFFIX));
        let missing = |detail: &str| Error::Mismatch {
            what: format!("the archive of {PROGRAM}"),
            detail: detail.to_owned(),
        };
        let archive = archive.ok_or_else(|| missing("there is none"))?;
        let mut list = Command::new("tar");
        let names = tool::output(list.args(["--zstd", "--list", "--file"]).arg(&archive), options)?;
        let has_data = names.lines().any(|name| name.ends_with(&format!("{NAME}/ibdata1")));
        if has_data { Ok(()) } else { Err(missing("the files of the server are not in it")) }
    }
}

/// What a program that was killed has left mounted.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        if self.0.exists() {
            unmount(&self.0);
        }
    }
}

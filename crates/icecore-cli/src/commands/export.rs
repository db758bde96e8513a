//! `icecore export`

use super::files::{base_name, pin, read_all, regular, runs_with_data};
use super::{finish, take};
use crate::exit;
use crate::output::Output;
use crate::pool::{Context, open_to_read};
use crate::progress::Progress;
use anyhow::Context as _;
use clap::Args;
use icecore::admin::protocol::{FileAttributes, Pinned};
use icecore::admin::{Access, Request, Response};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
The file appears whole or not at all. One moment is exported, also of a file
that is being written.

Example:
  icecore export db@monday/app.db monday.db
  icecore export db@monday/docs.tar - | tar t")]
pub struct Arguments {
    /// The file to copy
    #[arg(value_name = "VERSION/FILE")]
    source: OsString,

    /// Where it goes: a file, a directory, or - for standard output
    #[arg(value_name = "DESTINATION")]
    destination: PathBuf,

    /// Replace a file that exists
    #[arg(short, long)]
    force: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let location = context.locate(&arguments.source)?;
    let path = location.path()?;
    let mut access = open_to_read(&location.pool)?;
    let done = pin(&mut access, path).and_then(|pinned| {
        let attributes = regular(&pinned)?;
        if arguments.destination == Path::new("-") {
            to_standard_output(&mut access, &pinned, attributes)?;
        } else {
            let destination = place(&arguments.destination, &pinned)?;
            to_file(&mut access, &pinned, attributes, &destination, arguments.force)?;
        }
        take!(access.call(Request::Unpin { pin: pinned.pin })?, Response::Done => Ok(()))
    });
    finish(access, done)
}

fn to_standard_output(
    access: &mut Access,
    pinned: &Pinned,
    attributes: &FileAttributes,
) -> anyhow::Result<()> {
    let mut output = Output::new();
    read_all(access, pinned.pin, attributes, |_, data| output.bytes(data))?;
    output.finish()
}

/// A directory stands for the file in it that is called as the source is.
fn place(destination: &Path, pinned: &Pinned) -> anyhow::Result<PathBuf> {
    if !destination.is_dir() {
        return Ok(destination.to_owned());
    }
    match base_name(&pinned.file) {
        b"" => Err(exit::usage("name the file to write")),
        name => Ok(destination.join(OsStr::from_bytes(name))),
    }
}

/// Writes beside the destination and renames, so that half a file never has its name.
fn to_file(
    access: &mut Access,
    pinned: &Pinned,
    attributes: &FileAttributes,
    destination: &Path,
    force: bool,
) -> anyhow::Result<()> {
    let shown = destination.display();
    if !force && destination.symlink_metadata().is_ok() {
        anyhow::bail!("{shown} exists already: -f replaces it");
    }
    let folder =
        destination.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = || format!("cannot write {shown}");
    let staged = tempfile::Builder::new().prefix(".icecore-").tempfile_in(folder).with_context(failed)?;
    let progress = Progress::new("exporting", attributes.size);
    read_all(access, pinned.pin, attributes, |offset, data| {
        for (start, run) in runs_with_data(data) {
            staged.as_file().write_all_at(run, offset + start as u64).with_context(failed)?;
        }
        progress.set(offset + data.len() as u64);
        Ok(())
    })?;
    let file = staged.as_file();
    file.set_len(attributes.size).with_context(failed)?;
    file.set_permissions(Permissions::from_mode(u32::from(attributes.mode) & 0o777)).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    let kept = if force { staged.persist(destination) } else { staged.persist_noclobber(destination) };
    kept.map_err(|error| error.error).with_context(failed)?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).with_context(failed)
}

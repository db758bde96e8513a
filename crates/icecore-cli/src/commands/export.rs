//! `icecore export`

use super::files::{base_name, pin, read_all, regular, write_piece};
use super::{database, finish, take};
use crate::exit;
use crate::output::Output;
use crate::pool::{Context, open_to_read};
use crate::progress::Progress;
use anyhow::Context as _;
use clap::Args;
use icecore::admin::locate::is_pool;
use icecore::admin::protocol::{CHUNK_BYTES_MAX, FileAttributes, Pinned};
use icecore::admin::{Access, Request, Response};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
The file appears whole or not at all. One moment is exported, also of a file
that is being written. A SQLite database comes as one file, with what its
journal or write-ahead log holds.

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

    /// Copy a SQLite database byte by byte, as any other file
    #[arg(long)]
    raw: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let location = context.locate(&arguments.source)?;
    let path = location.path()?;
    let mut access = open_to_read(&location.pool)?;
    let done = pin(&mut access, path).and_then(|pinned| {
        regular(&pinned)?;
        if arguments.destination == Path::new("-") {
            let mut content = Content::of(&mut access, &pinned, &std::env::temp_dir(), arguments.raw)?;
            let mut output = Output::new();
            content.read(&mut |_, data| output.bytes(data))?;
            output.finish()?;
        } else {
            let destination = place(&arguments.destination, &pinned)?;
            to_file(&mut access, &pinned, &destination, arguments)?;
        }
        take!(access.call(Request::Unpin { pin: pinned.pin })?, Response::Done => Ok(()))
    });
    finish(access, done)
}

/// What is exported.
struct Content<'a> {
    access: &'a mut Access,
    pin: u32,
    attributes: &'a FileAttributes,
    /// A database with what it had beside it.
    whole: Option<database::Whole>,
}

impl<'a> Content<'a> {
    /// `folder`: where there is room for a copy.
    fn of(access: &'a mut Access, pinned: &'a Pinned, folder: &Path, raw: bool) -> anyhow::Result<Self> {
        let whole = if raw { None } else { database::whole(access, pinned, folder)? };
        Ok(Self { access, pin: pinned.pin, attributes: regular(pinned)?, whole })
    }

    fn size(&self) -> anyhow::Result<u64> {
        match &self.whole {
            Some(whole) => Ok(whole.file.metadata()?.len()),
            None => Ok(self.attributes.size),
        }
    }

    /// Hands on all of it in pieces, with their offsets.
    fn read(&mut self, take: &mut dyn FnMut(u64, &[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some(whole) = &mut self.whole else {
            return read_all(self.access, self.pin, self.attributes, take);
        };
        let (mut buffer, mut offset) = (vec![0; CHUNK_BYTES_MAX], 0);
        loop {
            let length = whole.file.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            take(offset, &buffer[..length])?;
            offset += length as u64;
        }
    }
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
    destination: &Path,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let destination = &writable(destination, arguments.force)?;
    let shown = destination.display();
    let folder =
        destination.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if matches!(is_pool(folder), Ok(true)) {
        anyhow::bail!("{shown} would be a file among those of a pool: write to another folder");
    }
    let failed = || format!("cannot write {shown}");
    let staged = tempfile::Builder::new().prefix(".icecore-").tempfile_in(folder).with_context(failed)?;
    let mut content = Content::of(access, pinned, folder, arguments.raw)?;
    let size = content.size()?;
    let progress = Progress::new("exporting", size);
    content.read(&mut |offset, data| {
        write_piece(staged.as_file(), offset, data).with_context(failed)?;
        progress.set(offset + data.len() as u64);
        Ok(())
    })?;
    let (file, mode) = (staged.as_file(), u32::from(content.attributes.mode) & 0o777);
    file.set_len(size).with_context(failed)?;
    file.set_permissions(Permissions::from_mode(mode)).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    let kept =
        if arguments.force { staged.persist(destination) } else { staged.persist_noclobber(destination) };
    kept.map_err(|error| error.error).with_context(failed)?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).with_context(failed)
}

/// The file to write, which a link may lead to. Refuses one that exists, unless by force, and what is none,
/// such as a device.
fn writable(destination: &Path, force: bool) -> anyhow::Result<PathBuf> {
    let shown = destination.display();
    let Ok(found) = destination.symlink_metadata() else { return Ok(destination.to_owned()) };
    let target = destination.metadata();
    if target.as_ref().is_ok_and(|target| !target.is_file()) {
        anyhow::bail!("{shown} is no regular file: write to another one, or to standard output with -");
    }
    if !force {
        anyhow::bail!("{shown} exists already: -f replaces it");
    }
    let leads_on = found.is_symlink() && target.is_ok();
    if leads_on { Ok(destination.canonicalize()?) } else { Ok(destination.to_owned()) }
}

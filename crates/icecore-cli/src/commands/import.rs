//! `icecore import`

use super::files::{base_name, pin, runs_with_data};
use super::{database, finish, take};
use crate::exit;
use crate::format;
use crate::output::{Output, print_document};
use crate::pool::{Context, open_to_write};
use crate::progress::Progress;
use anyhow::Context as _;
use clap::Args;
use icecore::InodeKind;
use icecore::admin::protocol::{CHUNK_BYTES_MAX, Owner};
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// How often a file is copied from its beginning, where owner after owner closes the pool in the middle. Each
/// time the command tries first to become the owner itself, so that even one beside dozens of others gets
/// through.
const ATTEMPTS_MAX: usize = 100;

#[derive(Args, Debug)]
#[command(after_help = "\
The file appears whole or not at all, and is durable when the command returns.
A SQLite database is copied as it is at one moment, also while it is in use.
With -f, what a former database has in NAME-journal and NAME-wal goes with it.

Example:
  icecore import app.db db/app.db
  tar c docs | icecore import - db/docs.tar")]
pub struct Arguments {
    /// The file to copy; - for standard input
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// Where it goes: DATASET/FILE, or a directory of a dataset
    #[arg(value_name = "DESTINATION")]
    destination: OsString,

    /// Replace a file that exists
    #[arg(short, long)]
    force: bool,

    /// Make missing directories of the dataset
    #[arg(short, long)]
    parents: bool,

    /// Copy a SQLite database byte by byte, as any other file
    #[arg(long)]
    raw: bool,

    /// Say what was copied
    #[arg(short, long)]
    verbose: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// What is to be copied.
struct Source {
    stream: Stream,
    /// As far as known.
    size: u64,
    mode: u16,
    owner: Owner,
    name: Vec<u8>,
}

enum Stream {
    /// Can be read again.
    File(File),
    /// Comes once.
    Flow(Box<dyn Read>),
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let mut source = open_source(&arguments.source, arguments.raw)?;
    let location = context.locate(&arguments.destination)?;
    let path = location.path()?;
    let mut access = open_to_write(&location.pool)?;
    let imported = find_place(&mut access, path, &source, arguments).and_then(|path| {
        copy_through(&mut access, &path, &mut source, arguments).map(|copied| (path, copied))
    });
    let (path, (bytes, replaced)) = finish(access, imported)?;
    if arguments.json {
        let mut body = serde_json::Map::new();
        crate::output::insert_name(&mut body, "path", &path);
        body.insert("bytes".into(), json!(bytes));
        body.insert("replaced".into(), json!(replaced));
        return print_document("import", &location.pool, body.into());
    }
    let mut output = Output::new();
    if arguments.verbose {
        let size = format::size(icecore::units::ByteLength(bytes));
        output.line(format!("imported {size} into {}", format::escaped(&path)))?;
    }
    output.finish()
}

fn open_source(path: &Path, raw: bool) -> anyhow::Result<Source> {
    if path == Path::new("-") {
        let stream = Stream::Flow(Box::new(std::io::stdin().lock()));
        return Ok(Source { stream, size: 0, mode: 0o644, owner: caller(), name: Vec::new() });
    }
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
    if metadata.is_dir() {
        anyhow::bail!("{shown} is a directory: import its files one by one");
    }
    let (stream, size) = if !raw && metadata.is_file() && database::is_database(&file) {
        let copy = database::consistent_copy(path)?.into_file();
        let size = copy.metadata()?.len();
        (Stream::File(copy), size)
    } else if metadata.is_file() {
        (Stream::File(file), metadata.len())
    } else {
        (Stream::Flow(Box::new(file)), metadata.len())
    };
    Ok(Source {
        stream,
        size,
        mode: (metadata.permissions().mode() & 0o7777) as u16,
        owner: caller(),
        name: path.file_name().unwrap_or_default().as_bytes().to_vec(),
    })
}

/// What is imported belongs to the user who imports it.
fn caller() -> Owner {
    Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// The path of the new file: a directory stands for the file in it that is called as the source is.
fn find_place(
    access: &mut Access,
    path: &[u8],
    source: &Source,
    arguments: &Arguments,
) -> anyhow::Result<Vec<u8>> {
    let pinned = pin(access, path)?;
    take!(access.call(Request::Unpin { pin: pinned.pin })?, Response::Done => ());
    let mut path = path.to_vec();
    if pinned.found.as_ref().is_some_and(|found| found.kind == InodeKind::Directory) {
        if source.name.is_empty() {
            return Err(exit::usage("standard input has no name: write DATASET/FILE"));
        }
        path.push(b'/');
        path.extend_from_slice(&source.name);
    } else if arguments.parents {
        let parent = &path[..path.len() - base_name(&path).len()];
        let parent = parent.strip_suffix(b"/").unwrap_or(parent);
        take!(access.call(Request::MakeDirectories { path: parent.to_vec(), owner: source.owner })?, Response::Done => ());
    }
    Ok(path)
}

impl Stream {
    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::File(file) => file,
            Self::Flow(stream) => stream.as_mut(),
        }
    }

    /// Goes back to the beginning; whether that can be.
    fn rewind(&mut self) -> std::io::Result<bool> {
        match self {
            Self::File(file) => file.rewind().map(|()| true),
            Self::Flow(_) => Ok(false),
        }
    }
}

/// [`copy`], from the beginning again where the owner of the pool closes it, or ends the connection, in the
/// middle: a short command beside this one is an owner for some milliseconds.
fn copy_through(
    access: &mut Access,
    path: &[u8],
    source: &mut Source,
    arguments: &Arguments,
) -> anyhow::Result<(u64, bool)> {
    for _ in 1..ATTEMPTS_MAX {
        match copy(access, path, source, arguments) {
            Err(error)
                if was_closed(&error) && source.stream.rewind().context("cannot read the source")? => {}
            outcome => return outcome,
        }
    }
    copy(access, path, source, arguments)
}

/// Whether the owner of the pool closed it, or ended the connection, before anything of the file could be
/// seen.
fn was_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.code == ErrorCode::Closing)
}

/// Stages the content piece by piece and makes it a file at the end. Bytes copied, and whether a file was
/// replaced.
fn copy(
    access: &mut Access,
    path: &[u8],
    source: &mut Source,
    arguments: &Arguments,
) -> anyhow::Result<(u64, bool)> {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    let read = |source: &mut Source, buffer: &mut [u8]| {
        fill(source.stream.reader(), buffer).context("cannot read the source")
    };
    let mut length = read(source, &mut buffer)?;
    begin(access, path, source, &buffer[..length], arguments)?;
    let progress = Progress::new("importing", source.size);
    let mut offset = 0;
    loop {
        for (start, run) in runs_with_data(&buffer[..length]) {
            let chunk = Request::ImportChunk { offset: offset + start as u64, data: run.to_vec() };
            take!(access.call(chunk)?, Response::Done => ());
        }
        offset += length as u64;
        progress.set(offset);
        if length < buffer.len() {
            break;
        }
        length = read(source, &mut buffer)?;
    }
    let response = access.call(Request::CommitImport { size: offset })?;
    Ok(take!(response, Response::Imported { replaced } => (offset, replaced)))
}

/// SQLite would apply the journal or the write-ahead log of a former database to the new one.
fn begin(
    access: &mut Access,
    path: &[u8],
    source: &Source,
    first: &[u8],
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let is_whole = !arguments.raw && database::is_beginning(first);
    let beside =
        if is_whole { database::COMPANIONS.map(|suffix| suffix.into()).to_vec() } else { Vec::new() };
    let begin = Request::BeginImport {
        path: path.to_vec(),
        mode: source.mode,
        owner: source.owner,
        replace: arguments.force,
        beside,
    };
    let begun = access.call(begin).map_err(|failure| match failure.code {
        ErrorCode::Exists => Failure::new(failure.code, format!("{failure}: -f replaces it")),
        _ => failure,
    });
    take!(begun?, Response::Done => Ok(()))
}

/// Fills the buffer as far as the stream goes.
fn fill(stream: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

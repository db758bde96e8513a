//! Small text files in a pool's folder that nothing depends on: what was met, and how far a scrub came.
//!
//! Anything may have taken such a name. A pipe or a folder is an error at once: opening never waits for
//! another process.

use crate::owner::hand_over;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The file as text, at most so many bytes of it. `None` if it cannot be read.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Option<String> {
    let mut bytes = Vec::new();
    open(path, OpenOptions::new().read(true)).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Puts a file with this text in the place of what has the name. If the process is killed there is the former
/// one, or this one. After a power failure it may be empty.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    open_or_make(&new, OpenOptions::new().write(true).truncate(true))?.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}

/// Adds a line, in one call, so that lines of several writers do not mix.
pub(crate) fn append(path: &Path, line: &str) -> io::Result<()> {
    open_or_make(path, OpenOptions::new().append(true))?.write_all(line.as_bytes())
}

fn open_or_make(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            if let Some(Ok(folder)) = path.parent().map(rustix::fs::stat) {
                hand_over(&file, &folder);
            }
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(path, options.create(true)),
        Err(error) => Err(error),
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_file_is_replaced_and_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last");
        assert_eq!(read(&path, 9), None);
        append(&path, "one\n").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(read(&path, 6).unwrap(), "one\ntw");
        replace(&path, "three").unwrap();
        assert_eq!(read(&path, 9).unwrap(), "three");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Without a writer at its other end, opening a pipe waits for ever.
    #[test]
    fn what_is_no_file_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        mknodat(CWD, pipe.with_extension("new"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [pipe.as_path(), folder.path()] {
            assert_eq!(read(path, 9), None);
            append(path, "x").unwrap_err();
        }
        replace(&pipe, "x").unwrap_err();
    }
}

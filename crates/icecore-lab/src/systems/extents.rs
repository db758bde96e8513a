//! The extents of files: FIEMAP, as filefrag(8) prints it.

use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const UNIT_BYTES: u64 = 4096;

/// What filefrag says of a file system that does not tell where files lie, such as tmpfs.
const NOT_SAID: &str = "FIEMAP unsupported";

/// Extents of a file, as a reader from beginning to end meets them; `None` if the file system does not say.
pub(super) fn count(file: &Path, options: &Options) -> Result<Option<u64>> {
    let text = match filefrag(&[file.to_owned()], options) {
        Err(error) if error.to_string().contains(NOT_SAID) => return Ok(None),
        text => text?,
    };
    let none = || Error::Child {
        job: "filefrag".to_owned(),
        reason: format!("it counted no extents of {}: {}", file.display(), tool::tail(&text)),
    };
    found(&text).map(Some).ok_or_else(none)
}

/// Bytes of the files below a folder that no other file shares.
pub(super) fn unshared_bytes(folder: &Path, options: &Options) -> Result<u64> {
    let mut files = Vec::new();
    files_below(folder, &mut files)?;
    // A command line has its limit.
    let texts = files.chunks(1000).map(|files| filefrag(files, options));
    texts.map(|text| Ok(unshared(&text?))).sum()
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let doing = || format!("list {}", folder.display());
    for entry in fs::read_dir(folder).doing(doing)? {
        let entry = entry.doing(doing)?;
        if entry.file_type().doing(doing)?.is_dir() {
            files_below(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn filefrag(files: &[PathBuf], options: &Options) -> Result<String> {
    let mut command = Command::new("/usr/sbin/filefrag");
    tool::output(command.args(["-v", &format!("-b{UNIT_BYTES}")]).args(files), options)
}

/// The number in `NAME: 3 extents found`.
fn found(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.trim_end().ends_with("found"))?;
    line.rsplit_once(": ")?.1.split(' ').next()?.parse().ok()
}

/// Lines are `ext: logical: physical: length: expected: flags`, with ranges as `first.. last`. The content of a
/// small file can lie inline in the tree of the file system. Its line is in bytes and has no blocks to count.
fn unshared(text: &str) -> u64 {
    let length = |line: &str| -> Option<u64> {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        fields.first()?.parse::<u64>().ok()?;
        let flags = fields.last()?;
        let counts = !flags.split(',').any(|flag| ["shared", "inline"].contains(&flag));
        if counts { fields.get(3)?.parse().ok() } else { None }
    };
    text.lines().filter_map(length).sum::<u64>() * UNIT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Filesystem type is: 58465342
File size of a is 24576 (6 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       3:         20..        23:      4:             shared
   1:        4..       5:         96..        97:      2:         24: last,eof
a: 2 extents found
";
    const INLINE: &str = "\
File size of b is 52 (1 block of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..    4095:          0..      4095:   4096:             last,not_aligned,inline,eof
b: 1 extent found
";

    #[test]
    fn extents_are_read_from_the_table() {
        assert_eq!(found(TEXT), Some(2));
        assert_eq!(unshared(TEXT), 2 * UNIT_BYTES);
        assert_eq!(unshared(INLINE), 0);
        assert_eq!(found("nothing"), None);
    }
}

//! Blocks of 16 KiB that know what they hold: in a file, or in a table where a system has databases alone.

use super::Bench;
use crate::driving;
use crate::error::{Doing, Error, Result};
use crate::random::{Random, mix};
use crate::sqlite::Journal;
use crate::systems::{Kind, System};
use rusqlite::Connection;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const BLOCK_BYTES: usize = 16 << 10;
const NAME: &str = "blocks";
/// Blocks between two flushes while the file is made.
const FILL_GROUP: u64 = 256;

/// The blocks of the present, or of a snapshot.
pub(super) enum Blocks {
    File(File),
    Table(Connection),
}

/// A block, and the version that is written to it.
pub(super) type Write = (u64, u64);

impl Blocks {
    /// Makes the blocks, all of version 0.
    pub(super) fn create(system: &dyn System, kind: &Kind, count: u64) -> Result<Self> {
        let blocks = if kind.files {
            let path = system.data()?.join(NAME);
            let file = File::options().read(true).write(true).create_new(true).open(&path);
            Self::File(file.doing(|| format!("make {}", path.display()))?)
        } else {
            let connection = system.database(Journal::Wal)?;
            connection
                .execute_batch("create table blocks (number integer primary key, content blob not null)")?;
            Self::Table(connection)
        };
        for first in (0..count).step_by(FILL_GROUP as usize) {
            let group: Vec<Write> =
                (first..count.min(first + FILL_GROUP)).map(|number| (number, 0)).collect();
            blocks.write(&group)?;
        }
        Ok(blocks)
    }

    /// Opens the blocks of the present.
    pub(super) fn open(system: &dyn System, kind: &Kind) -> Result<Self> {
        if !kind.files {
            return Ok(Self::Table(system.database(Journal::Wal)?));
        }
        let path = system.data()?.join(NAME);
        let file = File::options().read(true).write(true).open(&path);
        Ok(Self::File(file.doing(|| format!("open {}", path.display()))?))
    }

    /// Opens the blocks of a snapshot.
    pub(super) fn of_snapshot(bench: &Bench, kind: &Kind, name: &str) -> Result<Self> {
        if !kind.files {
            let past = scratch(bench.folder.path())?;
            return Ok(Self::Table(bench.system.past_database(name, &past, Journal::Wal)?));
        }
        let path = bench.system.snapshot_folder(name)?.join(NAME);
        Ok(Self::File(File::open(&path).doing(|| format!("open {}", path.display()))?))
    }

    /// Writes blocks. They are durable on return, all of them.
    pub(super) fn write(&self, writes: &[Write]) -> Result<()> {
        match self {
            Self::File(file) => {
                let doing = || "write blocks".to_owned();
                for &(number, version) in writes {
                    let at = number * BLOCK_BYTES as u64;
                    file.write_all_at(&content(number, version), at).doing(doing)?;
                }
                file.sync_data().doing(doing)
            }
            Self::Table(connection) => {
                let transaction = connection.unchecked_transaction()?;
                let mut put = transaction.prepare_cached("insert or replace into blocks values (?1, ?2)")?;
                for &(number, version) in writes {
                    put.execute((number.cast_signed(), content(number, version)))?;
                }
                drop(put);
                Ok(transaction.commit()?)
            }
        }
    }

    /// The version of a block; `None` if the block is not what any version of it is.
    pub(super) fn version(&self, number: u64) -> Result<Option<u64>> {
        let mut found = vec![0; BLOCK_BYTES];
        match self {
            Self::File(file) => {
                let read = file.read_exact_at(&mut found, number * BLOCK_BYTES as u64);
                read.doing(|| format!("read block {number}"))?;
            }
            Self::Table(connection) => {
                let mut get = connection.prepare_cached("select content from blocks where number = ?1")?;
                found = get.query_row([number.cast_signed()], |row| row.get(0))?;
            }
        }
        let Some(Ok(first)) = found.get(..8).map(<[u8; 8]>::try_from) else { return Ok(None) };
        let version = u64::from_le_bytes(first);
        Ok((found == content(number, version)).then_some(version))
    }
}

/// Microseconds in which the content of a block is made.
pub(super) fn driving_us() -> Result<f64> {
    let mut version = 0;
    driving::repeated_us(|| {
        version += 1;
        black_box(content(version, version));
        Ok(())
    })
}

/// A folder for copies of what a snapshot holds.
pub(super) fn scratch(folder: &Path) -> Result<std::path::PathBuf> {
    let path = folder.join("past");
    fs::create_dir_all(&path).doing(|| format!("make {}", path.display()))?;
    Ok(path)
}

/// How programs of systems, and a pool behind its mount, say that there is no room: strerror(3), LVM, Icecore.
const FULL: [&str; 5] =
    ["No space left", "no space left", "out of space", "insufficient free space", "Insufficient free space"];

/// Whether the error says that there is no room.
pub(super) fn is_full(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => {
            matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        }
        Error::Sqlite(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
        Error::Store(icecore::Error::NoSpace { .. }) => true,
        Error::Child { reason: said, .. } | Error::Mismatch { detail: said, .. } => {
            FULL.iter().any(|words| said.contains(words))
        }
        _ => false,
    }
}

/// What a version of a block holds: half of it does not compress.
fn content(number: u64, version: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    Random::new(mix(number) ^ version).fill(&mut block[8..BLOCK_BYTES / 2]);
    block[..8].copy_from_slice(&version.to_le_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_knows_its_version_and_whether_it_is_whole() {
        let file = Blocks::File(tempfile::tempfile().expect("a file"));
        let connection = Connection::open_in_memory().expect("opened");
        connection
            .execute_batch("create table blocks (number integer primary key, content blob not null)")
            .expect("made");
        for blocks in [file, Blocks::Table(connection)] {
            blocks.write(&[(0, 0), (1, 7), (2, 1)]).expect("written");
            assert_eq!(blocks.version(1).expect("read"), Some(7));
            match &blocks {
                Blocks::File(file) => file.write_all_at(&[1], BLOCK_BYTES as u64 + 5_000).expect("written"),
                Blocks::Table(connection) => {
                    let torn = "update blocks set content = (select content from blocks where number = 0) where number = 1";
                    assert_eq!(connection.execute(torn, []).expect("updated"), 1);
                }
            }
            assert_eq!(blocks.version(1).expect("read"), None);
            assert_eq!(blocks.version(2).expect("read"), Some(1));
        }
    }
}

//! How far a scrub came, kept in a text file beside the pool so that the next one goes on there. Nothing
//! depends on it.
//!
//! A position is an address: those never change and are never used again, whatever is moved. What is born
//! behind it after the scrub began is verified by the next scrub.

use crate::side_file;
use crate::units::{BLOCK_BYTES, BlockCount, LOG_ADDRESS_LIMIT, LogAddress, PoolId, Run, Stream, Timestamp};
use std::path::Path;

/// The file.
const FILE_NAME: &str = "scrub-position";
/// More than that is not ours.
const BYTES_MAX: u64 = 1 << 20;

/// More than can lie in a pool.
const VERIFIED_MAX: u64 = 3 * LOG_ADDRESS_LIMIT * BLOCK_BYTES as u64;

/// How far a scrub came that did not come to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Of which pool.
    pub pool: PoolId,
    /// When it began.
    pub began: Timestamp,
    /// Everything before this was verified: streams in their order, and addresses in theirs.
    pub next: (Stream, LogAddress),
    /// Bytes verified so far.
    pub verified: u64,
    /// Blocks that were damaged: they are looked at again.
    pub damaged: Vec<Run>,
}

impl Position {
    /// Reads the file, if there is one of this pool that makes sense.
    pub(super) fn load(directory: &Path, pool: PoolId) -> Option<Self> {
        let text = side_file::read(&directory.join(FILE_NAME), BYTES_MAX)?;
        Self::parse(&text).filter(|position| position.pool == pool)
    }

    /// Writes the file. Where it cannot be written, nothing is lost but time.
    pub(super) fn store(&self, directory: &Path) {
        let _ = side_file::replace(&directory.join(FILE_NAME), &self.text());
    }

    /// The scrub came to its end.
    pub(super) fn forget(directory: &Path) {
        let _ = std::fs::remove_file(directory.join(FILE_NAME));
    }

    /// What the file holds.
    #[must_use]
    pub fn text(&self) -> String {
        let (stream, address) = self.next;
        let (began, verified) = (self.began.to_rfc3339(), self.verified);
        let mut text = format!("pool {}\nbegan {began}\n", self.pool);
        text += &format!("next {} {address}\nverified_bytes {verified}\n", stream as u8);
        for Run { stream, start, length } in &self.damaged {
            text += &format!("damaged {} {start} {length}\n", *stream as u8);
        }
        text
    }

    /// Takes apart what a file holds; `None` if that makes no sense.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let values = |key: &'static str| {
            text.lines().filter_map(move |line| line.split_once(' ').filter(|(name, _)| *name == key))
        };
        let value = |key| values(key).next().map(|(_, value)| value);
        let place = |text: &str| {
            let (stream, address) = text.split_once(' ')?;
            Some((Stream::from_number(stream.parse().ok()?)?, LogAddress(address.parse().ok()?)))
        };
        let run = |text: &str| {
            let mut parts = text.split(' ');
            let stream = Stream::from_number(parts.next()?.parse().ok()?)?;
            let start: u64 = parts.next()?.parse().ok()?;
            let blocks: u64 = parts.next()?.parse().ok()?;
            let is_run = blocks > 0 && start.checked_add(blocks)? <= LOG_ADDRESS_LIMIT;
            is_run.then_some(Run { stream, start: LogAddress(start), length: BlockCount(blocks) })
        };
        let pool = value("pool")?;
        let digits = |index: usize| u8::from_str_radix(pool.get(index * 2..index * 2 + 2)?, 16).ok();
        let mut id = [0; 16];
        for (index, byte) in id.iter_mut().enumerate() {
            *byte = digits(index)?;
        }
        Some(Self {
            pool: PoolId(id),
            began: Timestamp::from_rfc3339(value("began")?)?,
            next: place(value("next")?)?,
            verified: value("verified_bytes")?.parse().ok().filter(|bytes| *bytes <= VERIFIED_MAX)?,
            damaged: values("damaged").map(|(_, text)| run(text)).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nonsense_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let pool = PoolId([0xa7; 16]);
        assert_eq!(Position::load(folder.path(), pool), None);
        let run =
            |stream, start, blocks| Run { stream, start: LogAddress(start), length: BlockCount(blocks) };
        let damaged = vec![run(Stream::Data, 3, 1), run(Stream::Merged, 5, 700)];
        let next = (Stream::Merged, LogAddress(77));
        let position = Position { pool, began: Timestamp(1_000_000_000), next, verified: 9, damaged };
        position.store(folder.path());
        assert_eq!(Position::load(folder.path(), pool), Some(position.clone()));
        assert_eq!(Position::load(folder.path(), PoolId([1; 16])), None, "of another pool");
        for corrupt in
            ["next 9 1", "next 0", "damaged 0 3", "damaged 0 x 1", "damaged 0 3 0", "damaged 0 3 x", "pool é"]
        {
            let key = corrupt.split(' ').next().unwrap();
            let lines = position.text();
            let others: Vec<&str> = lines.lines().filter(|line| !line.starts_with(key)).collect();
            assert_eq!(Position::parse(&format!("{corrupt}\n{}", others.join("\n"))), None, "{corrupt}");
        }
        let beyond = format!("{}damaged 2 {} 2\n", position.text(), u64::MAX - 1);
        assert_eq!(Position::parse(&beyond), None);
        Position::forget(folder.path());
        assert_eq!(Position::load(folder.path(), pool), None);
    }
}

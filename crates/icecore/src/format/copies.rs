//! What the superblock says about second copies: of what, where, and whether they can be relied on, and why
//! not.

use super::{get_u16, get_u64, put};
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest path of a folder for copies, in bytes.
pub const FOLDER_BYTES_MAX: usize = 1024;
/// Longest text that says why not everything has its copy, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

const MODE_AT: usize = 81;
const BEHIND_AT: usize = 82;
const AHEAD_AT: usize = 83;
const SINCE_AT: usize = 152;
const LENGTH_AT: usize = 160;
const REASON_LENGTH_AT: usize = 162;
const FOLDER_AT: usize = 1280;
const REASON_AT: usize = 2304;

/// What a pool writes twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum CopyMode {
    /// Nothing.
    None,
    /// Tree nodes and the ledger: what files are found by.
    #[default]
    Metadata,
    /// The log and runs outside of it as well: everything.
    All,
}

impl CopyMode {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Metadata => "metadata",
            Self::All => "all",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Metadata, Self::All].into_iter().find(|mode| mode.name() == name)
    }

    /// Whether segments used for this are copied.
    #[must_use]
    pub const fn covers(self, kind: SegmentKind) -> bool {
        match self {
            Self::None => false,
            Self::Metadata => matches!(kind, SegmentKind::Node | SegmentKind::Ledger),
            Self::All => true,
        }
    }
}

/// Why not everything has the copy that it should have: a text that fits the superblock, never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason(String);

impl Reason {
    /// The beginning of a text, as much of it as there is room for; `None` if there is nothing in it.
    #[must_use]
    pub fn of(mut text: String) -> Option<Self> {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        Some(text).filter(|text| !text.is_empty()).map(Self)
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Second copies, as the superblock has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopySettings {
    /// What is copied.
    pub mode: CopyMode,
    /// Copies were left behind by what they are of: none of them counts until all are made again.
    pub behind: bool,
    /// What lies in the folder of the copies was found to be newer than the pool. The pool never writes over
    /// it, however often it is written to from then on.
    pub ahead: bool,
    /// Since when not everything has the copy that it should have; `None` if it has.
    pub since: Option<Timestamp>,
    /// Why, where that is known.
    pub why: Option<Reason>,
    /// The folder of the copies, an absolute path; `None` for that of the pool.
    pub folder: Option<String>,
}

impl CopySettings {
    /// No copies.
    #[must_use]
    pub fn none() -> Self {
        Self { mode: CopyMode::None, ..Self::default() }
    }

    pub(super) fn encode(&self, block: &mut [u8]) {
        block[MODE_AT] = self.mode as u8;
        block[BEHIND_AT] = u8::from(self.behind);
        block[AHEAD_AT] = u8::from(self.ahead);
        put(block, SINCE_AT, &self.since.map_or(0, |since| since.0).to_le_bytes());
        let folder = self.folder.as_deref().unwrap_or_default().as_bytes();
        assert!(folder.len() <= FOLDER_BYTES_MAX, "looked at when it was set");
        put(block, LENGTH_AT, &(folder.len() as u16).to_le_bytes());
        put(block, FOLDER_AT, folder);
        let why = self.why.as_ref().map_or("", Reason::text).as_bytes();
        put(block, REASON_LENGTH_AT, &(why.len() as u16).to_le_bytes());
        put(block, REASON_AT, why);
    }

    pub(super) fn decode(block: &[u8], place: &str) -> Result<Self> {
        let damaged = || Error::damaged(place, "what the superblock says about copies makes no sense");
        let mode = match block[MODE_AT] {
            0 => CopyMode::None,
            1 => CopyMode::Metadata,
            2 => CopyMode::All,
            _ => return Err(damaged()),
        };
        let length = usize::from(get_u16(block, LENGTH_AT));
        let reason_length = usize::from(get_u16(block, REASON_LENGTH_AT));
        let are_flags = block[BEHIND_AT] <= 1 && block[AHEAD_AT] <= 1;
        if length > FOLDER_BYTES_MAX || reason_length > REASON_BYTES_MAX || !are_flags {
            return Err(damaged());
        }
        let text =
            |at: usize, length: usize| std::str::from_utf8(&block[at..at + length]).map_err(|_| damaged());
        let folder = text(FOLDER_AT, length)?;
        let why = Reason::of(text(REASON_AT, reason_length)?.to_owned());
        if !folder.is_empty() && (!folder.starts_with('/') || folder.contains('\0')) {
            return Err(damaged());
        }
        let since = get_u64(block, SINCE_AT) as i64;
        Ok(Self {
            mode,
            behind: block[BEHIND_AT] == 1,
            ahead: block[AHEAD_AT] == 1,
            since: Some(Timestamp(since)).filter(|_| since != 0),
            why,
            folder: Some(folder.to_owned()).filter(|folder| !folder.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_where_a_character_ends() {
        assert_eq!(Reason::of(String::new()), None);
        let long = Reason::of(format!("x{}", "ä".repeat(REASON_BYTES_MAX))).unwrap();
        assert_eq!(long.text().len(), REASON_BYTES_MAX - 1);
        let settings = CopySettings { mode: CopyMode::All, why: Some(long), ..CopySettings::default() };
        let mut block = vec![0; crate::units::BLOCK_BYTES];
        settings.encode(&mut block);
        assert_eq!(CopySettings::decode(&block, "superblock").unwrap(), settings);
    }

    #[test]
    fn lengths_and_texts_that_make_no_sense_are_refused() {
        let settings = CopySettings { why: Reason::of("why".to_owned()), ..CopySettings::default() };
        let mut block = vec![0; crate::units::BLOCK_BYTES];
        settings.encode(&mut block);
        for (at, byte) in [(REASON_LENGTH_AT + 1, 5), (REASON_AT, 0xff), (AHEAD_AT, 2)] {
            let mut wrong = block.clone();
            wrong[at] = byte;
            assert!(CopySettings::decode(&wrong, "superblock").is_err(), "byte {at}");
        }
    }
}

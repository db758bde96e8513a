//! What is left of a pool in a folder without superblocks.

use crate::copies::is_copy_name;
use crate::format::segment::from_file_name;

/// What is left of a pool in a folder without superblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remains {
    /// Segments: the pool's folder, which lost both superblocks.
    Segments,
    /// The copies of a pool.
    Copies,
}

impl Remains {
    /// Of files with these names; `None` if no pool ever had such files.
    pub(crate) fn of(names: impl IntoIterator<Item = impl AsRef<str>>) -> Option<Self> {
        let mut remains = None;
        for name in names {
            if from_file_name(name.as_ref()).is_some() {
                return Some(Self::Segments);
            }
            if is_copy_name(name.as_ref()) {
                remains = Some(Self::Copies);
            }
        }
        remains
    }

    /// What the folder has, and what to do about it: the rest of a sentence that begins with the folder.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Segments => {
                "has segments of a pool in it, and both its superblocks are lost: `icecore check --repair \
                 --mirror` makes them again from a folder with copies"
            }
            Self::Copies => {
                "has copies of a pool in it, and is not that pool: docs/guide/failing-disk.md says how to \
                 make a pool of copies"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_say_more_than_copies() {
        assert_eq!(Remains::of(["lost+found", "segment.1"]), None);
        assert_eq!(Remains::of(["copy.superblock.0", "x"]), Some(Remains::Copies));
        assert_eq!(Remains::of(["copy.superblock.0", "segment.00000001"]), Some(Remains::Segments));
    }
}

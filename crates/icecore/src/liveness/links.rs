//! Versions that another one refers to: one, nearly always.

use crate::units::VersionId;
use std::ops::Deref;

/// A list of versions that takes no memory of its own while it has no more than one.
#[derive(Clone, Debug, Default)]
pub(super) enum Links {
    #[default]
    None,
    One([VersionId; 1]),
    Several(Vec<VersionId>),
}

impl Deref for Links {
    type Target = [VersionId];

    fn deref(&self) -> &[VersionId] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl From<Vec<VersionId>> for Links {
    fn from(mut versions: Vec<VersionId>) -> Self {
        match versions[..] {
            [] => Self::None,
            [one] => Self::One([one]),
            _ => {
                versions.shrink_to_fit();
                Self::Several(versions)
            }
        }
    }
}

impl Links {
    pub(super) const fn to(version: VersionId) -> Self {
        Self::One([version])
    }

    /// Takes in all of another list.
    pub(super) fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        match (&mut *self, other) {
            (_, Self::None) => {}
            (Self::Several(mine), Self::Several(mut theirs)) => {
                // Their order means nothing: the shorter is copied.
                if mine.len() < theirs.len() {
                    std::mem::swap(mine, &mut theirs);
                }
                mine.extend(theirs);
            }
            (Self::Several(mine), Self::One([one])) => mine.push(one),
            (_, Self::Several(mut theirs)) => {
                theirs.extend_from_slice(self);
                *self = Self::Several(theirs);
            }
            (_, Self::One([one])) => *self = Self::Several(vec![self[0], one]),
        }
    }

    /// Adds one.
    pub(super) fn push(&mut self, version: VersionId) {
        self.extend(Self::to(version));
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, version: VersionId) {
        let left: Vec<VersionId> = self.iter().copied().filter(|&other| other != version).collect();
        *self = left.into();
    }

    /// Puts one in the place of another. False if that is not there.
    pub(super) fn replace(&mut self, old: VersionId, new: VersionId) -> bool {
        let list: &mut [VersionId] = match self {
            Self::None => &mut [],
            Self::One(one) => one,
            Self::Several(several) => several,
        };
        let place = list.iter_mut().find(|version| **version == old);
        place.map(|version| *version = new).is_some()
    }
}

//! Why a request to the history of versions cannot be met.

use super::part::PartRow;
use crate::Error;
use crate::units::VersionId;

/// A request that the tree of versions cannot meet. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HistoryFault {
    /// There is no such version.
    #[error("version {0} does not exist")]
    Unknown(VersionId),
    /// A snapshot was given where only a head will do.
    #[error("version {0} is a snapshot, not a head")]
    NotAHead(VersionId),
    /// A head was given where only a snapshot will do.
    #[error("version {0} is a head, not a snapshot")]
    NotASnapshot(VersionId),
    /// Several branches hang below: the caller refuses, or hides the name until one is left.
    #[error("version {version} has several branches below it: {children:?}")]
    HasBranches {
        /// The version that cannot go.
        version: VersionId,
        /// The versions nearest below it that stay.
        children: Vec<VersionId>,
    },
    /// Part of a set is not in memory: it is to be read, and the question asked again.
    #[error("part of a set is not in memory")]
    Absent(Box<PartRow>),
    /// Part of a set is not what was written.
    #[error("part of a set cannot be read: {0}")]
    Unread(String),
    /// The medium does not give part of a set.
    #[error("part of a set cannot be read: {0}")]
    Refused(String),
    /// Blocks are dead in a version that the one above it never reached: the sets are not what they were.
    #[error("version {child} lost blocks that version {version} never had")]
    NeverHad {
        /// The version above.
        version: VersionId,
        /// The version that lost them.
        child: VersionId,
    },
    /// The marks of a snapshot lie before those of the snapshot above it.
    #[error("a snapshot of version {0} cannot lie before the one above it")]
    MarksWentBack(VersionId),
}

impl From<HistoryFault> for Error {
    fn from(fault: HistoryFault) -> Self {
        match &fault {
            HistoryFault::Unknown(version) => Self::NotFound { what: format!("version {version}") },
            HistoryFault::HasBranches { version, children } => Self::Busy {
                what: format!("version {version}"),
                blockers: format!("versions {children:?} hang below it; destroy all but one first"),
            },
            HistoryFault::Refused(why) => {
                Self::io("read", "part of a set", std::io::Error::other(why.clone()))
            }
            HistoryFault::NeverHad { .. } | HistoryFault::Unread(_) => {
                Self::damaged("the history", fault.to_string())
            }
            _ => Self::Invalid(fault.to_string()),
        }
    }
}

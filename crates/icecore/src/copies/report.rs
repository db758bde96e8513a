//! What became of copies, for callers that ask.

use crate::format::copies::CopySettings;
use crate::statistics::{Counter, Statistics};
use crate::storage::Kind;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// What was written to copies and read from them.
#[derive(Default)]
pub(super) struct CopyCounters {
    nodes: Counter,
    ledger: Counter,
    frames: Counter,
    data: Counter,
    restored: Counter,
    pub(super) flushes: Counter,
    pub(super) healed: Counter,
    pub(super) unhealed: Counter,
}

impl CopyCounters {
    pub(super) fn wrote(&self, kind: Kind, bytes: usize) {
        let counter = match kind {
            Kind::Node => &self.nodes,
            Kind::Checkpoint => &self.ledger,
            Kind::Frame => &self.frames,
            Kind::Data | Kind::RecordHeader => &self.data,
            Kind::Copy | Kind::Ahead => &self.restored,
        };
        counter.add(bytes as u64);
    }

    pub(super) fn read(&self, into: &mut Statistics) {
        into.copy_node_bytes = self.nodes.get();
        into.copy_checkpoint_bytes = self.ledger.get();
        into.copy_frame_bytes = self.frames.get();
        into.copy_data_bytes = self.data.get();
        into.copy_restored_bytes = self.restored.get();
        into.copy_flushes = self.flushes.get();
        into.healed_places = self.healed.get();
        into.unhealed_places = self.unhealed.get();
    }
}

/// How second copies stand.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CopiesReport {
    /// What is copied: `none`, `metadata`, `all`.
    pub mode: String,
    /// The folder of the copies; none where it is that of the pool.
    pub folder: Option<String>,
    /// Since when not everything has its copy; none if everything has.
    pub degraded_since: Option<Timestamp>,
    /// Why, where that is known.
    pub why: Option<String>,
    /// Segments without the copy that they should have, where copies are not missing altogether.
    pub missing: u64,
    /// None of the copies counts until all are made again.
    pub behind: bool,
}

impl CopiesReport {
    pub(super) fn of(settings: &CopySettings) -> Self {
        Self {
            mode: settings.mode.name().to_owned(),
            folder: settings.folder.clone(),
            degraded_since: settings.since,
            why: settings.why.as_ref().map(|why| why.text().to_owned()),
            behind: settings.behind,
            ..Self::default()
        }
    }

    /// Whether everything has the copy that it should have.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.degraded_since.is_none()
    }
}

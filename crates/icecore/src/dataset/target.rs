//! A file of a head, as what reads and writes it sees it: by number, or held open.

use crate::engine::{Engine, Purpose};
use crate::error::{FileFault, Result};
use crate::log::tail::Payload;
use crate::operation::Operation;
use crate::pins::{Hold, Pin};
use crate::present::{Found, Present};
use crate::state::State;
use crate::tree::Tree;
use crate::units::{DatasetId, InodeNumber, RecordSequence, VersionId};

/// A file to be read or written.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub engine: &'a Engine,
    pub dataset: DatasetId,
    pub inode: InodeNumber,
    /// The head that it was opened in; without one, that which the dataset has.
    pub opened_in: Option<(VersionId, &'a Present<Tree>)>,
}

impl Target<'_> {
    /// The tree that the file is in, as it is now, and a pin that keeps what it reaches. Of an open file,
    /// without the state lock as long as no writer changes the head.
    ///
    /// # Errors
    /// [`FileFault::Stale`]: the head that it was opened in is gone.
    pub(super) fn now(&self) -> Result<(Tree, Pin)> {
        self.engine.check_open()?;
        if let Some((_, present)) = self.opened_in {
            match present.read(&self.engine.pins) {
                Found::Here(tree, pin) => return Ok((tree, pin)),
                Found::Gone => return Err(FileFault::Stale.into()),
                Found::Unknown => {}
            }
        }
        let state = self.engine.state();
        let version = state.version_of(self.head(&state)?);
        let tree = version.tree.clone();
        let pin = self.engine.pins.pin(Hold::Head(version.head), version.moment, version.marks);
        if let Some((_, present)) = self.opened_in {
            present.publish(version);
        }
        Ok((tree, pin))
    }

    /// The head that it is in.
    pub(super) fn head(&self, state: &State) -> Result<VersionId> {
        let Some((head, _)) = self.opened_in else { return state.head(self.dataset) };
        state.require_head(self.dataset, head)?;
        Ok(head)
    }

    /// Executes an operation on it.
    pub(super) fn execute(
        &self,
        operation: &Operation,
        payload: Option<Payload>,
        purpose: Purpose,
    ) -> Result<RecordSequence> {
        let on = self.opened_in.map(|(head, _)| (self.dataset, head));
        self.engine.execute(on, operation, payload, purpose).map(|(last, _)| last)
    }
}

//! Books that were made again.

use super::Engine;
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::liveness::SetsOfVersion;
use crate::state::{Graveyard, State};
use crate::units::{BlockCount, SegmentId, Stream, VersionId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Gives every version other sets, and counts anew what follows from them.
    ///
    /// # Errors
    /// These cannot be the sets of these versions, or something that lives has no place: nothing has changed.
    pub(crate) fn replace_sets(&self, sets: impl FnMut(VersionId) -> SetsOfVersion) -> Result<()> {
        let line = self.checkpoint.lock();
        let mut state = self.state();
        let history = state.history.with_sets(sets)?;
        let mut live = self.count_live(&history, &state)?;
        for blob in &line.blobs {
            live.entry(blob.segment).or_insert((0, SegmentKind::Ledger)).0 += u64::from(blob.blocks);
        }
        for (segment, blocks) in self.chunk_places() {
            live.entry(segment).or_insert((0, SegmentKind::Ledger)).0 += u64::from(blocks);
        }
        state.history = history;
        state.doom_hidden()?;
        // What died by the former sets lives, or no version owns it.
        state.graveyard = Graveyard::of(Arc::clone(state.graveyard.pins()));
        state.segments.recount(&live);
        state.uncounted = Default::default();
        state.usage = state.count_usage();
        Ok(())
    }

    fn count_live(
        &self,
        history: &crate::liveness::History,
        state: &State,
    ) -> Result<BTreeMap<SegmentId, (u64, SegmentKind)>> {
        let mut live: BTreeMap<SegmentId, (u64, SegmentKind)> = BTreeMap::new();
        let unwritten: std::collections::BTreeSet<u64> =
            state.trees.values().flat_map(|tree| tree.dirty()).map(|slot| slot.address().0).collect();
        for stream in Stream::ALL {
            let kind = SegmentKind::of(stream);
            for run in history.live_runs(stream) {
                let run = run?;
                let mut at = run.start;
                while at < run.end() {
                    let Some((segment, _, together)) = self.blocks.lookup(stream, at)? else {
                        let in_memory = self.blocks.pending().get(at).is_some() && stream == Stream::Merged;
                        if !(in_memory || stream == Stream::Node && unwritten.contains(&at.0)) {
                            let detail = format!("no place is known for {stream:?} address {at}");
                            return Err(Error::damaged("the location map", detail));
                        }
                        at = at.plus(BlockCount(1));
                        continue;
                    };
                    let count = together.0.min(run.end().0 - at.0);
                    live.entry(segment).or_insert((0, kind)).0 += count;
                    at = at.plus(BlockCount(count));
                }
            }
        }
        Ok(live)
    }

    /// A checkpoint that builds on nothing.
    pub(crate) fn checkpoint_in_full(&self) -> Result<()> {
        self.checkpoint.lock().corrupt = true;
        self.run_checkpoint()
    }
}

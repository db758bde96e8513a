//! A map in chunks, and its changes: what a ledger says of it.

use super::changes::{MapChanges, damaged};
use super::chunked::{ChunkedMap, span_of};
use super::directory::{ChunkRow, Directory};
use crate::Result;
use crate::units::{Marks, Run, SegmentId, Stream};

impl ChunkedMap {
    /// What changed since the last call (or since the map was loaded). The caller must store it: it is not
    /// reported again.
    pub fn take_changes(&mut self) -> MapChanges {
        let retired = self.take_retired();
        MapChanges { retired, ..self.recent.take_changes() }
    }

    /// Of what changed since the last call, what has an address below these marks, and the segments that are
    /// retired. The rest is reported later.
    pub fn take_changes_below(&mut self, marks: &Marks) -> MapChanges {
        let retired = self.take_retired();
        MapChanges { retired, ..self.recent.take_changes_below(marks) }
    }

    /// Runs that changed since the last call, about: what lies in pieces counts once.
    pub(crate) fn changed_runs(&self) -> usize {
        self.recent.changed_runs()
    }

    /// Takes back changes that could not be stored: they are reported again, with what changed since. They
    /// have to be the last ones that were taken.
    pub fn put_back(&mut self, mut changes: MapChanges) {
        self.retired_since.extend(std::mem::take(&mut changes.retired));
        self.recent.put_back(changes);
    }

    fn take_retired(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.retired_since).into_iter().collect()
    }

    /// The whole map: the chunks that there are, and what changed since they were written. Takes no chunk.
    /// Does not touch the journal.
    pub fn full_changes(&self) -> MapChanges {
        let mut changes = self.recent.full_changes();
        for stream in Stream::ALL {
            changes.chunks[stream as usize] = self.directory.rows(stream).to_vec();
            changes.streams[stream as usize].cleared = self.void[stream as usize].clone();
        }
        changes.retired = self.retired.iter().copied().collect();
        changes
    }

    /// Applies stored changes, which leave no trace in the journal. A map that they do not fit, as far as
    /// that shows without its chunks, must be dropped.
    pub fn apply_changes(&mut self, changes: &MapChanges) -> Result<()> {
        let is_new = self.directory.is_empty() && self.recent.is_empty();
        if changes.full && !is_new {
            return Err(damaged("a full image in the middle of changes"));
        }
        for (stream, rows) in Stream::ALL.into_iter().zip(&changes.chunks) {
            add_rows(&mut self.directory, stream, rows)?;
        }
        for segment in &changes.retired {
            let there: Vec<Run> = self.recent.entries_of_segment(*segment).map(|placed| placed.run).collect();
            there.into_iter().for_each(|run| drop(self.recent.displace(run)));
            self.retired.insert(*segment);
        }
        // What is retired goes first, and what chunks say of an address is unknown here.
        let is_known = self.directory.is_empty() && changes.retired.is_empty();
        for (stream, changes) in Stream::ALL.into_iter().zip(&changes.streams) {
            for span in changes.cleared.runs() {
                let run = Run::of(stream, &span);
                let left: u64 = self.recent.displace(run).iter().map(|piece| piece.run.length.0).sum();
                if self.directory.overlaps(stream, &span_of(&run)) {
                    self.avoid(stream, span);
                } else if is_known && left != run.length.0 {
                    return Err(damaged("takes a place from what has none"));
                }
            }
        }
        for placed in changes.streams.iter().flat_map(|changes| &changes.placed) {
            if !self.recent.is_free(placed) {
                return Err(damaged("two runs share an address or a slot"));
            }
            self.recent.place(placed);
        }
        Ok(())
    }
}

fn add_rows(directory: &mut Directory, stream: Stream, rows: &[ChunkRow]) -> Result<()> {
    if rows.iter().all(|row| directory.add(stream, row.clone())) {
        return Ok(());
    }
    Err(damaged("two chunks share an address"))
}

//! Which segments are in use as of a checkpoint, and how much lives in each.

use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::liveness::{BlockSet, HistoryFault, Span, StoredHistory};
use crate::location::ChunkedMap;
use crate::segments::Segments;
use crate::units::{BlockCount, LogAddress, Run, SegmentId, Stream};

/// Notes that a segment is in use. One that is gone takes with it what lies in it, and nothing else.
pub(super) fn claim(segments: &mut Segments, segment: SegmentId, kind: SegmentKind) {
    if !segments.exists(segment) {
        segments.add_absent(segment, kind);
    }
    if segments.kind(segment).is_none() {
        segments.use_as(segment, kind);
    }
}

/// Where chunks lie is in use.
pub(super) fn claim_chunks(map: &ChunkedMap, segments: &mut Segments) {
    for (_, row) in map.directory().all() {
        claim(segments, row.place.segment, SegmentKind::Ledger);
        segments.add_live(row.place.segment, u64::from(row.place.blocks));
    }
}

/// Where chunks of sets lie is in use.
pub(super) fn claim_sets(history: &StoredHistory, blocks: &Blocks, segments: &mut Segments) {
    let mut shelf = blocks.sets().write();
    shelf.name(history.rows().map(|row| row.place));
    for place in shelf.places() {
        claim(segments, place.segment, SegmentKind::Ledger);
        segments.add_live(place.segment, u64::from(place.blocks));
    }
}

/// Where what lives lies, as far as chunks of the map can be read.
struct Living<'a> {
    blocks: &'a Blocks,
    segments: &'a mut Segments,
    /// Addresses of damaged chunks, but for those that have a place since these were written.
    uncounted: BlockSet,
    named: &'a mut Named,
}

/// Segments that damaged chunks name, and what for. What was moved out of them since is not in them any more,
/// so that they may be in use for something else. That is known once everything else has been claimed.
#[derive(Default)]
pub(super) struct Named(Vec<(SegmentId, SegmentKind)>);

impl Named {
    /// It is unknown how much lives in them: they are used for nothing else in this life.
    pub fn hold(self, segments: &mut Segments) {
        for (segment, kind) in self.0 {
            claim(segments, segment, kind);
            segments.hold(segment);
            segments.mark_corrupt(segment);
        }
    }
}

impl Living<'_> {
    /// The segment of a block, and how many from it on lie there, too. `None` if the chunk that says so
    /// cannot be read.
    fn place(
        &mut self,
        stream: Stream,
        at: LogAddress,
        kind: SegmentKind,
    ) -> Result<Option<(SegmentId, u64)>> {
        match self.blocks.lookup(stream, at) {
            Ok(Some((segment, _, together))) => Ok(Some((segment, together.0))),
            Ok(None) => {
                let detail = format!("no place is known for live {stream:?} address {at}");
                Err(Error::damaged("the ledger", detail))
            }
            // A disk may read in the next life what it refuses to read now. Until then it is as what is
            // damaged.
            Err(error @ (Error::Damaged { .. } | Error::Io { .. })) => {
                self.leave_out(stream, at, kind, error)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Counts a run where it lies.
    fn count(&mut self, run: Run, kind: SegmentKind) -> Result<()> {
        let mut at = run.start;
        while at < run.end() {
            let left_out = self.uncounted.runs_within(&(at..run.end())).next();
            if let Some(span) = left_out.as_ref().filter(|span| span.start == at) {
                at = span.end;
                continue;
            }
            let end = left_out.map_or(run.end(), |span| span.start);
            // If the chunk is damaged, what it is of is left out from here on.
            let Some((segment, together)) = self.place(run.stream, at, kind)? else { continue };
            let count = together.min(end.0 - at.0);
            claim(self.segments, segment, kind);
            self.segments.add_live(segment, count);
            at = at.plus(BlockCount(count));
        }
        Ok(())
    }

    /// It is unknown what lives within a span: all that has a place there counts, and is not freed in this
    /// life.
    fn spare(&mut self, stream: Stream, span: &Span, kind: SegmentKind) -> Result<()> {
        let (entries, unread) = self.blocks.entries_within(stream, span);
        for placed in entries {
            claim(self.segments, placed.segment, kind);
            self.segments.add_live(placed.segment, placed.run.length.0);
        }
        for absent in unread {
            let error = Error::damaged("the location map", "a chunk cannot be read");
            self.leave_out(stream, absent.span.start, kind, error)?;
        }
        Ok(())
    }

    /// The chunk that places an address cannot be read. What it places is not counted, and lies in segments
    /// that are used for nothing else.
    fn leave_out(&mut self, stream: Stream, at: LogAddress, kind: SegmentKind, error: Error) -> Result<()> {
        let chunk = self.blocks.map().read().chunk_at(stream, at);
        let (absent, named) = chunk.ok_or(error)?;
        self.name(&named, kind);
        let known = self.blocks.map().read().recent_within(Run::of(stream, &absent.span));
        let mut unknown = BlockSet::of(absent.span);
        for placed in known {
            unknown.remove(&(placed.run.start..placed.run.end()));
        }
        self.uncounted.unite(unknown);
        Ok(())
    }

    /// Where the blocks lie that a damaged chunk places is known as far as the directory names segments.
    fn name(&mut self, named: &[SegmentId], kind: SegmentKind) {
        let named = if named.is_empty() { self.segments.all() } else { named.to_vec() };
        self.named.0.extend(named.into_iter().map(|segment| (segment, kind)));
    }
}

/// Owned sets partition all live blocks: together with the map they say what lives in each segment. Chunks of
/// the map are read one after the other. What was forsaken lies nowhere. Answers what is not counted, because
/// a chunk is damaged, and which segments that may lie in. These are to be held when all that is in use has
/// been claimed.
pub(super) fn count_live(
    history: &crate::liveness::History,
    forsaken: &BlockSet,
    blocks: &Blocks,
    segments: &mut Segments,
) -> Result<([BlockSet; 3], Named)> {
    let mut uncounted: [BlockSet; 3] = Default::default();
    let mut named = Named::default();
    for stream in Stream::ALL {
        let kind = SegmentKind::of(stream);
        let mut living = Living { blocks, segments, uncounted: BlockSet::new(), named: &mut named };
        for run in history.live_runs(stream) {
            let run = match run {
                Ok(run) => run,
                // What is damaged now is so for this life; a disk that refuses to read may not the next time.
                Err(unread) if matches!(unread.fault, HistoryFault::Unread(_)) => {
                    living.spare(stream, &unread.row.span, kind)?;
                    continue;
                }
                Err(unread) => return Err(unread.into()),
            };
            if stream == Stream::Data && forsaken.count(&(run.start..run.end())).0 > 0 {
                let mut placed = BlockSet::of(run.start..run.end());
                placed.subtract(forsaken);
                for span in placed.runs() {
                    living.count(Run::of(stream, &span), kind)?;
                }
            } else {
                living.count(run, kind)?;
            }
        }
        uncounted[stream as usize] = living.uncounted;
    }
    Ok((uncounted, named))
}

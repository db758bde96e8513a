//! The part of a scrub that looks at what vouches for blocks: headers and tables of every segment in use.

use super::seen::one;
use super::{Finding, Scrub};
use crate::blocks::Flaw;
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::log::tail::Position;
use crate::units::{BLOCK_BYTES, BlockCount, Run, SegmentId, Slot};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Times that a flaw has to be seen: what is being written at the moment looks like one.
const LOOKS: u32 = 3;

impl Scrub<'_> {
    /// Looks at every segment in use; `false` when the caller has had enough. `tail`: where the log ended,
    /// all of which is on disk.
    pub(super) fn frames(&mut self, tail: Position) -> Result<bool> {
        let all = self.engine.state().segments.all();
        for segment in all {
            let began = Instant::now();
            // Held, so that it is not used for something else meanwhile.
            let Some(kind) = self.hold(segment) else { continue };
            let outcome = self.segment(segment, kind, tail);
            self.engine.state().segments.let_go(segment);
            outcome?;
            if !self.pause(BLOCK_BYTES as u64, began.elapsed()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn hold(&self, segment: SegmentId) -> Option<SegmentKind> {
        let mut state = self.engine.state();
        // What was taken since is for the next scrub: its header may be on its way.
        let counts = state.segments.live(segment) > 0 && !state.segments.was_taken_after(segment, self.takes);
        let kind = state.segments.kind(segment).filter(|_| counts)?;
        state.segments.hold(segment);
        Some(kind)
    }

    fn segment(&mut self, segment: SegmentId, kind: SegmentKind, tail: Position) -> Result<()> {
        self.engine.check_open()?;
        let cut = self.engine.harmless_cut(segment);
        if let Some(error) = &cut {
            let damage = format!("{error}; nothing that lives is gone with it");
            self.note(None, Finding::new(damage, true));
        }
        if !kind.has_table() {
            if !self.engine.inspect_header(segment, kind) {
                self.flaw(segment, &Flaw::of_header());
            }
            return Ok(());
        }
        let blocks = &self.engine.blocks;
        let mut found = self.flaws(segment, tail);
        // Each once: what may not be written, or is not there when it was, would be found for ever.
        let mut healed = BTreeSet::new();
        let mut heal = |flaw: &Flaw| {
            !healed.contains(&flaw.slot) && blocks.heal_flaw(segment, flaw) && healed.insert(flaw.slot)
        };
        // What is behind one that is healed is seen only then.
        while cut.is_none() && found.as_ref().is_ok_and(|flaws| flaws.iter().any(&mut heal)) {
            found = self.flaws(segment, tail);
        }
        match found {
            // What has a whole copy was reported when it was healed.
            Ok(flaws) => flaws
                .iter()
                .filter(|flaw| !healed.contains(&flaw.slot))
                .for_each(|flaw| self.flaw(segment, flaw)),
            Err(error) => self.unreadable(&error),
        }
        if cut.is_none() {
            // What keeps the copy from being compared has been reported.
            let _ = self.engine.inspect_frames(segment, self.written(segment, tail));
        }
        Ok(())
    }

    /// Everything in a segment before this is on disk.
    fn written(&self, segment: SegmentId, tail: Position) -> Slot {
        if segment == tail.segment { tail.slot } else { Slot(self.engine.geometry.slots()) }
    }

    fn flaws(&self, segment: SegmentId, tail: Position) -> Result<Vec<Flaw>> {
        let engine = self.engine;
        let is_tail = segment == tail.segment;
        let written = self.written(segment, tail);
        let is_full = !is_tail && self.is_settled && engine.state().tail.segment() != segment;
        let look = || {
            let sums = engine.blocks.sums();
            sums.inspect(segment, written, is_full, engine.blocks.files())
        };
        let mut found = look()?;
        for _ in 1..LOOKS {
            if found.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            let again = look()?;
            found.retain(|flaw| again.contains(flaw));
        }
        Ok(found)
    }

    /// Without which nothing of the segment can be verified: its blocks are damaged, and are met as such.
    fn unreadable(&mut self, error: &Error) {
        self.note(None, Finding::new(error.to_string(), false));
    }

    fn flaw(&mut self, segment: SegmentId, flaw: &Flaw) {
        let alive = self.alive_behind(segment, flaw);
        if alive.is_none() && (flaw.is_of_run() || self.is_blank(segment, flaw.slot)) {
            // A run that never came to be, or that is dead; or the log went on elsewhere without a word, when
            // this segment was gone.
            return;
        }
        let spare = flaw.spare || alive.is_none();
        let why = match (flaw.spare, spare) {
            (true, _) => "the rest of the segment makes up for it",
            (false, true) => "nothing alive depends on it",
            (false, false) => "the blocks behind it cannot be verified once the pool is opened again",
        };
        let detail = format!("the {} is not what was written: {why}", flaw.what);
        let error = self.engine.geometry.damaged(segment, flaw.slot, detail);
        let incidents = self.engine.blocks.files().incidents();
        if spare {
            incidents.note_harmless(&error)
        } else {
            incidents.note(&error)
        }
        self.note(alive.filter(|_| !spare), Finding::new(error.to_string(), spare));
    }

    /// Whether nothing was ever written to a block.
    fn is_blank(&self, segment: SegmentId, slot: Slot) -> bool {
        let mut block = [0; BLOCK_BYTES];
        let read = self.engine.blocks.files().read(segment, slot, &mut block);
        read.is_ok() && block.iter().all(|byte| *byte == 0)
    }

    /// The first living block that a flaw may cost.
    fn alive_behind(&self, segment: SegmentId, flaw: &Flaw) -> Option<Run> {
        let state = self.engine.state();
        // What cannot be read cannot be said to be alive: the reader that looks for its chunk reports that.
        for entry in self.engine.blocks.entries_of_segment(segment).unwrap_or_default() {
            let from = flaw.behind.start.max(entry.slot.0);
            let to = flaw.behind.end.min(entry.slot.0 + entry.run.length.0 as u32);
            for slot in from..to {
                let address = entry.run.start.plus(BlockCount(u64::from(slot - entry.slot.0)));
                // If the history cannot be read, the block counts as alive: a report too many is better.
                if state.history.lives(entry.run.stream, address).unwrap_or(true) {
                    return Some(one(entry.run.stream, address));
                }
            }
        }
        None
    }
}

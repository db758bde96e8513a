//! Damaged blocks as they are met, in little memory: those that follow one another are one entry.

use crate::engine::Engine;
use crate::error::Error;
use crate::format::segment::file_name;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, SegmentId, Stream};

/// Entries that are kept. What is met beyond is counted, and not named. Tests come to the end of few.
pub(super) const ENTRIES_MAX: usize = if cfg!(test) { 1200 } else { 16 << 10 };

/// Where damaged blocks lie, and what does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// One behind the other from an offset of a segment on.
    At { segment: SegmentId, offset: u64, detail: String },
    /// The place is not known.
    Nowhere,
    /// Said in words, the same for all of them.
    Text(String),
}

/// Damaged blocks with addresses that follow one another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    pub run: Run,
    pub place: Place,
}

impl Damage {
    /// What reading a block has come to.
    pub(crate) fn of(engine: &Engine, block: Run, error: &Error) -> Self {
        let place = match (error, engine.blocks.lookup(block.stream, block.start)) {
            (Error::Damaged { .. }, Ok(None)) => Place::Nowhere,
            (Error::Damaged { place, detail }, Ok(Some((segment, slot, _)))) => {
                let offset = engine.geometry.offset(slot);
                if *place == words(segment, offset) {
                    Place::At { segment, offset, detail: detail.clone() }
                } else {
                    Place::Text(error.to_string())
                }
            }
            (Error::Io { action, source, .. }, Ok(Some((segment, slot, _)))) => {
                let detail = format!("cannot {action} it: {source}");
                Place::At { segment, offset: engine.geometry.offset(slot), detail }
            }
            _ => Place::Text(error.to_string()),
        };
        Self { run: block, place }
    }

    /// Where a block of it lies, and what does not fit.
    pub(crate) fn text(&self, index: u64) -> String {
        match &self.place {
            Place::At { segment, offset, detail } => {
                let place = words(*segment, offset + index * BLOCK_BYTES as u64);
                Error::damaged(place, detail.clone()).to_string()
            }
            Place::Nowhere => {
                let Run { stream, start, .. } = self.run;
                let address = start.plus(BlockCount(index));
                let detail = format!("no place is known for {stream:?} address {address}");
                Error::damaged("the location map", detail).to_string()
            }
            Place::Text(text) => text.clone(),
        }
    }

    /// Whether blocks of the two may be reported as one, but for where they lie exactly.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (
                Place::At { segment, detail, .. },
                Place::At { segment: other_segment, detail: other_detail, .. },
            ) => (segment, detail) == (other_segment, other_detail),
            (one, other) => one == other,
        }
    }

    /// Whether `next` goes on where this ends.
    fn goes_on_with(&self, next: &Self) -> bool {
        let follows = match (&self.place, &next.place) {
            (Place::At { offset, .. }, Place::At { offset: next, .. }) => {
                *next == offset + self.run.length.bytes().0
            }
            _ => true,
        };
        follows
            && self.run.stream == next.run.stream
            && self.run.end() == next.run.start
            && self.is_like(next)
    }
}

fn words(segment: SegmentId, offset: u64) -> String {
    format!("{} at offset {offset}", file_name(segment))
}

/// A bounded number of them.
#[derive(Default)]
pub(crate) struct DamageList(Vec<Damage>);

impl DamageList {
    /// Adds blocks; `false` if there is no room for them.
    pub(crate) fn add(&mut self, damage: Damage) -> bool {
        if let Some(last) = self.0.last_mut()
            && last.goes_on_with(&damage)
        {
            last.run.length = BlockCount(last.run.length.0 + damage.run.length.0);
            return true;
        }
        let has_room = self.0.len() < ENTRIES_MAX;
        if has_room {
            self.0.push(damage);
        }
        has_room
    }

    /// Which blocks.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.0.iter().map(|damage| damage.run)
    }

    /// In the order of their addresses, each block once.
    pub(crate) fn into_sorted(self) -> Vec<Damage> {
        let mut all = self.0;
        all.sort_by_key(|damage| (damage.run.stream, damage.run.start));
        let mut behind = (Stream::Data, LogAddress(0));
        all.retain(|damage| {
            let is_new = (damage.run.stream, damage.run.start) >= behind;
            if is_new {
                behind = (damage.run.stream, damage.run.end());
            }
            is_new
        });
        all
    }
}

//! Copies that were given up come back by themselves once there is room for them.
//!
//! A segment that begins while there is no room for its copy goes without. The end of another copy or of dead
//! segments makes room later, and no writer takes notice of it. So a thread of its own looks now and then
//! whether something lacks its copy and there is room to spare, and makes one copy at a time. What is short
//! in the pool takes no copy away, so that each is made once at most in a use of a segment, unless the medium
//! is full. A copy is begun only where much more room is left over than would end it.

use super::space::available;
use super::{Engine, Purpose};
use crate::units::SegmentId;
use std::sync::Weak;
use std::time::Duration;

/// How long it is until the next look.
const PAUSE: Duration = Duration::from_millis(500);
/// Pauses after a copy could not be made, or was given up for want of room: a minute.
const PAUSES_AFTER_FAILURE: u32 = 120;
/// How long each piece waits while a writer writes to the log.
const MAKE_WAY: Duration = Duration::from_millis(12);
/// Of its segments a pool keeps such a part free beside the reserve and a copy that is begun.
const SPARE_SHARE: usize = 8;

/// Where the making of copies stands. Any thread that makes copies, of what was there before, locks it.
#[derive(Default)]
pub(super) struct Copying {
    /// What was tried last: the next time others come first.
    tried: Option<SegmentId>,
}

/// What became of a look at what is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// Nothing to do, or no room for it, or a copy was made.
    Done,
    /// A copy could not be made. Trying again at once would be no better.
    Failed,
}

/// Whose room a copy takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// Of copies alone: somewhere else, or kept back for them.
    OfCopies,
    /// Of segments that could be made.
    OfSegments,
}

/// Makes copies until the pool is gone.
pub(super) fn run(weak: &Weak<Engine>) {
    let mut pauses = 1;
    loop {
        // This thread keeps the pool from being let go for one pause at most.
        let Some(engine) = weak.upgrade() else { return };
        if !engine.signals.sleep(PAUSE) {
            return;
        }
        pauses -= 1;
        if pauses == 0 {
            pauses = match engine.copy_some(true) {
                Look::Done => 1,
                Look::Failed => PAUSES_AFTER_FAILURE,
            };
        }
    }
}

impl Engine {
    /// Without threads: makes a copy of what has none.
    pub(crate) fn copy_with_call(&self) {
        if !self.options.background {
            self.copy_some(false);
        }
    }

    /// Makes the copy of a segment that has none, if there is room to spare. Failing is no error: the copy is
    /// missing as before, and that is said. `paced`: makes way for writers, and for the end.
    fn copy_some(&self, paced: bool) -> Look {
        let copies = self.copies();
        if self.check_writable().is_err() || copies.next_missing(None).is_none() {
            return Look::Done;
        }
        let mut copying = self.copying.lock();
        let Some(segment) = copies.next_missing(copying.tried) else { return Look::Done };
        let Some(room) = self.room_to_spare() else { return Look::Done };
        copying.tried = Some(segment);
        let goes_on = || !paced || self.goes_on_copying(room);
        let copied = self.copy_one(segment, None, |kind| copies.is_missing(segment, kind), goes_on);
        // It may have been let go of meanwhile.
        self.release_copies();
        if copied.is_err() {
            return Look::Failed;
        }
        if copies.report().is_whole() {
            copies.flush(self.options.background);
            // A failure is kept by the log writer.
            let _ = self.say_of_copies();
        }
        Look::Done
    }

    /// The room that a copy can have without any writer missing it.
    fn room_to_spare(&self) -> Option<Room> {
        let aside = self.copies().aside();
        if !aside.is_within() {
            // The filesystem there says whether there is any.
            return Some(Room::OfCopies);
        }
        // A medium that cannot be asked has room for nothing.
        let on_medium = self.storage.space().map_or(0, |space| space.free / self.geometry.bytes);
        let state = self.state();
        if !aside.has_room() || on_medium == 0 || state.medium_full {
            return None;
        }
        let creatable = state.segments.creatable();
        if state.segments.copy_takes_nothing() && creatable < on_medium {
            return Some(Room::OfCopies);
        }
        let left = (state.segments.free() as u64).saturating_add(creatable.min(on_medium)) - 1;
        let spare = 2 + state.segments.len() / SPARE_SHARE;
        (left >= (self.reserve(&state, Purpose::Data) + spare) as u64).then_some(Room::OfSegments)
    }

    /// Lets writers go first. Answers whether it still goes on: not when the pool is being closed, nor when
    /// writers need the room.
    fn goes_on_copying(&self, room: Room) -> bool {
        if self.writer.is_busy() {
            std::thread::sleep(MAKE_WAY);
        }
        if self.signals.is_stopping() || self.check_writable().is_err() {
            return false;
        }
        let state = self.state();
        room == Room::OfCopies || available(&state) > self.reserve(&state, Purpose::Data) as u64
    }
}

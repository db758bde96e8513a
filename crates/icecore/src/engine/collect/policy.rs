//! When segments are emptied, and how fast: ahead of need, in idle time, and when there is no room left.

use super::{Engine, Outcome};
use crate::engine::Purpose;
use crate::engine::space::available;
use crate::engine::trim::Keep;
use crate::error::{Error, Result};
use crate::format::segment::file_name;
use crate::segments::Candidate;
use crate::state::State;
use crate::units::{BLOCK_BYTES, BlockCount};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Room in free segments beyond the reserve that collection sees to.
const HEADROOM_BYTES: u64 = 8 << 20;
/// Of so many segments one at most is headroom.
const HEADROOM_SHARE: usize = 512;
/// In a small pool one of so many is, and two at most.
const SMALL_SHARE: usize = 64;
/// Rounds of emptying segments before a caller that found no room gets an error.
const ROUNDS_MAX: usize = 24;
/// Segments emptied before a checkpoint makes them free, when there is no room.
pub(super) const BATCH_SEGMENTS: usize = 8;
/// A pool has this many segments before it gathers what is dead in them rather than grow. From there on it
/// has this many for each segment that would hold what lives. The segments to be emptied are then nearly
/// empty, and emptying one writes less than writing a new one ahead.
const GROWN_SEGMENTS: u64 = 16;
const GROWN_SHARE: u64 = 3;
/// Of the segments that a pool has beyond that, so many are kept free for a writer that is faster for a while
/// than collection. It would get new ones, which the pool keeps for as long as it is written.
const GATHERED_MAX: u64 = 32;
/// How full a segment may be to be emptied only because nothing else is to be done.
const IDLE_FULL_MAX: f64 = 0.5;
/// The same in a pool whose files take more than a pool at rest should. They do not where all segments are
/// fuller.
const IDLE_FULL_MAX_LARGE: f64 = 0.9;
/// Segments emptied in idle time before looking whether it still is.
const IDLE_SEGMENTS: usize = 4;
/// The most of them, where it takes more to gain one.
const IDLE_SEGMENTS_MAX: usize = 12;
/// Blocks that have to have died for each node that a checkpoint would write, to be worth it.
const DEATHS_PER_NODE: u64 = 16;
/// Of so many blocks of the pool one that the next checkpoint makes room of is worth one.
const DEATHS_SHARE: u64 = 64;
/// As many times as much is worth one in any case: of log, or of blocks whose death need not be recorded to
/// leave them behind.
const LEFT_BEHIND_FACTOR: u64 = 8;
/// How long a thread waits for the collector before it looks whether there is room by now.
const TURN_PATIENCE: Duration = Duration::from_millis(2);
/// A pause between two pieces for each segment that is left before writers would have to wait.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(12);

/// One collection at a time, and what it is doing.
#[derive(Default)]
pub(crate) struct Collector {
    turn: Mutex<()>,
    notes: Mutex<Notes>,
    /// Bytes of log below which another look for segments to empty is a waste of time.
    quiet_until: AtomicU64,
}

#[derive(Default)]
struct Notes {
    doing: Option<String>,
    trouble: Option<String>,
    /// All that was being done so far.
    #[cfg(test)]
    done: Vec<String>,
}

impl Collector {
    /// Waits until no other thread collects.
    pub(in crate::engine) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Something was met that collection leaves alone.
    pub(super) fn report(&self, error: &Error) {
        self.notes.lock().trouble = Some(error.to_string());
    }

    /// From now on nothing is emptied ahead of need.
    #[cfg(test)]
    pub(super) fn hush(&self) {
        self.quiet_until.store(u64::MAX, Ordering::Relaxed);
    }

    /// Segments are emptied ahead of need again.
    #[cfg(test)]
    pub(super) fn listen(&self) {
        self.quiet_until.store(0, Ordering::Relaxed);
    }

    pub(super) fn says(&self, doing: Option<String>) {
        let mut notes = self.notes.lock();
        #[cfg(test)]
        notes.done.extend(doing.clone());
        notes.doing = doing;
    }

    /// All that was said so far to be being done.
    #[cfg(test)]
    pub(super) fn said(&self) -> Vec<String> {
        self.notes.lock().done.clone()
    }

    /// What is being done, and why, and what was met last that was in the way.
    pub(crate) fn describe(&self) -> String {
        let notes = self.notes.lock();
        let doing = notes.doing.as_deref().unwrap_or("nothing to do");
        match &notes.trouble {
            Some(trouble) => format!("{doing}; left alone: {trouble}"),
            None => doing.to_owned(),
        }
    }
}

/// How much room there is, in segments.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Free, or to be made.
    available: u64,
    /// What writers may not take.
    reserve: u64,
    /// What collection keeps free beyond it.
    headroom: u64,
}

impl Room {
    fn is_short(self) -> bool {
        self.available < self.reserve + self.headroom
    }

    /// How long collection pauses between two pieces. A collection that is behind does not pause. One that
    /// has room makes way for a writer, the longer the more room there is.
    fn pause(self, is_busy: impl FnOnce() -> bool) -> Duration {
        let slack = self.available.saturating_sub(self.reserve + self.headroom).min(64) as u32;
        let pause = (PAUSE * slack).min(PAUSE_MAX);
        if !pause.is_zero() && is_busy() { pause } else { Duration::ZERO }
    }
}

impl Engine {
    fn room(&self, state: &State) -> Room {
        let segments = &state.segments;
        Room {
            available: available(state),
            reserve: self.reserve(state, Purpose::Data) as u64,
            headroom: self.headroom(segments.len()),
        }
    }

    /// The room that there is without growing for the sake of what is dead. A pool that outgrew its content
    /// keeps more of it.
    fn room_as_grown(&self, state: &State) -> Room {
        let room = self.room(state);
        let beyond = (state.segments.len() as u64).saturating_sub(self.segments_enough(state));
        Room {
            available: room.available.min(self.available_as_grown(state)),
            headroom: room.headroom.max(beyond.min(GATHERED_MAX)),
            ..room
        }
    }

    /// Segments that are enough for what lives in the pool.
    fn segments_enough(&self, state: &State) -> u64 {
        let hold_what_lives = state.segments.live_total().div_ceil(u64::from(self.geometry.slots()));
        (hold_what_lives * GROWN_SHARE).max(GROWN_SEGMENTS)
    }

    /// Segments that are free, or may be made before the pool is large enough for what lives in it.
    fn available_as_grown(&self, state: &State) -> u64 {
        let segments = &state.segments;
        self.segments_enough(state).saturating_sub(segments.len() as u64) + segments.free() as u64
    }

    /// Segments that collection keeps free beyond the reserve: room kept free is lost to what dies by itself.
    fn headroom(&self, segments: usize) -> u64 {
        let share = (segments / HEADROOM_SHARE).max((segments / SMALL_SHARE).clamp(1, 2));
        (HEADROOM_BYTES / self.geometry.bytes).clamp(1, share as u64)
    }

    /// Whether segments should be emptied before writers find no room.
    pub(in crate::engine) fn collection_is_due(&self, state: &State) -> bool {
        // Most of the time there is so much room that nothing has to be worked out.
        let plenty = available(state).min(self.available_as_grown(state)) > 64;
        !plenty && self.logged_bytes() >= self.collector.quiet_until.load(Ordering::Relaxed) && {
            self.room_as_grown(state).is_short()
        }
    }

    fn logged_bytes(&self) -> u64 {
        self.counters.logged_data_bytes.get() + self.counters.logged_header_bytes.get()
    }

    /// Empties segments until there is headroom again, ahead of need. `paced`: makes way for writers as long
    /// as there is room for them.
    pub(in crate::engine) fn collect_ahead(&self, paced: bool) -> Result<()> {
        let Some(_turn) = self.collector.turn.try_lock() else { return Ok(()) };
        let mut gained = true;
        while gained {
            self.check_writable()?;
            let room = self.room_as_grown(&self.state());
            if !room.is_short() || self.signals.is_stopping() {
                break;
            }
            gained = self.empty_some(room, paced)?;
            self.release_emptied()?;
        }
        if !gained {
            // Until something dies there is nothing to gain.
            let quiet = self.logged_bytes() + self.geometry.bytes / 4;
            self.collector.quiet_until.store(quiet, Ordering::Relaxed);
        }
        self.collector.says(None);
        Ok(())
    }

    /// Empties as many segments as give headroom, as far as there is room to move what lives in them. Answers
    /// whether there was any that the next checkpoint can free.
    fn empty_some(&self, room: Room, paced: bool) -> Result<bool> {
        let wanted = (room.reserve + 2 * room.headroom).saturating_sub(room.available);
        let victims = self.victims(&self.state());
        let mut expected = self.state().collection.vacated_count() as u64;
        if !is_room_in(&victims) {
            return Ok(expected > 0);
        }
        for victim in &victims {
            if expected >= wanted || self.signals.is_stopping() {
                break;
            }
            let why = format!("{} free segments, {} kept", room.available, room.reserve + room.headroom);
            self.collector.says(Some(describe(victim, &why)));
            let pause = || {
                if paced {
                    self.make_way()
                }
            };
            match self.empty(victim, Purpose::Collecting, &pause)? {
                Outcome::Emptied => expected += 1,
                Outcome::NoRoom => break,
                Outcome::Corrupt | Outcome::Gone => {}
            }
            if paced && self.is_in_the_way() {
                break;
            }
        }
        Ok(expected > 0)
    }

    /// Whether collection took so many segments to fill that writers cannot go on, or not for long, and can
    /// give some of them back.
    fn is_in_the_way(&self) -> bool {
        let state = self.state();
        let room = self.room(&state);
        state.collection.vacated_count() > 0 && room.available < room.reserve
    }

    /// Makes what was emptied free.
    fn release_emptied(&self) -> Result<()> {
        let is_worth_it = self.checkpoint_is_worth_it(&self.state());
        if is_worth_it || !self.record_moves()? {
            self.run_checkpoint()?;
        }
        Ok(())
    }

    /// Whether a checkpoint gains much for its cost, where room is short. It writes the nodes that changed.
    /// It makes room of what died since the last one and cannot be left behind without it, and lets that part
    /// of the log be emptied.
    pub(in crate::engine) fn checkpoint_is_worth_it(&self, state: &State) -> bool {
        let cost = state.dirty_nodes + self.blocks.pending().count() as u64;
        let (waiting, died) = (state.graveyard.waiting_blocks(), state.graveyard.pending_blocks());
        waiting >= cost * DEATHS_PER_NODE
            || self.is_much(state, BlockCount(waiting))
            || self.is_much(state, BlockCount(died.max(state.log_blocks) / LEFT_BEHIND_FACTOR))
    }

    /// Whether that is much of what the pool holds: worth a checkpoint that makes room of it.
    pub(in crate::engine) fn is_much(&self, state: &State, blocks: BlockCount) -> bool {
        blocks.0 >= state.segments.len() as u64 * u64::from(self.geometry.slots()) / DEATHS_SHARE
    }

    /// Lets writers go first.
    fn make_way(&self) {
        let room = self.room_as_grown(&self.state());
        let pause = room.pause(|| self.writer.is_busy());
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }

    /// Makes this many segments free for a caller that adds something, beside those that are reserved, by
    /// emptying others. False if nothing can be gained. For callers that found no room.
    pub(in crate::engine) fn collect_for_room(&self, wanted: usize) -> Result<bool> {
        let wanted = wanted as u64 + self.segments_kept(&self.state());
        let Some(_turn) = self.turn_or_room(wanted) else { return Ok(true) };
        let mut gained = false;
        for _ in 0..ROUNDS_MAX {
            let (room, victims) = {
                let state = self.state();
                (self.room(&state), self.victims(&state))
            };
            if room.available >= room.reserve + wanted {
                gained = true;
                break;
            }
            let is_room = is_room_in(&victims) && !self.is_tight(&self.state(), Purpose::Freeing);
            let gains = is_room && self.empty_for_room(&victims)?;
            if !gains && !self.gain_from_reserve()? {
                break;
            }
            gained = true;
        }
        self.collector.says(None);
        Ok(gained)
    }

    /// Waits for the thread that collects until there is room again in the segment that the log is in. False
    /// if there is none when that thread is done, or if no thread collects.
    pub(in crate::engine) fn wait_for_collection(&self) -> bool {
        while self.collector.turn.try_lock_for(TURN_PATIENCE).is_none() {
            if self.log_may_go_on(&self.state()) {
                return true;
            }
        }
        self.log_may_go_on(&self.state())
    }

    /// Waits for its turn; `None` if the thread that has it has made as much room already.
    fn turn_or_room(&self, wanted: u64) -> Option<MutexGuard<'_, ()>> {
        loop {
            if let Some(turn) = self.collector.turn.try_lock_for(TURN_PATIENCE) {
                return Some(turn);
            }
            let room = self.room(&self.state());
            if room.available >= room.reserve + wanted {
                return None;
            }
        }
    }

    /// Makes room where only the reserve is left. If that is not possible, the room kept for it is room for
    /// what frees.
    fn gain_from_reserve(&self) -> Result<bool> {
        if !self.is_tight(&self.state(), Purpose::Freeing) {
            return Ok(false);
        }
        if self.empty_from_reserve()? {
            return Ok(true);
        }
        if self.state().log_blocks > 0 {
            // What was born since the last checkpoint stays where it is, and so does all that lies beside it.
            self.run_checkpoint()?;
            if !self.is_tight(&self.state(), Purpose::Freeing) || self.empty_from_reserve()? {
                return Ok(true);
            }
        }
        Ok(!std::mem::replace(&mut self.state().collection.is_exhausted, true))
    }

    /// Empties some segments with what room there is, and makes them free.
    fn empty_for_room(&self, victims: &[Candidate]) -> Result<bool> {
        let moved = self.moved_bytes();
        let mut emptied = 0;
        for victim in victims {
            if emptied == BATCH_SEGMENTS {
                break;
            }
            self.collector.says(Some(describe(victim, "there is no room")));
            // There may be room in the segment for data and none for another segment of nodes, or the other
            // way round.
            let outcome = self.empty(victim, Purpose::Freeing, &|| ())?;
            emptied += usize::from(outcome == Outcome::Emptied);
        }
        // Also what was moved out of one that there was no room to empty.
        let gained = emptied > 0 || self.moved_bytes() > moved;
        if gained {
            self.release_emptied()?;
        }
        Ok(gained)
    }

    /// Empties a few segments that hold little, because nothing else is to be done. `keep`: what the pool
    /// keeps.
    pub(in crate::engine) fn collect_idle(&self, keep: Keep) -> Result<()> {
        let Some(_turn) = self.collector.turn.try_lock() else { return Ok(()) };
        self.check_writable()?;
        let victims = self.idle_victims(&self.state(), keep);
        let mut emptied = 0;
        for victim in &victims {
            if self.signals.is_stopping() {
                break;
            }
            self.collector.says(Some(describe(victim, "nothing else to do")));
            emptied += usize::from(self.empty(victim, Purpose::Collecting, &|| ())? == Outcome::Emptied);
            // The next ones use again what was emptied, and a writer that comes does not wait for all of
            // them.
            if emptied == IDLE_SEGMENTS || self.is_in_the_way() {
                self.release_emptied()?;
                emptied = 0;
            }
        }
        if emptied > 0 {
            self.release_emptied()?;
        }
        self.collector.says(None);
        Ok(())
    }

    /// Segments to empty in idle time: together they give at least a whole one, or there are none.
    fn idle_victims(&self, state: &State, keep: Keep) -> Vec<Candidate> {
        let is_large = state.segments.len() > self.wanted(state, keep);
        let full_max = if is_large { IDLE_FULL_MAX_LARGE } else { IDLE_FULL_MAX };
        let mut victims = self.victims(state);
        victims.retain(|victim| victim.live as f64 <= full_max * victim.capacity as f64);
        let enough = (IDLE_SEGMENTS..=IDLE_SEGMENTS_MAX)
            .map(|count| &victims[..count.min(victims.len())])
            .find(|some| is_room_in(some));
        enough.map(<[Candidate]>::to_vec).unwrap_or_default()
    }
}

/// Whether emptying all of these gives a segment.
fn is_room_in(victims: &[Candidate]) -> bool {
    let dead: u64 = victims.iter().map(|victim| victim.capacity - victim.live).sum();
    victims.iter().map(|victim| victim.capacity).max().is_some_and(|capacity| dead > capacity)
}

pub(super) fn describe(victim: &Candidate, why: &str) -> String {
    let bytes = victim.live * BLOCK_BYTES as u64;
    let percent = victim.live * 100 / victim.capacity;
    format!("emptying {}, {percent} % full ({bytes} bytes): {why}", file_name(victim.segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::SegmentKind;
    use crate::units::SegmentId;

    #[test]
    fn collection_with_room_makes_way_for_writers_and_collection_that_is_behind_does_not() {
        let room = |available| Room { available, reserve: 4, headroom: 2 };
        let pauses: Vec<Duration> = (0..100).map(|available| room(available).pause(|| true)).collect();
        assert!(pauses[..=6].iter().all(Duration::is_zero), "{pauses:?}");
        assert_eq!(pauses[7], PAUSE);
        assert_eq!(pauses[9], 3 * PAUSE);
        assert!(pauses.is_sorted() && pauses[99] == PAUSE_MAX, "{pauses:?}");
        assert_eq!(room(u64::MAX).pause(|| true), PAUSE_MAX);
        // No thread writes: there is none to make way for.
        assert!((0..100).all(|available| room(available).pause(|| false).is_zero()));
        // More kept back is less room.
        let kept = Room { reserve: 6, ..room(9) };
        assert_eq!(kept.pause(|| true), PAUSE);
    }

    #[test]
    fn what_is_said_has_the_segment_how_full_it_is_and_why() {
        let (segment, kind) = (SegmentId(7), SegmentKind::Log);
        let victim = Candidate { segment, kind, live: 100, capacity: 800, age: 1, moves: 0 };
        let collector = Collector::default();
        assert_eq!(collector.describe(), "nothing to do");
        collector.says(Some(describe(&victim, "nothing else to do")));
        let doing = "emptying segment.00000007, 12 % full (409600 bytes): nothing else to do";
        assert_eq!(collector.describe(), doing);
        let trouble = Error::damaged("segment.00000003", "it is not what was written");
        collector.report(&trouble);
        assert_eq!(collector.describe(), format!("{doing}; left alone: {trouble}"));
        collector.says(None);
        assert_eq!(collector.describe(), format!("nothing to do; left alone: {trouble}"));
    }
}

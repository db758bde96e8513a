//! A day: some work of one kind, some trouble, and a full check in the evening.

use super::Life;
use super::trouble::Trouble;
use crate::Random;
use crate::explorer::Verdict;
use crate::model::{Step, Weights};
use icecore::Error;

/// Steps between two looks at how much of what segments hold is alive.
const STEPS_PER_HOUR: u64 = 20;
/// Percent of the used segments that may be alive for a collection to be asked for.
const LIVE_SHARE_MAX: u64 = 60;
/// Views that are held at a time.
const READERS_MAX: usize = 3;
/// What the bookkeeping of a checkpoint may take beside what versions reach.
const LEDGER_BYTES_MAX: u64 = 4 << 20;

impl Life {
    pub(super) fn day(&mut self) -> Result<(), String> {
        self.explorer.set_weights(work(&mut self.random));
        self.limit()?;
        let trouble = Trouble::draw(&mut self.random);
        // Where something is damaged, its copy must not be given up for another reason.
        if self.rotten.is_empty() || matches!(trouble, Trouble::Crashes(_)) {
            self.begin(trouble);
        }
        let hours = self.random.between(3, 12);
        for _ in 0..hours {
            self.hour()?;
        }
        self.end_trouble()?;
        self.evening()
    }

    fn hour(&mut self) -> Result<(), String> {
        if self.random.chance(40) && self.readers.len() < READERS_MAX {
            self.read_for_long();
        }
        for _ in 0..STEPS_PER_HOUR {
            let verdict = self.explorer.step()?;
            self.deeds.steps += 1;
            self.take(verdict)?;
        }
        if self.random.chance(30) {
            self.ask_reader()?;
        }
        if self.random.chance(8) {
            self.scrub_in_passing()?;
        }
        if self.random.chance(6) {
            // Readers end with the pool that they read.
            self.readers.clear();
            self.count_collected();
            self.perform(Step::Reopen)?;
        }
        if self.is_thin() {
            let segments = self.random.between(1, 8) as usize;
            let checkpoint = self.random.chance(50);
            self.perform(Step::Collect { segments, checkpoint })?;
            self.perform(Step::Trim)?;
        }
        self.explorer.history.forget_acknowledged();
        Ok(())
    }

    /// Whether little of what lies in used segments is alive.
    fn is_thin(&self) -> bool {
        let statistics = self.explorer.pool().statistics();
        let used = (statistics.segments - statistics.segments_free) * self.setting.segment_bytes;
        used > 6 * self.setting.segment_bytes && statistics.live_bytes * 100 < used * LIVE_SHARE_MAX
    }

    /// Does a step and takes what comes of it.
    pub(super) fn perform(&mut self, step: Step) -> Result<(), String> {
        let verdict = self.explorer.perform(step)?;
        self.deeds.steps += 1;
        self.take(verdict)
    }

    /// Whatever a step has led to, afterwards the pool is open and takes writes.
    pub(super) fn take(&mut self, verdict: Verdict) -> Result<(), String> {
        match verdict {
            Verdict::Agreed => {
                self.refusals = 0;
                Ok(())
            }
            Verdict::Cut => self.recover(),
            Verdict::Failed(_) if self.is_lost() => self.mourn(),
            Verdict::Failed(Error::NoSpace { .. } | Error::QuotaExceeded { .. }) => {
                self.deeds.refusals += 1;
                self.refusals += 1;
                if self.refusals > 6 { self.make_room() } else { Ok(()) }
            }
            Verdict::Failed(Error::Io { .. }) => Ok(()),
            Verdict::Failed(error) => {
                Err(format!("nothing led up to this: {error}\n  {}", self.explorer.recent()))
            }
        }
    }

    /// Everything is as the model says, the books are right, and no space is taken without a reason.
    fn evening(&mut self) -> Result<(), String> {
        while !self.readers.is_empty() {
            self.ask_reader()?;
        }
        if self.random.chance(50) {
            self.claim_reserved()?;
        }
        self.prune()?;
        self.explorer.check()?;
        self.perform(Step::Checkpoint)?;
        let statistics = self.explorer.pool().statistics();
        if statistics.live_bytes > statistics.used_bytes + LEDGER_BYTES_MAX {
            return Err(format!("space without an explanation: {statistics:?}"));
        }
        if !self.rotten.is_empty() {
            self.heal()?;
        }
        if self.random.chance(20) {
            self.explorer.check()?;
            self.close()?;
            if self.random.chance(50) {
                self.inspect(true)?;
            }
            self.open()?;
            self.explorer.check()?;
        }
        if self.random.chance(15) {
            self.rot()?;
        }
        self.explorer.history.forget_acknowledged();
        self.deeds.days += 1;
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), String> {
        self.count_collected();
        self.explorer.close().map_err(|error| format!("a clean close: {error}"))
    }

    pub(super) fn open(&mut self) -> Result<(), String> {
        self.explorer.open().map_err(|error| format!("opened after a clean close: {error}"))
    }
}

/// What is done today: a mixture, or mostly one thing.
fn work(random: &mut Random) -> Weights {
    let mut weights = Weights { reopen: 0, far_percent: 1, datasets_max: 8, ..Weights::default() };
    weights.write_bytes_max = [2 << 10, 16 << 10, 64 << 10, 256 << 10][random.index(4)];
    weights.offset_max = [16 << 10, 128 << 10, 512 << 10][random.index(3)];
    weights.sync = [1, 6, 20][random.index(3)];
    match random.below(8) {
        // A database: few files, written over and over.
        0 | 1 => {
            weights.write = 150;
            weights.create = 3;
            weights.group = 40;
        }
        // Administration.
        2 => {
            weights.snapshot = 30;
            weights.clone = 15;
            weights.rollback = 15;
            weights.promote = 15;
            weights.rename = 10;
            weights.destroy_snapshot = 20;
            weights.destroy_dataset = 6;
            weights.hold = 10;
        }
        // Many small files.
        3 => {
            weights.create = 60;
            weights.remove = 20;
            weights.rename_file = 20;
            weights.attributes = 20;
            weights.link = 10;
            weights.write_bytes_max = 4 << 10;
        }
        // A snapshot after every few writes.
        4 => weights.snapshot = 40,
        // Space comes and goes.
        5 => {
            weights.write = 80;
            weights.write_bytes_max = 256 << 10;
            weights.truncate = 20;
            weights.punch = 30;
            weights.collect = 8;
        }
        _ => {}
    }
    weights
}

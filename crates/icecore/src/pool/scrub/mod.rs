//! Scrub: reads and verifies everything that any version reaches, and everything that vouches for it.

mod damage;
mod frames;
mod pace;
mod position;
mod seen;
mod seers;
#[cfg(test)]
mod stretch_tests;
#[cfg(test)]
mod tests;

pub(crate) use damage::{Damage, DamageList, Place};
pub(crate) use seen::{name, shown};

use super::Pool;
use crate::copies::{CopiesReport, MendCounts, Mended, MendsSince};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::require_readable;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, Stream, Timestamp};
use pace::{Load, Pace};
pub use position::Position;
use seen::{FINDINGS_MAX, one};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Blocks verified between two reports.
const PIECE_BLOCKS: u64 = 256;
/// How often the position is kept.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
/// The longest that progress is not reported while a scrub pauses.
const NAP: Duration = Duration::from_millis(100);

/// How a scrub goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubOptions {
    /// Most bytes read in a second; no limit unless said.
    pub bytes_per_second: Option<u64>,
    /// Whether to pause while others use the pool, the longer the more a scrub slows them down.
    pub yields: bool,
    /// Whether to go on where a scrub was cut off, and to keep the position in the pool's folder.
    pub keeps_position: bool,
    /// Whether to begin anew although one was cut off.
    pub restarts: bool,
    /// Whether to report also what opening the pool has mended: for a caller that opened it for this scrub.
    /// The owner of a pool that another process asks for a scrub reported it when it opened the pool.
    #[serde(skip)]
    pub tells_opening: bool,
}

/// How far a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubProgress {
    /// Bytes verified.
    pub done: u64,
    /// Bytes to verify.
    pub total: u64,
    /// Damaged blocks so far.
    pub damaged: u64,
}

/// Damage that a scrub found: one place, or blocks that are neighbours in a file, damaged in the same way and
/// seen by the same versions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Finding {
    /// Where the first block of it lies on disk, and what does not fit.
    pub damage: String,
    /// Blocks or places that it stands for: one at least.
    pub blocks: u64,
    /// Versions that see it, by full name: by dataset, the present first, then snapshots as they were taken.
    /// More than 16 snapshots each of which follows on the one before are one entry, `DATASET@FIRST%LAST`, as
    /// [`Pool::destroy`] has it. A thousand entries at most.
    pub versions: Vec<String>,
    /// How many versions see it.
    pub version_count: u64,
    /// Inode of the file that it belongs to, and offset of its first byte there; none when it is in a tree
    /// node.
    pub file: Option<(u64, u64)>,
    /// Bytes of that file from the offset on: whole blocks, which may reach beyond its end. 0 without a file.
    pub length: u64,
    /// Path of that file in the first of the versions.
    pub path: Option<Vec<u8>>,
    /// For tree nodes: what cannot be found without them.
    pub hides: Option<String>,
    /// Nothing is lost: what was there is on disk a second time, follows from something else, or was written
    /// anew.
    pub spare: bool,
}

impl Finding {
    /// One place.
    fn new(damage: String, spare: bool) -> Self {
        Self { damage, blocks: 1, spare, ..Self::default() }
    }

    /// Where the first block lies on disk, what does not fit, and how many are damaged beside it.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self.blocks {
            0 | 1 => self.damage.clone(),
            2 => format!("{}, and 1 block more", self.damage),
            blocks => format!("{}, and {} blocks more", self.damage, blocks - 1),
        }
    }
}

/// What a scrub found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Bytes verified.
    pub verified: u64,
    /// Damaged blocks: something of them is lost.
    pub damaged: u64,
    /// Places that are damaged and of which nothing is lost.
    pub spare: u64,
    /// Where: the first thousand, those first of which something is lost.
    pub findings: Vec<Finding>,
    /// Whether it went to the end.
    pub complete: bool,
    /// When it was begun, if it went on with one that was cut off.
    pub resumed: Option<Timestamp>,
}

impl ScrubReport {
    /// Damaged blocks and places that no finding stands for.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        let listed = self.findings.iter().map(|finding| finding.blocks).sum();
        (self.damaged + self.spare).saturating_sub(listed)
    }
}

struct Scrub<'a> {
    engine: &'a Engine,
    progress: &'a mut dyn FnMut(ScrubProgress) -> bool,
    now: ScrubProgress,
    report: ScrubReport,
    /// Damaged blocks.
    damage: DamageList,
    /// What is damaged and vouches for blocks, each with one that depends on it.
    flaws: Vec<(Run, Finding)>,
    /// Not all damaged blocks could be remembered: a scrub that resumes this one begins where that began.
    is_full: bool,
    pace: Pace,
    position: Position,
    /// Where the position is kept.
    folder: Option<PathBuf>,
    kept: Instant,
    /// Everything that was written before the scrub began is on disk.
    is_settled: bool,
    /// The clock of segments taken when the scrub began.
    takes: u64,
}

/// Notes for everybody that a scrub goes on, until it is dropped.
struct Going<'a>(&'a Engine);

impl<'a> Going<'a> {
    fn begin(engine: &'a Engine) -> Result<Self> {
        let mut scrubbing = engine.scrubbing.lock();
        if scrubbing.is_some() {
            return Err(Error::Busy {
                what: format!("pool {}", engine.storage.describe()),
                blockers: "a scrub goes on already, and `icecore status` shows how far it is".to_owned(),
            });
        }
        *scrubbing = Some(ScrubProgress::default());
        Ok(Self(engine))
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        *self.0.scrubbing.lock() = None;
    }
}

impl Pool {
    /// [`Pool::scrub_with`] as fast as it can, from the beginning.
    ///
    /// # Errors
    /// As there.
    pub fn scrub(&self, progress: &mut dyn FnMut(ScrubProgress) -> bool) -> Result<ScrubReport> {
        self.scrub_with(&ScrubOptions::default(), progress)
    }

    /// Reads and verifies every block and node that any version reaches, record headers, checksum tables,
    /// segment headers, the ledger and both superblocks, past the caches, and what there are second copies of
    /// twice. `progress` is called now and then and ends the scrub by answering `false`. What has a copy that
    /// is whole is written again, and so is a copy; copies that are missing are made. Other damage to data
    /// and nodes is reported, not mended. A checkpoint writes damaged superblocks and a damaged ledger anew.
    /// All of it is reported.
    ///
    /// # Errors
    /// Only what is not damage: a closed pool, a scrub that goes on already, a medium that is gone.
    pub fn scrub_with(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn FnMut(ScrubProgress) -> bool,
    ) -> Result<ScrubReport> {
        scrub(self.engine(), options, true, progress)
    }

    /// A scrub of what is open to be looked at: nothing is written before, nor anew.
    pub(crate) fn scrub_as_it_is(
        engine: &Engine,
        progress: &mut dyn FnMut(ScrubProgress) -> bool,
    ) -> Result<ScrubReport> {
        scrub(engine, &ScrubOptions::default(), false, progress)
    }
}

/// `settles`: whether to make a checkpoint first.
fn scrub(
    engine: &Engine,
    options: &ScrubOptions,
    settles: bool,
    progress: &mut dyn FnMut(ScrubProgress) -> bool,
) -> Result<ScrubReport> {
    engine.check_open()?;
    let _going = Going::begin(engine)?;
    require_readable(&*engine.storage)?;
    let copies = engine.blocks.files().copies();
    let begun = copies.mends();
    let mended_before = options.tells_opening.then(|| copies.mends_since(MendCounts::default()));
    let is_writable = settles && engine.check_writable().is_ok();
    // Whatever comes next may write them.
    let twins = engine.inspect_superblocks();
    // What lacks its copy gets one first, so that nothing is compared that is not there.
    let lacking = if is_writable { engine.restore_copies() } else { Ok(copies.report()) };
    let ledger = engine.inspect_ledger();
    let [chunks, sets] = engine.inspect_chunks();
    // What was written so far has to be on disk, trees included. The checkpoint writes anew what of it is
    // damaged.
    if is_writable {
        engine.run_checkpoint()?;
    }
    let (runs, tail, takes, _pin) = {
        let mut state = engine.state();
        let pin = engine.pin(&state).named("the whole pool, by a scrub,".into(), engine.now());
        // Others go on writing: what they have begun to build counts as a record of its own.
        state.tail.seal();
        (live_runs(&state), state.tail.position(), state.segments.takes(), pin)
    };
    // What was appended since the checkpoint has to be on disk too before it is read from there.
    if is_writable {
        engine.sync()?;
    }
    let mut scrub = Scrub::new(engine, options, progress);
    scrub.takes = takes;
    scrub.is_settled = is_writable || !settles || engine.options.read_only;
    scrub.now.total = runs.iter().map(|run| run.length.bytes().0).sum();
    let [twin, anew] = if is_writable {
        ["both superblocks were written anew", "it was written anew from memory"]
    } else {
        ["its twin is whole", "the pool may not be opened again"]
    };
    let has_corrupt_twin = !twins.is_empty();
    scrub.mended(twins, twin, true);
    scrub.mended(ledger, anew, is_writable);
    scrub.mended(sets, "a repair makes the sets again", false);
    scrub.mended(chunks, "where blocks lie that it has the places of is lost", false);
    scrub.lacking(lacking);
    scrub.report.complete = scrub.everything(runs, tail)?;
    let mut mended = copies.mends_since(begun);
    if has_corrupt_twin {
        // Twins that were damaged when it began are reported already.
        mended = mended.without(Mended::Twin);
    }
    let mended: Vec<_> = mended_before.into_iter().chain([mended]).filter(|some| !some.is_empty()).collect();
    if is_writable && !mended.is_empty() {
        // What is said to be healed, or written anew, is durable.
        engine.run_checkpoint()?;
    }
    mended.into_iter().for_each(|some| scrub.copies_mended(some, settles));
    Ok(scrub.finish())
}

fn live_runs(state: &crate::state::State) -> Vec<Run> {
    // A part of a set that cannot be read was reported before.
    Stream::ALL.iter().flat_map(|stream| state.history.live_runs(*stream).filter_map(Result::ok)).collect()
}

impl<'a> Scrub<'a> {
    fn new(
        engine: &'a Engine,
        options: &ScrubOptions,
        progress: &'a mut dyn FnMut(ScrubProgress) -> bool,
    ) -> Self {
        let folder = engine.storage.directory().filter(|_| options.keeps_position);
        let former = folder
            .as_ref()
            .filter(|_| !options.restarts)
            .and_then(|folder| Position::load(folder, engine.pool));
        let resumed = former.as_ref().map(|position| position.began);
        let fresh = || Position {
            pool: engine.pool,
            began: Timestamp::now(),
            next: (Stream::Data, LogAddress(0)),
            verified: 0,
            damaged: Vec::new(),
        };
        Self {
            engine,
            progress,
            now: ScrubProgress::default(),
            report: ScrubReport { resumed, ..ScrubReport::default() },
            damage: DamageList::default(),
            flaws: Vec::new(),
            is_full: false,
            pace: Pace::new(options.bytes_per_second, options.yields, Load::of(&engine.counters)),
            position: former.unwrap_or_else(fresh),
            folder,
            kept: Instant::now(),
            is_settled: false,
            takes: 0,
        }
    }

    /// Notes damage to what holds the pool together, and what came of it.
    fn mended(&mut self, errors: Vec<Error>, outcome: &str, spare: bool) {
        for error in errors {
            self.note(None, Finding::new(format!("{error}; {outcome}"), spare));
        }
    }

    /// Notes that something has no copy that should have one.
    fn lacking(&mut self, outcome: Result<CopiesReport>) {
        let why = match outcome {
            Ok(report) if report.is_whole() => return,
            Ok(report) => report.why.unwrap_or_else(|| "some are missing".to_owned()),
            Err(error) => error.to_string(),
        };
        let damage = format!("not everything has its second copy: {why}");
        self.note(None, Finding::new(damage, true));
    }

    /// Notes what the scrub or a reader of that place mended meanwhile. `written`: on disk as well.
    fn copies_mended(&mut self, mends: MendsSince, written: bool) {
        self.report.spare += mends.unlisted();
        for mend in mends.listed {
            let outcome = match (mend.of, written && !self.engine.options.read_only) {
                // They say so themselves.
                (Mended::Twin | Mended::Header, _) => "",
                (Mended::Copy, true) => "; it was written anew",
                (Mended::Copy, false) => "; what it is a copy of is whole",
                (Mended::Original, true) => "; it was healed from its copy",
                (Mended::Original, false) => "; its copy is whole",
            };
            let damage = format!("{}{outcome}", mend.what);
            self.note(None, Finding::new(damage, true));
        }
    }

    /// `false` when the caller has had enough.
    fn everything(&mut self, runs: Vec<Run>, tail: crate::log::tail::Position) -> Result<bool> {
        if !self.frames(tail)? {
            return Ok(false);
        }
        let next = self.position.next;
        // What a scrub that was cut off had found: it may be gone by now.
        for former in std::mem::take(&mut self.position.damaged) {
            for run in runs.iter().filter(|run| run.stream == former.stream && (run.stream, run.start) < next)
            {
                let start = run.start.max(former.start);
                let limit = if run.stream == next.0 { next.1 } else { run.end() };
                let end = run.end().min(former.end()).min(limit);
                self.again(Run { start, length: BlockCount(end.0.saturating_sub(start.0)), ..former })?;
            }
        }
        self.now.done += self.position.verified;
        for run in runs.into_iter().filter(|run| (run.stream, run.end()) > next) {
            let skipped = if run.stream == next.0 { next.1.0.saturating_sub(run.start.0) } else { 0 };
            let start = run.start.plus(BlockCount(skipped));
            if !self.run(Run { start, length: BlockCount(run.length.0 - skipped), ..run })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Verifies blocks that an earlier scrub has counted.
    fn again(&mut self, run: Run) -> Result<()> {
        let mut done = 0;
        while done < run.length.0 {
            let count = PIECE_BLOCKS.min(run.length.0 - done);
            self.piece(Run { start: run.start.plus(BlockCount(done)), length: BlockCount(count), ..run })?;
            done += count;
        }
        Ok(())
    }

    /// Verifies one run of live blocks; `false` when the caller has had enough.
    fn run(&mut self, run: Run) -> Result<bool> {
        let mut done = 0;
        while done < run.length.0 {
            let count = PIECE_BLOCKS.min(run.length.0 - done);
            let piece = Run { start: run.start.plus(BlockCount(done)), length: BlockCount(count), ..run };
            let began = Instant::now();
            self.piece(piece)?;
            done += count;
            let bytes = count * BLOCK_BYTES as u64;
            self.now.done += bytes;
            self.position.verified += bytes;
            self.position.next = (run.stream, piece.end());
            if !self.pause(bytes, began.elapsed()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports progress, keeps the position, and waits for others; `false` when the caller has had enough.
    fn pause(&mut self, bytes: u64, took: Duration) -> bool {
        if self.kept.elapsed() > KEEP_INTERVAL {
            self.keep_position();
        }
        let counters = &self.engine.counters;
        let until = Instant::now() + self.pace.after(bytes, took, Load::of(counters));
        loop {
            *self.engine.scrubbing.lock() = Some(self.now);
            if !(self.progress)(self.now) {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(NAP));
        }
        self.pace.paused(Load::of(counters));
        true
    }

    fn keep_position(&mut self) {
        self.kept = Instant::now();
        if let Some(folder) = self.folder.as_ref().filter(|_| !self.is_full) {
            self.position.damaged = self.damage.runs().collect();
            self.position.store(folder);
        }
    }

    fn finish(mut self) -> ScrubReport {
        if !self.report.complete {
            self.keep_position();
        } else if let Some(folder) = &self.folder {
            Position::forget(folder);
        }
        let blocks = seen::name(self.engine, &self.damage.into_sorted());
        let flaws = seen::name_one_by_one(self.engine, self.flaws);
        let all = std::mem::take(&mut self.report.findings).into_iter();
        let all = all.chain(blocks.into_iter().map(|named| named.finding)).chain(flaws);
        let (spare, lost): (Vec<Finding>, Vec<Finding>) = all.partition(|finding| finding.spare);
        self.report.findings = lost.into_iter().chain(spare).take(FINDINGS_MAX).collect();
        self.report.verified = self.now.done;
        self.report
    }

    fn piece(&mut self, piece: Run) -> Result<()> {
        if self.verify(piece).is_ok() {
            return Ok(());
        }
        // Block by block, to say which.
        for index in 0..piece.length.0 {
            let block = one(piece.stream, piece.start.plus(BlockCount(index)));
            match self.verify(block) {
                Ok(()) => {}
                Err(error @ (Error::Damaged { .. } | Error::Io { .. })) => {
                    self.add_damage(block, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add_damage(&mut self, block: Run, error: &Error) {
        if !self.is_full && !self.damage.add(Damage::of(self.engine, block, error)) {
            self.keep_position();
            self.is_full = true;
        }
        self.report.damaged += 1;
        self.now.damaged += 1;
    }

    /// Notes what is no block of a version; `block`: one that depends on it.
    fn note(&mut self, block: Option<Run>, finding: Finding) {
        if finding.spare {
            self.report.spare += 1;
        } else {
            self.report.damaged += 1;
            self.now.damaged += 1;
        }
        let of_sort = |other: &&Finding| other.spare == finding.spare;
        match block {
            Some(block) if self.flaws.len() < FINDINGS_MAX => self.flaws.push((block, finding)),
            None if self.report.findings.iter().filter(of_sort).count() < FINDINGS_MAX => {
                self.report.findings.push(finding);
            }
            _ => {}
        }
    }

    fn verify(&self, piece: Run) -> Result<()> {
        let engine = self.engine;
        engine.check_open()?;
        if piece.stream == Stream::Node {
            for index in 0..piece.length.0 {
                let address = piece.start.plus(BlockCount(index));
                // Born since the checkpoint: it is in memory, and on disk with the next one.
                if engine.blocks.locate(Stream::Node, address).is_ok() {
                    engine.nodes.read_both(address)?;
                }
            }
            return Ok(());
        }
        let mut index = 0;
        while index < piece.length.0 {
            let address = piece.start.plus(BlockCount(index));
            if piece.stream == Stream::Merged && engine.blocks.pending().get(address).is_some() {
                engine.blocks.pending().check(address)?;
                index += 1;
                continue;
            }
            let rest = Run { start: address, length: BlockCount(piece.length.0 - index), ..piece };
            index += engine.blocks.while_there(rest, |segment, slot, count, doubts| {
                let mut buffer = vec![0; count.0 as usize * BLOCK_BYTES];
                engine.blocks.read_both(segment, slot, &mut buffer, doubts)?;
                engine.counters.disk_read_bytes_scrub.add(buffer.len() as u64);
                Ok(count.0)
            })?;
        }
        Ok(())
    }
}

//! Scrub: reads and verifies everything that any version reaches, and everything that vouches for it.

mod frames;
mod pace;
mod position;
mod seen;
#[cfg(test)]
mod tests;

pub(crate) use seen::describe as describe_keys;

use super::Pool;
use crate::copies::{CopiesReport, Mend};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::state::State;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, Stream, Timestamp};
use pace::{Load, Pace};
use position::Position;
use seen::{Versions, one};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Blocks verified between two reports.
const PIECE_BLOCKS: u64 = 256;
/// Places of damage that are reported one by one.
const FINDINGS_MAX: usize = 1000;
/// How often the position is kept.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
/// The longest that nobody is told of progress while a scrub pauses.
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

/// Damage that a scrub found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Finding {
    /// Where it lies on disk, and what does not fit.
    pub damage: String,
    /// Versions that see it, by full name.
    pub versions: Vec<String>,
    /// Inode of the file it belongs to, and offset in it; none when it is in a tree node.
    pub file: Option<(u64, u64)>,
    /// Path of that file in the first of the versions.
    pub path: Option<Vec<u8>>,
    /// For a tree node: what cannot be found without it.
    pub hides: Option<String>,
    /// Nothing is lost: what was there is on disk a second time, follows from something else, or was written anew.
    pub spare: bool,
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
    /// Where, for the first thousand.
    pub findings: Vec<Finding>,
    /// Whether it went to the end.
    pub complete: bool,
    /// When it was begun, if it went on with one that was cut off.
    pub resumed: Option<Timestamp>,
}

struct Scrub<'a> {
    engine: &'a Engine,
    progress: &'a mut dyn FnMut(ScrubProgress) -> bool,
    now: ScrubProgress,
    report: ScrubReport,
    versions: Versions,
    /// Damaged blocks, each with what is known of it so far.
    found: Vec<(Run, Finding)>,
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

    /// Reads and verifies every block and node that any version reaches, record headers, checksum tables, segment
    /// headers, the ledger and both superblocks, past the caches, and what there are second copies of twice.
    /// `progress` is called now and then and ends the scrub by answering `false`. What has a copy that is whole is written
    /// again, and so is a copy; copies that are missing are made. Other damage to data and nodes is reported, not
    /// mended. Superblocks and a ledger that are hurt are written anew by a checkpoint. All of it is reported.
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
    let copies = engine.blocks.files().copies();
    let mends = copies.mends();
    let is_writable = settles && engine.check_writable().is_ok();
    // What lacks its copy gets one first, so that nothing is compared that is not there.
    let lacking = if is_writable { engine.restore_copies() } else { Ok(copies.report()) };
    let twins = engine.inspect_superblocks();
    let ledger = engine.inspect_ledger();
    let chunks = engine.inspect_chunks();
    let sets = engine.inspect_sets();
    // What was written so far has to be on disk, trees included; and what of that is hurt is written anew.
    if is_writable {
        engine.run_checkpoint()?;
    }
    let (versions, runs, tail, takes, _pin) = {
        let mut state = engine.state();
        let pin = engine.pin(&state);
        // Others go on writing: what they have begun to build counts as a record of its own.
        state.tail.seal();
        (versions(&state), live_runs(&state), state.tail.position(), state.segments.takes(), pin)
    };
    // What was appended since the checkpoint has to be on disk too before it is read from there.
    if is_writable {
        engine.sync()?;
    }
    let mut scrub = Scrub::new(engine, options, progress, versions);
    scrub.takes = takes;
    scrub.is_settled = is_writable || !settles || engine.options.read_only;
    scrub.now.total = runs.iter().map(|run| run.length.bytes().0).sum();
    let [twin, anew] = if is_writable {
        ["both superblocks were written anew", "it was written anew from memory"]
    } else {
        ["its twin is whole", "the pool may not be opened again"]
    };
    scrub.mended(twins, twin, true);
    scrub.mended(ledger, anew, is_writable);
    scrub.mended(sets, "a repair makes the sets again", false);
    scrub.mended(chunks, "where blocks lie that it has the places of is lost", false);
    scrub.lacking(lacking);
    scrub.report.complete = scrub.everything(runs, tail)?;
    scrub.copies_mended(copies.mends_since(mends), settles);
    Ok(scrub.finish())
}

fn versions(state: &State) -> Versions {
    let named = |(version, tree): (&crate::units::VersionId, &crate::tree::Tree)| {
        (*version, state.catalogue.full_name(*version), tree.clone())
    };
    state.trees.iter().map(named).collect()
}

fn live_runs(state: &State) -> Vec<Run> {
    // A part of a set that cannot be read was told before.
    Stream::ALL.iter().flat_map(|stream| state.history.live_runs(*stream).filter_map(Result::ok)).collect()
}

impl<'a> Scrub<'a> {
    fn new(
        engine: &'a Engine,
        options: &ScrubOptions,
        progress: &'a mut dyn FnMut(ScrubProgress) -> bool,
        versions: Versions,
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
            versions,
            found: Vec::new(),
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
            let damage = format!("{error}; {outcome}");
            self.note(None, Finding { damage, spare, ..Finding::default() });
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
        self.note(None, Finding { damage, spare: true, ..Finding::default() });
    }

    /// Notes what was mended meanwhile, by the scrub or by whoever read there. `written`: on disk as well.
    fn copies_mended(&mut self, mends: Vec<Mend>, written: bool) {
        for Mend { what, of_copy } in mends {
            let outcome = match (of_copy, written && !self.engine.options.read_only) {
                (true, true) => "it was written anew",
                (true, false) => "what it is a copy of is whole",
                (false, true) => "it was healed from its copy",
                (false, false) => "its copy is whole",
            };
            let damage = format!("{what}; {outcome}");
            self.note(None, Finding { damage, spare: true, ..Finding::default() });
        }
    }

    /// `false` when the caller has had enough.
    fn everything(&mut self, runs: Vec<Run>, tail: crate::log::tail::Position) -> Result<bool> {
        if !self.frames(tail)? {
            return Ok(false);
        }
        // What a scrub that was cut off had found: it may be gone by now.
        for (stream, address) in std::mem::take(&mut self.position.damaged) {
            if runs.iter().any(|run| run.stream == stream && run.start <= address && address < run.end()) {
                self.piece(one(stream, address))?;
            }
        }
        self.now.done += self.position.verified;
        let next = self.position.next;
        for run in runs.into_iter().filter(|run| (run.stream, run.end()) > next) {
            let skipped = if run.stream == next.0 { next.1.0.saturating_sub(run.start.0) } else { 0 };
            let start = run.start.plus(BlockCount(skipped));
            if !self.run(Run { start, length: BlockCount(run.length.0 - skipped), ..run })? {
                return Ok(false);
            }
        }
        Ok(true)
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

    /// Tells of progress, keeps the position, and waits for others; `false` when the caller has had enough.
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
        if let Some(folder) = &self.folder {
            let places = self.found.iter().map(|(block, _)| (block.stream, block.start));
            self.position.damaged = places.collect();
            self.position.store(folder);
        }
    }

    fn finish(mut self) -> ScrubReport {
        if !self.report.complete {
            self.keep_position();
        } else if let Some(folder) = &self.folder {
            Position::forget(folder);
        }
        seen::complete(self.engine, &self.versions, &mut self.found);
        self.report.findings.extend(self.found.into_iter().map(|(_, finding)| finding));
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
                    let finding = Finding { damage: error.to_string(), ..Finding::default() };
                    self.note(Some(block), finding);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note(&mut self, block: Option<Run>, finding: Finding) {
        if finding.spare {
            self.report.spare += 1;
        } else {
            self.report.damaged += 1;
            self.now.damaged += 1;
        }
        if self.report.findings.len() + self.found.len() >= FINDINGS_MAX {
            return;
        }
        match block {
            Some(block) => self.found.push((block, finding)),
            None => self.report.findings.push(finding),
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
            if piece.stream == Stream::Merged && engine.blocks.pending(address).is_some() {
                index += 1;
                continue;
            }
            let rest = Run { start: address, length: BlockCount(piece.length.0 - index), ..piece };
            index += engine.blocks.while_there(rest, |segment, slot, count, doubts| {
                let mut buffer = vec![0; count.0 as usize * BLOCK_BYTES];
                engine.blocks.read_both(segment, slot, &mut buffer, doubts)?;
                engine.counters.read_bytes_scrub.add(buffer.len() as u64);
                Ok(count.0)
            })?;
        }
        Ok(())
    }
}

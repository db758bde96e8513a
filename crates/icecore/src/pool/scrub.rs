//! Scrub: reads and verifies everything that any version reaches.

use super::Pool;
use crate::error::{Error, Result};
use crate::namespace::data_runs;
use crate::state::State;
use crate::tree::Tree;
use crate::units::{BLOCK_BYTES, BlockCount, InodeNumber, Run, Stream, VersionId};
use serde::{Deserialize, Serialize};

/// Blocks verified between two reports.
const PIECE_BLOCKS: u64 = 256;
/// Places of damage that are reported one by one.
const FINDINGS_MAX: usize = 1000;

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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Where it lies on disk, and what does not fit.
    pub damage: String,
    /// Versions that see it, by full name.
    pub versions: Vec<String>,
    /// Inode of the file it belongs to, and offset in it; none when it is in a tree node.
    pub file: Option<(u64, u64)>,
}

/// What a scrub found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Bytes verified.
    pub verified: u64,
    /// Damaged blocks.
    pub damaged: u64,
    /// Where, for the first thousand.
    pub findings: Vec<Finding>,
    /// Whether it went to the end.
    pub complete: bool,
}

struct Scrub<'a> {
    pool: &'a Pool,
    progress: ScrubProgress,
    report: ScrubReport,
    trees: Vec<(VersionId, String, Tree)>,
}

impl Pool {
    /// Reads and verifies every block and node that any version reaches, past the caches. `progress` is called
    /// now and then and ends the scrub by answering `false`. Damage is reported, not mended.
    ///
    /// # Errors
    /// Only what is not damage: a closed pool, a medium that is gone.
    pub fn scrub(&self, progress: &mut dyn FnMut(ScrubProgress) -> bool) -> Result<ScrubReport> {
        let engine = self.engine();
        engine.check_open()?;
        // What was written so far has to be on disk, trees included.
        if engine.check_writable().is_ok() {
            engine.run_checkpoint()?;
        }
        let (trees, runs, _pin) = {
            let state = engine.state();
            let pin = engine.pin(&state);
            (versions(&state), live_runs(&state), pin)
        };
        // What was appended since the checkpoint has to be on disk too before it is read from there.
        if engine.check_writable().is_ok() {
            engine.sync()?;
        }
        let total = runs.iter().map(|run| run.length.bytes().0).sum();
        let mut scrub = Scrub {
            pool: self,
            progress: ScrubProgress { total, ..ScrubProgress::default() },
            report: ScrubReport::default(),
            trees,
        };
        scrub.report.complete = true;
        for run in runs {
            if !scrub.run(run, progress)? {
                scrub.report.complete = false;
                break;
            }
        }
        scrub.report.verified = scrub.progress.done;
        Ok(scrub.report)
    }
}

fn versions(state: &State) -> Vec<(VersionId, String, Tree)> {
    let named =
        |(version, tree): (&VersionId, &Tree)| (*version, state.catalogue.full_name(*version), tree.clone());
    state.trees.iter().map(named).collect()
}

fn live_runs(state: &State) -> Vec<Run> {
    Stream::ALL.iter().flat_map(|stream| state.history.live_runs(*stream)).collect()
}

impl Scrub<'_> {
    /// Verifies one run of live blocks; `false` when the caller has had enough.
    fn run(&mut self, run: Run, progress: &mut dyn FnMut(ScrubProgress) -> bool) -> Result<bool> {
        let mut done = 0;
        while done < run.length.0 {
            let count = PIECE_BLOCKS.min(run.length.0 - done);
            let piece = Run { start: run.start.plus(BlockCount(done)), length: BlockCount(count), ..run };
            self.piece(piece)?;
            done += count;
            self.progress.done += count * BLOCK_BYTES as u64;
            if !progress(self.progress) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn piece(&mut self, piece: Run) -> Result<()> {
        if self.verify(piece).is_ok() {
            return Ok(());
        }
        // Block by block, to say which.
        for index in 0..piece.length.0 {
            let one = Run { start: piece.start.plus(BlockCount(index)), length: BlockCount(1), ..piece };
            match self.verify(one) {
                Ok(()) => {}
                Err(error @ (Error::Damaged { .. } | Error::Io { .. })) => self.found(one, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn verify(&self, piece: Run) -> Result<()> {
        let engine = self.pool.engine();
        engine.check_open()?;
        if piece.stream == Stream::Node {
            for index in 0..piece.length.0 {
                let address = piece.start.plus(BlockCount(index));
                // Born since the checkpoint: it is in memory, and on disk with the next one.
                if engine.blocks.locate(Stream::Node, address).is_ok() {
                    engine.nodes.read(address)?;
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
            index += engine.blocks.while_there(rest, |segment, slot, count| {
                let mut buffer = vec![0; count.0 as usize * BLOCK_BYTES];
                engine.blocks.read_verified(segment, slot, &mut buffer)?;
                engine.counters.read_bytes_scrub.add(buffer.len() as u64);
                Ok(count.0)
            })?;
        }
        Ok(())
    }

    /// Notes damage, and finds out who sees it.
    fn found(&mut self, block: Run, error: &Error) {
        self.progress.damaged += 1;
        self.report.damaged += 1;
        if self.report.findings.len() >= FINDINGS_MAX {
            return;
        }
        let engine = self.pool.engine();
        let mut versions = Vec::new();
        let mut file = None;
        let state = engine.state();
        let seen_by: Vec<&(VersionId, String, Tree)> = self
            .trees
            .iter()
            .filter(|(version, ..)| {
                state.history.reaches(*version, block.stream, block.start).unwrap_or(false)
            })
            .collect();
        drop(state);
        for (_, name, tree) in seen_by {
            versions.push(name.clone());
            if file.is_none() && block.stream != Stream::Node {
                let mut find = |inode: InodeNumber, first: crate::units::FileBlock, run: Run| {
                    if run.stream == block.stream && run.start <= block.start && block.start < run.end() {
                        let offset = first.offset() + (block.start.0 - run.start.0) * BLOCK_BYTES as u64;
                        file = Some((inode.0, offset));
                    }
                    Ok(())
                };
                // A damaged node on the way only means that the file is not named.
                let _ = data_runs(tree, &*engine.nodes, &mut find);
            }
        }
        self.report.findings.push(Finding { damage: error.to_string(), versions, file });
    }
}

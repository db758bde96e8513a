//! Bits that flip on the medium, where there is a second one of what they were: nothing may be lost by it.

use super::Life;
use crate::{Random, SimulatedDisk};
use icecore::CopyMode;

const BLOCK: usize = 4096;
/// Pairs of a segment and its copy that are damaged at a time.
const PAIRS_MAX: u64 = 3;
/// Blocks of a pair.
const BLOCKS_MAX: u64 = 12;
/// What a file of a segment begins with, and where it says what it is used for.
const MAGIC: &[u8] = b"ICESEGM\n";
const KIND_AT: usize = 12;
/// Uses of a segment: the log, runs outside of it, nodes, the ledger.
const KINDS: [u8; 4] = [1, 2, 3, LEDGER];
const LEDGER: u8 = 4;

impl Life {
    /// Copies as they are in the evening may be damaged, or what they are of: while the pool is closed, or in
    /// use. It is healed at once, or a day later.
    pub(super) fn rot(&mut self) -> Result<(), String> {
        if self.random.chance(50) {
            // Whatever was given up is made again.
            self.scrub_all()?;
        }
        // With threads, what is being written at this moment has one durable copy.
        let closed = self.setting.options.background || self.random.chance(50);
        let counts = !self.explorer.pool().copies().behind;
        let mode = if counts { self.setting.copies } else { CopyMode::None };
        if closed {
            self.close()?;
            self.damage_pairs(mode, &KINDS);
            if self.random.chance(20) {
                self.damage_superblock();
            }
            if self.random.chance(30) {
                self.inspect(true)?;
            }
            self.open()?;
        } else {
            // What the log got since the checkpoint has one durable copy, and if that is damaged, a crash
            // takes it.
            self.damage_pairs(mode, &KINDS[1..]);
        }
        if self.random.chance(50) { self.heal() } else { Ok(()) }
    }

    /// Everything is read, and what is damaged is healed: nothing is lost, and nothing is left to be healed.
    pub(super) fn heal(&mut self) -> Result<(), String> {
        if self.random.chance(50) {
            self.explorer.check()?;
        }
        self.scrub_all()?;
        // A segment in which nothing lived is none of its business, and may have something by the time of the
        // next.
        self.scrub_all()?;
        let again = self.scrub_all()?;
        let is_mended = |text: &str| ["healed", "written anew"].iter().any(|word| text.contains(word));
        if let Some(finding) = again.findings.iter().find(|finding| is_mended(&finding.damage)) {
            return Err(format!("a scrub has not healed everything: {finding:?}"));
        }
        self.rotten.clear();
        self.explorer.check()
    }

    /// Damages blocks of segments or of their copies, never both: what differs was damaged before, or is not
    /// a copy.
    fn damage_pairs(&mut self, mode: CopyMode, kinds: &[u8]) {
        let covered: &[u8] = match mode {
            CopyMode::None => return,
            CopyMode::Metadata => &KINDS[2..],
            CopyMode::All => &KINDS,
        };
        let first = self.explorer.disk.clone();
        let second = first.mirror().unwrap_or_else(|| first.clone());
        let names = second.files().into_iter().map(|(name, _)| name);
        let mut copies: Vec<String> = names.filter(|name| name.starts_with("copy.")).collect();
        for _ in 0..self.random.between(1, PAIRS_MAX) {
            if copies.is_empty() {
                return;
            }
            let copy = copies.swap_remove(self.random.index(copies.len()));
            let segment = copy.replace("copy.", "segment.");
            let (Ok(mine), Ok(theirs)) = (first.contents(&segment), second.contents(&copy)) else { continue };
            let kind = mine.get(KIND_AT).copied().unwrap_or_default();
            if !mine.starts_with(MAGIC) || !kinds.contains(&kind) || !covered.contains(&kind) {
                continue;
            }
            let mut places = equal_blocks(&mine, &theirs);
            // Pieces of the ledger are whole or not, however long they are: two damaged ones do not make a
            // whole one.
            let (of_copy, alike) = (self.random.chance(50), kind == LEDGER || self.random.chance(50));
            for _ in 0..self.random.between(1, BLOCKS_MAX) {
                if places.is_empty() {
                    break;
                }
                let place = places.swap_remove(self.random.index(places.len()));
                let of_copy = if alike { of_copy } else { self.random.chance(50) };
                let (disk, name) = if of_copy { (&second, &copy) } else { (&first, &segment) };
                corrupt(disk, name, place, &mut self.random);
                self.deeds.rotten += 1;
                self.rotten.push(format!("{name} at {place}"));
            }
        }
    }

    /// Damages one of the two superblocks.
    fn damage_superblock(&mut self) {
        let name = format!("superblock.{}", self.random.below(2));
        corrupt(&self.explorer.disk, &name, 0, &mut self.random);
        self.deeds.rotten += 1;
        self.rotten.push(name);
    }
}

/// Where two files have the same, and not just zeros.
fn equal_blocks(one: &[u8], other: &[u8]) -> Vec<u64> {
    let pairs = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK)).enumerate();
    let equal = pairs.filter(|(_, (one, other))| one == other && one.iter().any(|byte| *byte != 0));
    equal.map(|(index, _)| (index * BLOCK) as u64).collect()
}

/// Flips a bit of a block, or makes noise of it, or of a sector.
fn corrupt(disk: &SimulatedDisk, name: &str, place: u64, random: &mut Random) {
    let done = match random.below(6) {
        0 => disk.corrupt(name, place..place + BLOCK as u64),
        1 => disk.corrupt(name, place..place + 512),
        _ => disk.flip_bit(name, place + random.below(BLOCK as u64), random.below(8) as u32),
    };
    done.unwrap_or_else(|error| panic!("{name} at {place}: {error}"));
}

//! Which of the unflushed I/Os a crash leaves behind.

use super::SECTOR_BYTES;
use crate::random::Random;

/// How a crash chooses among what was not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CrashMode {
    /// Nothing survives.
    None,
    /// Everything survives.
    All,
    /// What was done up to some moment survives, in all files.
    Prefix,
    /// Some of the writes survive, whole.
    Writes,
    /// Some of the sectors survive.
    Sectors,
    /// Each file in a way of its own.
    Mixed,
}

impl CrashMode {
    /// Every mode.
    pub const ALL_MODES: [Self; 6] =
        [Self::None, Self::All, Self::Prefix, Self::Writes, Self::Sectors, Self::Mixed];
}

/// The choices of one crash. I/Os are known by the order in which they were asked for.
#[derive(Clone)]
pub(super) struct Survival {
    mode: CrashMode,
    /// In mode [`CrashMode::Prefix`] what was asked for before this survives.
    end: u64,
    /// In the modes with luck, how many of a hundred survive.
    percent: u64,
    /// What the next file may choose an end from.
    last: u64,
}

impl Survival {
    /// Draws the choices of a crash after `last` I/Os, `first` being the oldest that was not flushed.
    pub(super) fn draw(mode: Option<CrashMode>, first: u64, last: u64, random: &mut Random) -> Self {
        let mode = mode.unwrap_or_else(|| CrashMode::ALL_MODES[random.index(CrashMode::ALL_MODES.len())]);
        let end = random.between(first.min(last + 1), last + 1);
        // Few, half and most of them: each finds other faults.
        let percent = [10, 50, 50, 90][random.index(4)];
        Self { mode, end, percent, last }
    }

    pub(super) const fn mode(&self) -> CrashMode {
        self.mode
    }

    /// The choices for one file whose oldest unflushed I/O is `first`.
    pub(super) fn of_file(&self, first: u64, random: &mut Random) -> Self {
        if self.mode == CrashMode::Mixed {
            // The last mode is Mixed itself.
            let mode = CrashMode::ALL_MODES[random.index(CrashMode::ALL_MODES.len() - 1)];
            Self::draw(Some(mode), first, self.last, random)
        } else {
            self.clone()
        }
    }

    /// Whether an I/O that takes effect wholly or not at all does.
    pub(super) fn keeps(&self, order: u64, random: &mut Random) -> bool {
        match self.mode {
            CrashMode::None => false,
            CrashMode::All => true,
            CrashMode::Prefix => order < self.end,
            CrashMode::Writes | CrashMode::Sectors | CrashMode::Mixed => random.chance(self.percent),
        }
    }

    /// The parts of a write that survive, as ranges within its bytes.
    pub(super) fn of_write(
        &self,
        order: u64,
        offset: u64,
        length: usize,
        random: &mut Random,
    ) -> Vec<(usize, usize)> {
        if self.mode == CrashMode::Sectors {
            return sectors(offset, length).filter(|_| random.chance(self.percent)).collect();
        }
        if self.keeps(order, random) { vec![(0, length)] } else { Vec::new() }
    }
}

/// What is left of a write that was cut short: nothing, all, the beginning, or any of its sectors.
pub(super) fn tear(offset: u64, length: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let count = sectors(offset, length).count();
    match random.below(6) {
        0 => Vec::new(),
        1 => vec![(0, length)],
        2 | 3 => sectors(offset, length).take(random.index(count + 1)).collect(),
        _ => sectors(offset, length).filter(|_| random.chance(50)).collect(),
    }
}

/// Cuts bytes at the borders of sectors: ranges (start, end) within the bytes.
fn sectors(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let within = ((offset + start as u64) % SECTOR_BYTES as u64) as usize;
        let range = (start, (start + SECTOR_BYTES - within).min(length));
        start = range.1;
        (range.0 < range.1).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_cut_at_sector_borders() {
        assert_eq!(sectors(500, 600).collect::<Vec<_>>(), [(0, 12), (12, 524), (524, 600)]);
        assert_eq!(sectors(512, 512).collect::<Vec<_>>(), [(0, 512)]);
        assert_eq!(sectors(3, 0).count(), 0);
    }
}

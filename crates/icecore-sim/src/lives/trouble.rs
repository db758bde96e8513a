//! What can go wrong on a day, and how a life goes on after it.

use super::Life;
use crate::{CrashMode, FaultKind, Random, SimulatedDisk};
use icecore::Error;

/// Times that a recovery is cut short in a row.
const RECOVERIES_MAX: u32 = 4;
/// An I/O that never comes.
const NEVER: u64 = 1 << 60;

/// What happens today.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    Nothing,
    /// The power fails at the n-th I/O, again and again.
    Crashes(u64),
    /// A call fails, or all from it on.
    Fault(FaultKind, u64, bool),
    /// Others have taken all that was left of the medium.
    OthersFill,
    /// The disk of the second copies, if they have one, is away.
    MirrorAway,
    /// A call of that disk fails, or all from it on.
    MirrorFault(FaultKind, u64, bool),
}

impl Trouble {
    pub(super) fn draw(random: &mut Random) -> Self {
        let kinds = [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace];
        match random.below(12) {
            0..4 => Self::Nothing,
            4..7 => Self::Crashes([20, 200, 1000][random.index(3)]),
            7 | 8 => Self::Fault(kinds[random.index(4)], random.between(1, 300), random.chance(20)),
            9 => Self::OthersFill,
            10 => Self::MirrorAway,
            _ => Self::MirrorFault(kinds[random.index(4)], random.between(1, 100), random.chance(50)),
        }
    }
}

impl Life {
    pub(super) fn begin(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Nothing => {}
            Trouble::Crashes(most) => self.schedule_crash(most),
            Trouble::Fault(kind, number, persistent) => {
                self.explorer.disk.fail_at(number, kind, persistent);
            }
            Trouble::OthersFill => self.explorer.disk.set_capacity(0),
            Trouble::MirrorAway => self.explorer.disk.mirror().iter().for_each(SimulatedDisk::disappear),
            Trouble::MirrorFault(kind, number, persistent) => {
                let mirror = self.explorer.disk.mirror();
                mirror.iter().for_each(|mirror| mirror.fail_at(number, kind, persistent));
            }
        }
    }

    fn schedule_crash(&mut self, most: u64) {
        let number = self.random.between(1, most);
        self.explorer.disk.crash_at(number);
    }

    /// From now on everything works.
    pub(super) fn end_trouble(&mut self) -> Result<(), String> {
        let disk = &self.explorer.disk;
        disk.clear_faults();
        self.deeds.faults = disk.faults_struck();
        disk.crash_at(NEVER);
        disk.set_capacity(self.setting.disk.capacity);
        if let Some(mirror) = disk.mirror() {
            mirror.clear_faults();
            mirror.reappear();
        }
        if disk.is_cut() {
            // In a thread of the pool's own, and no step has met it yet.
            self.recover()?;
        } else if self.is_lost() {
            self.mourn()?;
        }
        Ok(())
    }

    /// Whether the pool is closed, or takes no more writes.
    pub(super) fn is_lost(&self) -> bool {
        !self.explorer.is_open() || self.explorer.pool().is_read_only()
    }

    /// After a failure: the pool says why it takes no writes, reads what it can, and is opened anew.
    pub(super) fn mourn(&mut self) -> Result<(), String> {
        self.deeds.failures += 1;
        self.explorer.disk.clear_faults();
        if self.explorer.is_open() {
            let failure = self.explorer.pool().statistics().failure;
            if failure.is_none() && !self.explorer.disk.is_cut() {
                return Err("it takes no writes and does not say why".to_owned());
            }
            let refused = self.explorer.pool().create_dataset("refused", false, &[]);
            if !matches!(refused, Err(Error::ReadOnlyAfterFailure { .. })) {
                return Err(format!("a pool that failed answers {refused:?}"));
            }
        }
        self.recover()
    }

    /// The power fails, or the process dies; then the pool is opened, which may take several attempts.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        self.readers.clear();
        self.count_collected();
        let mut attempts = 0;
        loop {
            self.deeds.crashes += 1;
            let is_cut = self.explorer.disk.is_cut();
            let mode = CrashMode::ALL_MODES[self.random.index(6)];
            self.explorer.crash((is_cut || self.random.chance(50)).then_some(mode));
            if attempts < RECOVERIES_MAX && self.random.chance(30) {
                self.schedule_crash(40);
            } else {
                self.explorer.disk.crash_at(NEVER);
            }
            if self.random.chance(5) {
                self.inspect(false)?;
            }
            match self.open_and_find() {
                Ok(()) => break,
                // A pool with threads goes on working, and may be cut short while it is looked at.
                Err(_) if self.explorer.disk.is_cut() => {
                    self.deeds.crashes_of_recoveries += 1;
                    attempts += 1;
                }
                Err(text) => return Err(text),
            }
        }
        self.explorer.history.forget_acknowledged();
        Ok(())
    }

    fn open_and_find(&mut self) -> Result<(), String> {
        self.explorer.open().map_err(|error| format!("cannot open after a crash: {error}"))?;
        self.explorer.find().map(drop)
    }
}

//! Histories that bytes tell, so that a fuzzer can look for those that a drawn one seldom comes to.
//!
//! Four bytes are one event: what it is, and three that everything else about it is drawn from. A mutation of
//! one byte is another event in an otherwise equal history. Bytes at the end that are too few for an event
//! say what is written twice.

use crate::explorer::{Explorer, Setting, Verdict};
use crate::model::Weights;
use crate::{CrashMode, FaultKind};
use icecore::{CopyMode, Error};

/// Events of the longest script.
const EVENTS_MAX: usize = 400;
/// An I/O that never comes.
const NEVER: u64 = 1 << 60;

/// Lives through a script, and checks everything at its end.
///
/// # Errors
/// A description of where pool and model do not agree.
pub fn play(script: &[u8]) -> Result<(), String> {
    // Small: a fuzzer counts lives by the second.
    let mut setting = Setting { size_limit: Some(16 << 21), copies: copies(script), ..Setting::default() };
    setting.options.log_bytes_max = 1 << 20;
    let mut play = Play { explorer: new(&setting)?, crash: CrashMode::None };
    for event in script.chunks_exact(4).take(EVENTS_MAX) {
        let &[kind, a, b, c] = event else { continue };
        play.event(kind, u64::from_le_bytes([a, b, c, 0, 0, 0, 0, 0]))?;
    }
    play.explorer.disk.clear_faults();
    play.explorer.disk.crash_at(NEVER);
    if play.is_lost() {
        play.recover(None)?;
    }
    play.explorer.check()?;
    play.explorer.close().map_err(|error| format!("a clean close: {error}"))
}

/// Nothing, as long as a script consists of events: what was recorded without copies keeps its meaning.
const fn copies(script: &[u8]) -> CopyMode {
    match script.len() % 4 {
        0 => CopyMode::None,
        3 => CopyMode::All,
        _ => CopyMode::Metadata,
    }
}

fn new(setting: &Setting) -> Result<Explorer, String> {
    let mut explorer = Explorer::new(1, setting).map_err(|error| error.to_string())?;
    explorer.open().map_err(|error| error.to_string())?;
    Ok(explorer)
}

struct Play {
    explorer: Explorer,
    /// What the next scheduled crash leaves.
    crash: CrashMode,
}

impl Play {
    fn event(&mut self, kind: u8, drawn: u64) -> Result<(), String> {
        let mode = CrashMode::ALL_MODES[drawn as usize % 6];
        match kind % 32 {
            28 => self.recover(Some(mode)),
            29 => self.recover(None),
            30 => {
                self.crash = mode;
                self.explorer.disk.crash_at(1 + drawn / 6 % 64);
                Ok(())
            }
            31 => {
                let kinds =
                    [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError, FaultKind::NoSpace];
                let number = 1 + drawn / 8 % 64;
                self.explorer.disk.fail_at(number, kinds[drawn as usize % 4], drawn & 4 != 0);
                Ok(())
            }
            kind => self.step(kind, drawn),
        }
    }

    fn step(&mut self, kind: u8, drawn: u64) -> Result<(), String> {
        self.explorer.redraw(drawn, only(kind));
        match self.explorer.step()? {
            Verdict::Agreed => Ok(()),
            Verdict::Cut => self.recover(Some(self.crash)),
            Verdict::Failed(_) if self.is_lost() => {
                self.explorer.disk.clear_faults();
                self.recover(Some(self.crash))
            }
            Verdict::Failed(Error::NoSpace { .. } | Error::Io { .. }) => Ok(()),
            Verdict::Failed(error) => Err(format!("{error}\n  {}", self.explorer.recent())),
        }
    }

    fn is_lost(&self) -> bool {
        !self.explorer.is_open() || self.explorer.pool().is_read_only()
    }

    fn recover(&mut self, mode: Option<CrashMode>) -> Result<(), String> {
        // Nothing survives a scheduled crash but what its mode says.
        let mode = mode.or_else(|| self.explorer.disk.is_cut().then_some(self.crash));
        self.explorer.crash(mode);
        self.explorer.disk.crash_at(NEVER);
        self.explorer.disk.clear_faults();
        self.explorer.open().map_err(|error| format!("cannot open after a crash: {error}"))?;
        self.explorer.find().map(drop)
    }
}

/// Weights by which only one kind of step is drawn.
fn only(kind: u8) -> Weights {
    let mut weights = Weights {
        write: 0,
        truncate: 0,
        punch: 0,
        create: 0,
        link: 0,
        remove: 0,
        rename_file: 0,
        attributes: 0,
        group: 0,
        sync: 0,
        checkpoint: 0,
        collect: 0,
        reopen: 0,
        create_dataset: 0,
        snapshot: 0,
        clone: 0,
        rollback: 0,
        promote: 0,
        rename: 0,
        destroy_snapshot: 0,
        destroy_dataset: 0,
        hold: 0,
        ..Weights::default()
    };
    let which = match kind {
        0 => &mut weights.truncate,
        1 => &mut weights.punch,
        2 | 3 => &mut weights.create,
        4 => &mut weights.link,
        5 => &mut weights.remove,
        6 => &mut weights.rename_file,
        7 => &mut weights.attributes,
        8 | 9 => &mut weights.group,
        10 => &mut weights.sync,
        11 => &mut weights.checkpoint,
        12 => &mut weights.collect,
        13 => &mut weights.reopen,
        14 => &mut weights.create_dataset,
        15 | 16 => &mut weights.snapshot,
        17 => &mut weights.clone,
        18 => &mut weights.rollback,
        19 => &mut weights.promote,
        20 => &mut weights.rename,
        21 | 22 => &mut weights.destroy_snapshot,
        23 => &mut weights.destroy_dataset,
        24 => &mut weights.hold,
        _ => &mut weights.write,
    };
    *which = 1;
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::cases::{for_each_seed, must};

    #[test]
    fn drawn_scripts_come_to_a_good_end_whatever_is_copied() {
        for_each_seed("scripts", 24, |seed| {
            let mut random = Random::new(seed);
            // A dataset and files first, to which everything else can be done.
            let mut script = vec![14, 1, 0, 0, 2, 2, 0, 0, 2, 3, 0, 0, 2, 9, 0, 0];
            let mut events = vec![0; 4 * random.between(40, 160) as usize];
            random.fill(&mut events);
            script.append(&mut events);
            script.truncate(script.len() - random.index(4));
            must(play(&script));
        });
    }
}

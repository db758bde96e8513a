//! Studies: what a snapshot costs on each system, after published measurements.

pub(crate) mod backup;
pub(crate) mod blocks;
pub(crate) mod blog;
pub(crate) mod fragment;
pub(crate) mod full;
pub(crate) mod many;
pub(crate) mod model;
pub(crate) mod placement;
pub(crate) mod shock;
mod steps;
mod turns;
pub(crate) mod valuation;

use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::report::System as Measured;
use crate::room;
use crate::systems::{Areas, Ground, Kind, SYSTEMS, System};
use tempfile::TempDir;
pub(crate) use turns::Runs;
use turns::{Absent, Seat, in_turn, none_left};

/// Which system the checks of studies on files are about.
const SUBJECT: &str = "icecore-mount";
/// The filesystem as it is.
const PLAIN: &str = "plain";
/// What it is compared with where a check names a rival.
const RIVAL: &str = "btrfs";
/// What most of the studies were about, and the one system that sets a copy area aside for each snapshot.
const LVM: &str = "lvm";

/// The systems that take part in a study, and the others with the reason.
pub(crate) struct Lineup {
    pub kinds: Vec<&'static Kind>,
    absent: Absent,
}

/// The rounds of a system.
pub(crate) fn rounds_of<'a, T>(runs: &'a Runs<&'static Kind, T>, name: &str) -> Option<&'a [T]> {
    runs.iter().find(|(kind, _)| kind.name == name).map(|(_, rounds)| rounds.as_slice())
}

/// What a study asks of a system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A database; systems without snapshots take part.
    Databases,
    /// Files; systems without snapshots take part.
    Files,
    /// Snapshots.
    Snapshots,
}

impl Lineup {
    /// The chosen systems that this machine can run and the study can use.
    pub(crate) fn of(options: &Options, needs: Needs) -> Result<Self> {
        let mut lineup = Self { kinds: Vec::new(), absent: Absent::new() };
        check_names(&options.systems)?;
        let chosen =
            |kind: &&Kind| options.systems.is_empty() || options.systems.iter().any(|name| name == kind.name);
        for kind in SYSTEMS.iter().filter(chosen) {
            match kind.fits(needs).and_then(|()| (kind.probe)()) {
                Ok(()) => lineup.kinds.push(kind),
                Err(reason) => lineup.absent.push((kind.name, reason)),
            }
        }
        lineup.require_one()?;
        Ok(lineup)
    }

    /// Leaves out, before anything is measured, the rivals for which the folder has too little room. `bytes`:
    /// what a system needs beside its copy areas. The systems run one after the other, each on its own device.
    ///
    /// # Errors
    /// There is too little room for one that is no rival.
    pub(crate) fn require_room(&mut self, bytes: u64, areas: Areas, options: &Options) -> Result<()> {
        self.require_room_of(|_| bytes, areas, options)
    }

    /// As [`Lineup::require_room`], where systems need different room.
    pub(crate) fn require_room_of(
        &mut self,
        bytes: impl Fn(&Kind) -> u64,
        areas: Areas,
        options: &Options,
    ) -> Result<()> {
        // A debug build leaves holes in its devices.
        if cfg!(debug_assertions) {
            return Ok(());
        }
        self.keep_what_fits(bytes, areas, |bytes, what| room::require(&options.directory, bytes, what))
    }

    fn keep_what_fits(
        &mut self,
        bytes: impl Fn(&Kind) -> u64,
        areas: Areas,
        require: impl Fn(u64, &str) -> Result<()>,
    ) -> Result<()> {
        let mut kept = Vec::new();
        for kind in std::mem::take(&mut self.kinds) {
            let areas = if kind.name == LVM { areas.count.saturating_mul(areas.bytes) } else { 0 };
            let bytes = bytes(kind);
            let bytes = bytes.saturating_add(areas.min(bytes));
            let fits = if kind.name == PLAIN {
                Ok(())
            } else {
                require(bytes, &format!("the system {}", kind.name))
            };
            match fits {
                Err(error) if kind.is_rival() => self.absent.push((kind.name, error.to_string())),
                fits => {
                    fits?;
                    kept.push(kind);
                }
            }
        }
        self.kinds = kept;
        self.require_one()
    }

    /// Refuses a study without systems.
    fn require_one(&self) -> Result<()> {
        if !self.kinds.is_empty() {
            return Ok(());
        }
        Err(none_left("no system can run here", &self.absent))
    }

    /// A lineup of these.
    #[cfg(test)]
    pub(crate) fn with(kinds: Vec<&'static Kind>) -> Self {
        Self { kinds, absent: Absent::new() }
    }

    /// Runs each system once a round, in turn, and answers what that was by system. A rival that fails, or
    /// does not end in time, takes part no longer, and the results say why.
    pub(crate) fn measure<T>(
        &mut self,
        rounds: usize,
        options: &Options,
        mut run: impl FnMut(usize, &'static Kind) -> Result<T>,
    ) -> Result<Runs<&'static Kind, T>> {
        let kinds = self.kinds.clone();
        let named = |kind: &&'static Kind| (*kind, kind.name.to_owned());
        self.measure_sides(kinds, rounds, options, named, |round, kind| run(round, kind))
    }

    /// The same where a system takes part with several sides. `named`: the system of a side, and what the
    /// side is called.
    pub(crate) fn measure_sides<S, T>(
        &mut self,
        sides: Vec<S>,
        rounds: usize,
        options: &Options,
        named: impl Fn(&S) -> (&'static Kind, String),
        run: impl FnMut(usize, &S) -> Result<T>,
    ) -> Result<Runs<S, T>> {
        let seat = |side: &S| {
            let (kind, shown) = named(side);
            Seat { name: kind.name, shown, may_leave: kind.is_rival() }
        };
        in_turn(sides, &mut self.absent, rounds, options, seat, run)
    }

    /// Puts the systems that did not take part in the results.
    pub(crate) fn report(&self, findings: &mut Findings, unit: &str) {
        for (name, reason) in &self.absent {
            findings.system(name, Measured::unavailable(unit, reason));
        }
    }
}

impl Kind {
    /// Neither ours nor what all are compared with: a study goes on without it.
    pub(crate) fn is_rival(&self) -> bool {
        !self.name.starts_with("icecore") && self.name != PLAIN
    }

    fn fits(&self, needs: Needs) -> Result<(), String> {
        match needs {
            Needs::Files if !self.files => Err("it has databases, and no files".to_owned()),
            Needs::Snapshots if !self.snapshots => Err("it has no snapshots".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Refuses names that no system has.
pub(crate) fn check_names(names: &[String]) -> Result<()> {
    let known = |name: &&String| SYSTEMS.iter().all(|kind| kind.name != **name);
    names.iter().find(known).map_or(Ok(()), |name| {
        Err(Error::UnknownSystem { name: name.clone(), known: crate::systems::names().join(", ") })
    })
}

/// A system that is set up in a folder of its own.
pub(crate) struct Bench {
    // Dropped in this order.
    pub system: Box<dyn System>,
    pub folder: TempDir,
}

impl Bench {
    /// Sets the system up on a device of this size, with room for copies beside where the system sets that
    /// aside.
    pub(crate) fn begin(kind: &Kind, bytes: u64, areas: Areas, options: &Options) -> Result<Self> {
        Self::make(kind, bytes, None, areas, options)
    }

    /// The same, with a limit to the size of a pool.
    pub(crate) fn begin_limited(
        kind: &Kind,
        bytes: u64,
        limit: u64,
        areas: Areas,
        options: &Options,
    ) -> Result<Self> {
        Self::make(kind, bytes, Some(limit), areas, options)
    }

    fn make(kind: &Kind, bytes: u64, limit: Option<u64>, areas: Areas, options: &Options) -> Result<Self> {
        let folder = options.scratch()?;
        let ground = Ground { folder: folder.path(), bytes, limit, areas, options };
        let system = (kind.begin)(&ground).map_err(|error| on(kind, &folder, error))?;
        if kind.files {
            options.mounts.note(kind.name, &system.data()?).map_err(|error| on(kind, &folder, error))?;
        }
        Ok(Self { system, folder })
    }

    /// Adds the name of the system to errors of what is done with it.
    pub(crate) fn attempt<T>(&mut self, kind: &Kind, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        work(self).map_err(|error| on(kind, &self.folder, error))
    }
}

fn on(kind: &Kind, folder: &TempDir, error: Error) -> Error {
    match error {
        Error::Stopped => Error::Stopped,
        other => other.of_side(kind.name, folder.path()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_without_room_is_left_out_and_the_others_stay() {
        let kinds =
            || SYSTEMS.iter().filter(|kind| [PLAIN, "btrfs", LVM, SUBJECT].contains(&kind.name)).collect();
        let require = |room: u64| {
            move |bytes: u64, what: &str| {
                let (what, folder) = (what.to_owned(), "/".into());
                if bytes <= room { Ok(()) } else { Err(Error::NoRoom { what, folder, bytes, free: room }) }
            }
        };
        let areas = Areas { count: 4, bytes: 50 };
        let mut lineup = Lineup::with(kinds());
        lineup.keep_what_fits(|_| 100, areas, require(150)).expect("the others have room");
        let names: Vec<&str> = lineup.kinds.iter().map(|kind| kind.name).collect();
        assert_eq!(names, [PLAIN, "btrfs", SUBJECT]);
        assert!(lineup.absent[0].0 == LVM && lineup.absent[0].1.contains("the system lvm needs"));
        let error = Lineup::with(kinds()).keep_what_fits(|_| 100, areas, require(50)).expect_err("refused");
        assert!(error.to_string().contains(SUBJECT), "{error}");
    }
}

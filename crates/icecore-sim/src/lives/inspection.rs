//! Scrubs of the pool that is in use, in parts or to the end, and checks of the pool while no process has it
//! open.

use super::Life;
use crate::explorer::Verdict;
use icecore::check::{CheckOptions, check};
use icecore::{Result as Outcome, ScrubOptions, ScrubReport};

/// The most pauses of a scrub before it is cut off.
const PAUSES_MAX: u64 = 60;
/// Percent of the pauses of a scrub in which the explorer takes a step.
const STEP_PERCENT: u64 = 15;

impl Life {
    /// A scrub begins, or goes on where the one before was cut off, while others go on using the pool.
    pub(super) fn scrub_in_passing(&mut self) -> Result<(), String> {
        let mut left = if self.random.chance(30) { u64::MAX } else { self.random.between(1, PAUSES_MAX) };
        let struck = self.explorer.disk.faults_struck();
        let mut came = None;
        let outcome = self.scrub_with(false, &mut |own| {
            left -= 1;
            if own.random.chance(STEP_PERCENT) {
                own.deeds.steps += 1;
                came = Some(own.explorer.step()).filter(|verdict| !matches!(verdict, Ok(Verdict::Agreed)));
            }
            left > 0 && came.is_none()
        });
        if let Some(verdict) = came {
            return self.take(verdict?);
        }
        if self.explorer.disk.is_cut() {
            return self.recover();
        }
        match outcome {
            Err(error) => self.take(Verdict::Failed(error)),
            // What the medium did not answer counts as damage, and what a failed pool has not written is not
            // there.
            Ok(_) if self.explorer.disk.faults_struck() > struck || self.is_lost() => Ok(()),
            Ok(report) => self.is_whole(&report),
        }
    }

    /// A scrub from the beginning to the end, on a disk that fails no call.
    pub(super) fn scrub_all(&mut self) -> Result<ScrubReport, String> {
        let report = self.scrub_with(true, &mut |_| true).map_err(|error| format!("a scrub: {error}"))?;
        self.is_whole(&report)?;
        if report.complete { Ok(report) } else { Err(format!("a scrub that ended early: {report:?}")) }
    }

    /// `pause`: what happens while it pauses; `false` cuts it off.
    fn scrub_with(&mut self, anew: bool, pause: &mut dyn FnMut(&mut Self) -> bool) -> Outcome<ScrubReport> {
        let restarts = anew || self.scrub_anew;
        let options = ScrubOptions { keeps_position: true, restarts, ..ScrubOptions::default() };
        let pool = self.explorer.pool().clone();
        let report = pool.scrub_with(&options, &mut |_| pause(self));
        // Where one that failed has left its place depends on how long it took.
        self.scrub_anew = report.is_err();
        self.deeds.scrubs += 1;
        self.deeds.scrubbed += u64::from(report.as_ref().is_ok_and(|report| report.complete));
        report
    }

    fn is_whole(&self, report: &ScrubReport) -> Result<(), String> {
        if report.damaged == 0 {
            return Ok(());
        }
        Err(format!("a scrub finds damage where none was done: {report:?}\n  {}", self.explorer.recent()))
    }

    /// Of a pool that no process has open everything is right, with all its data. If it was not closed, it is
    /// as soon as it is opened.
    pub(super) fn inspect(&mut self, closed: bool) -> Result<(), String> {
        let report = check(self.explorer.disk.storage(), &CheckOptions { data: true }, &mut |_| {});
        let report = report.map_err(|error| format!("a check: {error}"))?;
        self.deeds.checks += 1;
        if report.opened && report.is_sound() && (report.was_clean || !closed) {
            return Ok(());
        }
        Err(format!("a check of a pool that was {}closed: {report:?}", if closed { "" } else { "not " }))
    }
}

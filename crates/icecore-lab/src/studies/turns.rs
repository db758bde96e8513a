//! Sides that run in turn, and go on without one that fails.

use crate::error::{Error, Result};
use crate::options::Options;
use crate::pairs::interleave;

/// Each that ran to its end, and what its rounds answered.
pub(crate) type Runs<S, T> = Vec<(S, Vec<T>)>;

/// Names of those that do not take part, and why.
pub(crate) type Absent = Vec<(&'static str, String)>;

/// How a side takes part.
pub(crate) struct Seat {
    /// What results call it, and all sides that leave with it.
    pub name: &'static str,
    /// What progress calls it.
    pub shown: String,
    /// The study goes on without it.
    pub may_leave: bool,
}

/// Runs each side once a round, in turn, and answers what that was by side. A side that may leave takes part
/// no longer once it fails, or does not end in time. Hours of the others are not lost with it.
pub(crate) fn in_turn<S, T>(
    sides: Vec<S>,
    absent: &mut Absent,
    rounds: usize,
    options: &Options,
    seat: impl Fn(&S) -> Seat,
    mut run: impl FnMut(usize, &S) -> Result<T>,
) -> Result<Runs<S, T>> {
    let samples = interleave(rounds, sides.len(), |round, place| {
        let Seat { name, shown, may_leave } = seat(&sides[place]);
        if is_out(absent, name) {
            return Ok(None);
        }
        options.say(&format!("round {} of {rounds}: {shown}", round + 1))?;
        match run(round, &sides[place]) {
            Err(error) if may_leave && !matches!(error, Error::Stopped) => {
                options.say(&format!("  {name} takes part no longer: {error}"))?;
                absent.push((name, error.to_string()));
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    })?;
    if sides.iter().all(|side| is_out(absent, seat(side).name)) {
        return Err(none_left("no system came to its end", absent));
    }
    let all =
        sides.into_iter().zip(samples.into_iter().map(|samples| samples.into_iter().flatten().collect()));
    Ok(all.filter(|(side, _)| !is_out(absent, seat(side).name)).collect())
}

fn is_out(absent: &Absent, name: &str) -> bool {
    absent.iter().any(|(gone, _)| *gone == name)
}

/// A study that has nothing to measure.
pub(crate) fn none_left(what: &str, absent: &Absent) -> Error {
    let reasons: Vec<String> = absent.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let reason = format!("{what} ({})", reasons.join("; "));
    Error::Inconclusive { what: "the study".to_owned(), reason }
}

//! How long a study should take, which a run says before it begins.

use crate::guest;
use crate::options::Options;
use crate::studies::valuation;
use std::time::Duration;

/// The long variant of `valuation`, which a full run has, too: its name and how many iterations it has.
pub(crate) const LONG_VALUATION: (&str, u32) = ("valuation-850", valuation::LONG);

/// Seconds that a study takes on two cores and a virtual SSD, with every system that is there.
struct Time {
    study: &'static str,
    /// Quick, which is one round.
    quick: u32,
    full: u32,
    /// Rounds of a full run.
    rounds: u32,
    /// Quick, in the guest, where KVM does not run it: the time of one round in docs/benchmarks. LVM and ZFS
    /// are among its systems. `placement` has no result of the guest, and is four times slower by assumption.
    emulated: u32,
}

#[rustfmt::skip]
const TIMES: [Time; 10] = [
    Time { study: "shock", quick: 230, full: 3700, rounds: 3, emulated: 900 },
    Time { study: "valuation", quick: 40, full: 1200, rounds: 3, emulated: 260 },
    Time { study: LONG_VALUATION.0, quick: 40, full: 22_000, rounds: 3, emulated: 260 },
    Time { study: "fragment", quick: 40, full: 400, rounds: 3, emulated: 320 },
    Time { study: "blog", quick: 80, full: 9600, rounds: 3, emulated: 120 },
    Time { study: "backup", quick: 110, full: 1900, rounds: 3, emulated: 470 },
    Time { study: "placement", quick: 180, full: 21_000, rounds: 3, emulated: 720 },
    Time { study: "full", quick: 40, full: 450, rounds: 3, emulated: 610 },
    Time { study: "many", quick: 20, full: 900, rounds: 1, emulated: 100 },
    Time { study: "model", quick: 1, full: 1, rounds: 1, emulated: 1 },
];

/// How long a study should take on this machine, or in the guest of the options, with their rounds and
/// iterations. `None` for an experiment that is no study.
#[must_use]
pub fn of(name: &str, options: &Options) -> Option<Duration> {
    time(name, options, guest::is_emulated(options))
}

/// The same where the caller knows whether the guest is emulated, which takes seconds to ask.
pub(crate) fn time(name: &str, options: &Options, is_emulated: bool) -> Option<Duration> {
    let (long, many) = LONG_VALUATION;
    let is_long = name == "valuation" && !options.quick && options.iterations >= Some(many);
    let row = if is_long { long } else { name };
    let time = TIMES.iter().find(|time| time.study == row)?;
    let mut seconds = f64::from(options.size(time.full, time.quick));
    if let Some(rounds) = options.pairs {
        seconds *= rounds as f64 / f64::from(options.size(time.rounds, 1));
    }
    if let Some(iterations) = options.iterations.filter(|_| name == "valuation") {
        let usual = if is_long { many } else { valuation::usual_iterations(options) };
        seconds *= f64::from(iterations) / f64::from(usual);
    }
    if is_emulated {
        seconds *= f64::from(time.emulated) / f64::from(time.quick);
    }
    Some(Duration::from_secs(seconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::studies;
    use crate::guest::Guest;

    fn quick() -> Options {
        Options { quick: true, ..Options::new(".") }
    }

    #[test]
    fn a_quick_run_of_all_takes_less_than_half_an_hour() {
        let times = studies().iter().map(|study| time(study.name, &quick(), false).expect(study.name)).sum();
        assert!((Duration::from_secs(300)..Duration::from_secs(1800)).contains(&times), "{times:?}");
        assert_eq!(of("commits", &quick()), None, "it is no study");
    }

    #[test]
    fn rounds_and_iterations_take_their_time() {
        let seconds = |options: Options| time("valuation", &options, false).expect("a study").as_secs();
        let full = Options::new(".");
        assert_eq!(seconds(full.clone()), 1200);
        assert_eq!(seconds(Options { pairs: Some(1), ..full.clone() }), 400);
        assert_eq!(seconds(Options { iterations: Some(190), ..full.clone() }), 2400);
        assert_eq!(seconds(Options { iterations: Some(850), ..full.clone() }), 22_000);
        assert_eq!(seconds(Options { iterations: Some(1700), pairs: Some(6), ..full }), 88_000);
        let usual = seconds(quick());
        assert_eq!(seconds(Options { pairs: Some(3), ..quick() }), 3 * usual);
        let twice = Some(2 * valuation::usual_iterations(&quick()));
        assert_eq!(seconds(Options { iterations: twice, ..quick() }), 2 * usual);
        let shock = Options { iterations: twice, ..quick() };
        assert_eq!(time("shock", &shock, false), time("shock", &quick(), false));
    }

    #[test]
    fn an_emulated_guest_takes_as_long_as_was_measured() {
        let guest = Some(Guest { cache: ".".into(), zfs: false });
        let options = Options { guest, pairs: Some(3), ..quick() };
        assert_eq!(time("shock", &options, true), Some(Duration::from_secs(2700)));
        assert_eq!(time("shock", &options, false), Some(Duration::from_secs(690)), "KVM runs it");
        let full = Options { quick: false, pairs: None, ..options };
        assert_eq!(time("many", &full, true), Some(Duration::from_secs(4500)));
    }
}

//! Limits: of the options, and of the properties of datasets.

use super::Arguments;
use super::check::State;
use crate::exit;
use icecore::Property;
use icecore::retention::parse_duration;

/// Limits of an age in seconds; `None`: no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    warn: Option<u64>,
    crit: Option<u64>,
}

impl Limits {
    /// `name`: what both are called, but for `warn` and `crit` at the end.
    fn parse(name: &str, warn: Option<&str>, crit: Option<&str>) -> Result<Self, String> {
        let limit = |text: Option<&str>, which: &str| -> Result<_, String> {
            let parsed = text.map(parse_duration).transpose();
            let parsed = parsed.map_err(|error| format!("{name}{which}: {error}"))?;
            Ok(parsed.map(|it| it.as_secs()).filter(|seconds| *seconds > 0))
        };
        let limits = Self { warn: limit(warn, "warn")?, crit: limit(crit, "crit")? };
        match (limits.warn, limits.crit, warn, crit) {
            (Some(seconds), Some(most), Some(warn), Some(crit)) if seconds > most => {
                Err(above(name, warn, crit))
            }
            _ => Ok(limits),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.warn.is_none() && self.crit.is_none()
    }

    pub fn judge(&self, seconds: u64) -> State {
        let beyond = |limit: Option<u64>| limit.is_some_and(|limit| seconds > limit);
        match (beyond(self.crit), beyond(self.warn)) {
            (true, _) => State::Critical,
            (false, true) => State::Warning,
            (false, false) => State::Ok,
        }
    }

    pub fn perfdata(&self) -> [String; 2] {
        [self.warn, self.crit].map(|limit| limit.map_or_else(String::new, |seconds| seconds.to_string()))
    }
}

/// Why a warning that could never come is refused.
fn above(name: &str, warn: &str, crit: &str) -> String {
    format!("{name}warn {warn} is above {name}crit {crit}: it would never warn; give a lower one")
}

/// What the options say.
pub struct Thresholds {
    /// Hundredths of a per cent.
    pub space_warn: u64,
    pub space_crit: u64,
    pub ages: Limits,
    pub scrub: Limits,
}

impl Thresholds {
    pub fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let ages = Limits::parse("--age-", arguments.age_warn.as_deref(), arguments.age_crit.as_deref());
        let scrub =
            Limits::parse("--scrub-", arguments.scrub_warn.as_deref(), arguments.scrub_crit.as_deref());
        let share = |text: &str, name: &str| {
            crate::format::parse_share(text).map_err(|why| exit::usage(format!("{name}: {why}")))
        };
        let space_warn = share(&arguments.space_warn, "--space-warn")?;
        let space_crit = share(&arguments.space_crit, "--space-crit")?;
        if space_warn > space_crit {
            return Err(exit::usage(above("--space-", &arguments.space_warn, &arguments.space_crit)));
        }
        Ok(Self {
            space_warn,
            space_crit,
            ages: ages.map_err(exit::usage)?,
            scrub: scrub.map_err(exit::usage)?,
        })
    }
}

/// What the properties of a dataset say, if they do.
pub struct Ages {
    warn: Option<String>,
    crit: Option<String>,
}

impl Ages {
    pub fn of_properties(properties: &[Property]) -> Self {
        let value = |name: &str| {
            let found = properties.iter().find(|property| property.name == name);
            found.map(|property| property.value.clone())
        };
        Self { warn: value("icecore:monitor.age-warn"), crit: value("icecore:monitor.age-crit") }
    }

    /// With the limits of the options where there are none.
    pub fn or(&self, others: &Limits) -> Result<Limits, String> {
        let own = Limits::parse("icecore:monitor.age-", self.warn.as_deref(), self.crit.as_deref())?;
        Ok(Limits {
            warn: if self.warn.is_some() { own.warn } else { others.warn },
            crit: if self.crit.is_some() { own.crit } else { others.crit },
        })
    }
}

/// An age in two units at most.
pub fn age_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_crossed_one_after_the_other() {
        let parse = |warn, crit| Limits::parse("--age-", warn, crit);
        let limits = parse(Some("1m"), Some("1h")).unwrap();
        let states = [60, 61, 3600, 3601].map(|seconds| limits.judge(seconds));
        assert_eq!(states, [State::Ok, State::Warning, State::Warning, State::Critical]);
        assert_eq!(limits.perfdata(), ["60", "3600"]);
        assert!(parse(Some("0"), None).unwrap().is_empty());
        let said = parse(Some("soon"), None).unwrap_err();
        assert!(said.starts_with("--age-warn: \"soon\""), "{said}");
        let said = parse(Some("2h"), Some("1h")).unwrap_err();
        assert!(said.contains("--age-warn 2h is above --age-crit 1h"), "{said}");
        // No limit is above none.
        assert!(parse(Some("2h"), Some("0")).is_ok() && parse(Some("1h"), Some("60m")).is_ok());
    }

    #[test]
    fn what_a_dataset_says_goes_before_the_options() {
        let others = Limits::parse("--age-", Some("1h"), Some("2h")).unwrap();
        let own = |warn: Option<&str>, crit: Option<&str>| {
            Ages { warn: warn.map(str::to_owned), crit: crit.map(str::to_owned) }.or(&others)
        };
        assert_eq!(own(None, None).unwrap(), others);
        assert_eq!(own(Some("0"), Some("0")).unwrap(), Limits::default());
        assert_eq!(own(Some("30m"), None).unwrap().perfdata(), ["1800", "7200"]);
        assert!(own(Some("x"), None).is_err());
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [(59, "59s"), (3599, "59m"), (3660, "1h1m"), (90_000, "1d1h")] {
            assert_eq!(age_text(seconds), text);
        }
    }
}

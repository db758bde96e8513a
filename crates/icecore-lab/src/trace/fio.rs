//! Logs of fio(1): a line for each request, under one that says the version.

use super::{Events, Parsed};
use std::time::Duration;

/// What the first line says: with times, and without.
const VERSIONS: [(&str, bool); 2] = [("fio version 3 iolog", true), ("fio version 2 iolog", false)];

/// A log that is being read.
pub(super) struct Log {
    has_times: bool,
    /// The line with the version is the first one.
    is_begun: bool,
}

impl Log {
    /// A log with this first line; `None` if it is that of none.
    pub(super) fn of(first: &str) -> Option<Self> {
        let known = VERSIONS.iter().find(|(line, _)| *line == first.trim());
        known.map(|(_, has_times)| Self { has_times: *has_times, is_begun: false })
    }

    pub(super) fn line(&mut self, events: &mut Events, line: &str) -> Parsed<()> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let mut at = None;
        if self.has_times {
            let Some(word) = words.next() else { return Ok(()) };
            // fio writes microseconds (its `log_io_u`); its manual does not say so.
            let time = word.parse().map_err(|_| format!("{word:?} is no time"))?;
            at = Some(events.since_first(Duration::from_micros(time)));
        }
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err("it has no file and action".to_owned());
        };
        let mut number = || -> Parsed<u64> {
            words.next().and_then(|word| word.parse().ok()).ok_or_else(|| "a number is missing".to_owned())
        };
        match action {
            "write" => {
                let (offset, bytes) = (number()?, number()?);
                events.write(at, file, offset, bytes)?;
            }
            "sync" | "datasync" => events.flush(at),
            "add" | "open" | "close" | "read" | "trim" | "wait" => {}
            other => return Err(format!("{other:?} is no action that fio logs")),
        }
        Ok(())
    }
}

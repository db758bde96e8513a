//! Logs of fio(1): a line for each request, under one that says the version.

use super::{Events, Parsed};
use std::collections::BTreeSet;
use std::time::Duration;

/// What the first line says: with times, and without.
const VERSIONS: [(&str, bool); 2] = [("fio version 3 iolog", true), ("fio version 2 iolog", false)];

/// A log that is being read.
pub(super) struct Log {
    has_times: bool,
    /// The line with the version is the first one.
    is_begun: bool,
    /// fio closes each file before it ends, also when it is interrupted.
    open: BTreeSet<String>,
}

impl Log {
    /// A log with this first line; `None` if it is that of none.
    pub(super) fn of(first: &str) -> Option<Self> {
        let known = VERSIONS.iter().find(|(line, _)| *line == first.trim());
        known.map(|(_, has_times)| Self { has_times: *has_times, is_begun: false, open: BTreeSet::new() })
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
            at = Some(events.since_first(Duration::from_micros(time))?);
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
            "open" => drop(self.open.insert(file.to_owned())),
            "close" => drop(self.open.remove(file)),
            "add" | "read" | "trim" | "wait" => {}
            other => return Err(format!("{other:?} is no action that fio logs")),
        }
        Ok(())
    }

    /// Refuses a log that ends before fio did.
    pub(super) fn end(&self) -> Parsed<()> {
        match self.open.first() {
            Some(file) => Err(format!("it is cut short: its last lines lack, in which fio closes {file}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::{Event, FILE_RANGE, Trace};
    use std::time::Duration;

    const RECORDED: &str = "fio version 3 iolog\n18 /f add\n112 /f open\n118 /f write 49152 16384\n\
                            3796 /f datasync 770048 0\n4055 /g write 0 4096\n4248 /f read 0 16384\n4305 /f close\n";

    #[test]
    fn a_recording_of_fio_is_read() {
        let trace = Trace::parse(RECORDED).expect("read");
        let at = |time| Some(Duration::from_micros(time));
        let expected = [
            (at(100), Event::Write { place: 49152, bytes: 16384 }),
            (at(3778), Event::Flush),
            (at(4037), Event::Write { place: FILE_RANGE, bytes: 4096 }),
        ];
        assert_eq!(trace.events, expected);
        assert_eq!(trace.writes(), 2);
        let without = "fio version 2 iolog\n/f add\n/f write 0 16384\n";
        assert_eq!(Trace::parse(without).expect("read").events[0].0, None);
    }

    #[test]
    fn what_is_no_recording_is_refused_and_the_place_named() {
        let refused = |text: &str| Trace::parse(text).expect_err("refused");
        assert!(refused("").contains("first line"));
        assert!(refused("fio version 9 iolog\n").contains("first line"));
        assert!(refused("fio version 3 iolog\n1 /f add\n").contains("no writes"));
        assert!(refused(&RECORDED[..RECORDED.len() - 20]).contains("cut short in line"));
        let lines = RECORDED.strip_suffix("4305 /f close\n").expect("its last line");
        assert!(refused(lines).contains("cut short: its last lines lack, in which fio closes /f"));
        let joined = refused("fio version 3 iolog\n2000000 /f write 0 512\n999999 /f write 0 512\n");
        assert!(joined.contains("line 3: its time is 1.000001s before that of the line above"), "{joined}");
        assert!(refused("fio version 3 iolog\n1 /f write 5\n").contains("line 2: a number is missing"));
        assert!(refused("fio version 3 iolog\n1 /f jump 5\n").contains("\"jump\" is no action"));
        assert!(refused("fio version 3 iolog\nx /f write 0 1\n").contains("\"x\" is no time"));
        let huge = format!("fio version 3 iolog\n1 /f write {} 16384\n", u64::MAX);
        assert!(refused(&huge).contains("are no write"));
        let endless = format!("fio version 3 iolog\n1 /f write 0 {}\n", FILE_RANGE);
        assert!(refused(&endless).contains("are no write"));
    }

    #[test]
    fn a_cut_anywhere_is_no_panic() {
        for end in 0..RECORDED.len() {
            let _ = Trace::parse(&RECORDED[..end]);
        }
    }
}

//! A list of the writes of a program: recorded by fio(1) (`--write_iolog`), or made up.

use crate::error::{Doing, Error, Result};
use crate::random::Random;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes from a place on.
    Write {
        /// The first byte. Each file of the trace has a range of its own.
        place: u64,
        /// How many.
        bytes: u64,
    },
    /// Everything before is durable.
    Flush,
}

/// Requests in the order in which they were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Each with its time since the first, if the recording has times.
    pub events: Vec<(Option<Duration>, Event)>,
}

/// Bytes of the range of one file.
const FILE_RANGE: u64 = 1 << 50;
/// What the first line of a recording says: with times, and without.
const VERSIONS: [(&str, bool); 2] = [("fio version 3 iolog", true), ("fio version 2 iolog", false)];

impl Trace {
    /// Writes at random places of a file, in whole blocks, each of them durable before the next.
    #[must_use]
    pub fn random(writes: u64, file_bytes: u64, block: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let write = |_| {
            let place = random.below(file_bytes / block) * block;
            [(None, Event::Write { place, bytes: block }), (None, Event::Flush)]
        };
        Self { events: (0..writes).flat_map(write).collect() }
    }

    /// Reads a recording of fio.
    ///
    /// # Errors
    /// It cannot be read, is none, or was cut short.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).doing(|| format!("read {}", path.display()))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .map_err(|reason| Error::NotATrace { path: path.to_owned(), reason })
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut lines = text.lines().zip(1..);
        let first = lines.next().map_or("", |(line, _)| line.trim());
        let known = VERSIONS.iter().find(|(line, _)| *line == first);
        let &(_, has_times) = known.ok_or("its first line is not that of a log of fio")?;
        if !text.ends_with('\n') {
            return Err(format!("it is cut short in line {}", text.lines().count()));
        }
        let mut reader = Reader { has_times, files: Vec::new(), events: Vec::new(), first: None };
        for (line, number) in lines {
            reader.line(line).map_err(|reason| format!("line {number}: {reason}"))?;
        }
        if reader.events.is_empty() {
            return Err("it has no writes".to_owned());
        }
        Ok(Self { events: reader.events })
    }

    /// How many writes there are.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.events.iter().filter(|(_, event)| matches!(event, Event::Write { .. })).count() as u64
    }
}

struct Reader<'text> {
    has_times: bool,
    files: Vec<&'text str>,
    events: Vec<(Option<Duration>, Event)>,
    first: Option<u64>,
}

impl<'text> Reader<'text> {
    fn line(&mut self, line: &'text str) -> std::result::Result<(), String> {
        let mut words = line.split_whitespace();
        let mut at = None;
        if self.has_times {
            let Some(word) = words.next() else { return Ok(()) };
            // fio writes microseconds (its `log_io_u`); its manual does not say so.
            let time: u64 = word.parse().map_err(|_| format!("{word:?} is no time"))?;
            at = Some(Duration::from_micros(time.saturating_sub(*self.first.get_or_insert(time))));
        }
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err("it has no file and action".to_owned());
        };
        let mut number = || -> std::result::Result<u64, String> {
            words.next().and_then(|word| word.parse().ok()).ok_or_else(|| "a number is missing".to_owned())
        };
        match action {
            "write" => {
                let (offset, bytes) = (number()?, number()?);
                if offset.saturating_add(bytes) > FILE_RANGE || bytes == 0 {
                    return Err(format!("{bytes} bytes at {offset} are no write"));
                }
                let place = self.file(file) * FILE_RANGE + offset;
                self.events.push((at, Event::Write { place, bytes }));
            }
            "sync" | "datasync" => self.events.push((at, Event::Flush)),
            "add" | "open" | "close" | "read" | "trim" | "wait" => {}
            other => return Err(format!("{other:?} is no action that fio logs")),
        }
        Ok(())
    }

    fn file(&mut self, name: &'text str) -> u64 {
        let known = self.files.iter().position(|file| *file == name);
        known.unwrap_or_else(|| {
            self.files.push(name);
            self.files.len() - 1
        }) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(refused("fio version 3 iolog\n1 /f write 5\n").contains("line 2: a number is missing"));
        assert!(refused("fio version 3 iolog\n1 /f jump 5\n").contains("\"jump\" is no action"));
        assert!(refused("fio version 3 iolog\nx /f write 0 1\n").contains("\"x\" is no time"));
        let huge = format!("fio version 3 iolog\n1 /f write {} 16384\n", u64::MAX);
        assert!(refused(&huge).contains("are no write"));
    }

    #[test]
    fn a_cut_anywhere_is_no_panic() {
        for end in 0..RECORDED.len() {
            let _ = Trace::parse(&RECORDED[..end]);
        }
    }
}

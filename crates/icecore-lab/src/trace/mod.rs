//! A list of writes: of a program, recorded by fio(1) (`--write_iolog`); of a disk, recorded by blktrace(8);
//! or made up.

mod blkparse;
mod fio;

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
    /// From the first request to the last, reads included, if the recording has times.
    pub lasts: Option<Duration>,
}

/// More than any request has. It bounds the work for one line.
const REQUEST_BYTES_MAX: u64 = 1 << 32;
/// Bytes of the range of one file.
const FILE_RANGE: u64 = 1 << 50;
/// By how much a line may be too late: blkparse(1) sorts what processors recorded apart within a time.
const ORDER_TOLERANCE: Duration = Duration::from_secs(1);

impl Trace {
    /// Writes at random places of a file, in whole blocks, each of them durable before the next.
    #[must_use]
    pub fn random(writes: u64, file_bytes: u64, block: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let write = |_| {
            let place = random.below(file_bytes / block) * block;
            [(None, Event::Write { place, bytes: block }), (None, Event::Flush)]
        };
        Self { events: (0..writes).flat_map(write).collect(), lasts: None }
    }

    /// Reads a recording: a log of fio, or what blkparse(1) prints of one of blktrace.
    ///
    /// # Errors
    /// It cannot be read, is none, or was cut short.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).doing(|| format!("read {}", path.display()))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .map_err(|reason| Error::NotATrace { path: path.to_owned(), reason })
    }

    fn parse(text: &str) -> Parsed<Self> {
        let first = text.lines().next().unwrap_or_default();
        let mut recording = Recording::of(first)?;
        if !text.ends_with('\n') {
            return Err(format!("it is cut short in line {}", text.lines().count()));
        }
        let mut events = Events::default();
        for (line, number) in text.lines().zip(1..) {
            recording.line(&mut events, line).map_err(|reason| format!("line {number}: {reason}"))?;
        }
        recording.end()?;
        if events.all.iter().all(|(_, event)| *event == Event::Flush) {
            return Err("it has no writes".to_owned());
        }
        Ok(Self { lasts: events.first.map(|_| events.latest), events: events.all })
    }

    /// How many writes there are.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.events.iter().filter(|(_, event)| matches!(event, Event::Write { .. })).count() as u64
    }
}

/// What was read, or why it cannot be.
type Parsed<T> = std::result::Result<T, String>;

/// The kinds of recordings.
enum Recording {
    Fio(fio::Log),
    Blkparse(blkparse::Log),
}

impl Recording {
    /// The kind of a recording with this first line.
    fn of(first: &str) -> Parsed<Self> {
        match fio::Log::of(first) {
            Some(log) => Ok(Self::Fio(log)),
            None if blkparse::is_event(first) => Ok(Self::Blkparse(blkparse::Log::default())),
            None => Err("its first line is neither that of a log of fio nor an event of blkparse".to_owned()),
        }
    }

    fn line(&mut self, events: &mut Events, line: &str) -> Parsed<()> {
        match self {
            Self::Fio(log) => log.line(events, line),
            Self::Blkparse(log) => log.line(events, line),
        }
    }

    /// Refuses one whose end lacks.
    fn end(&self) -> Parsed<()> {
        match self {
            Self::Fio(log) => log.end(),
            Self::Blkparse(log) => log.end(),
        }
    }
}

/// What was read so far.
#[derive(Default)]
struct Events {
    all: Vec<(Option<Duration>, Event)>,
    /// The files, or disks, in the order in which they were met first.
    files: Vec<String>,
    /// The time of the first line.
    first: Option<Duration>,
    /// The latest time of a line since the first.
    latest: Duration,
}

impl Events {
    /// The time of an event since the first line. It never goes back.
    fn since_first(&mut self, time: Duration) -> Parsed<Duration> {
        let first = *self.first.get_or_insert(time);
        let back = (first + self.latest).saturating_sub(time);
        if back > ORDER_TOLERANCE {
            return Err(format!(
                "its time is {back:?} before that of the line above: are these two recordings?"
            ));
        }
        self.latest = self.latest.max(time.saturating_sub(first));
        Ok(self.latest)
    }

    fn write(&mut self, at: Option<Duration>, file: &str, offset: u64, bytes: u64) -> Parsed<()> {
        if offset.saturating_add(bytes) > FILE_RANGE || !(1..=REQUEST_BYTES_MAX).contains(&bytes) {
            return Err(format!("{bytes} bytes at {offset} are no write"));
        }
        let known = self.files.iter().position(|known| known == file);
        let number = known.unwrap_or_else(|| {
            self.files.push(file.to_owned());
            self.files.len() - 1
        });
        let place = number as u64 * FILE_RANGE + offset;
        self.all.push((at, Event::Write { place, bytes }));
        Ok(())
    }

    fn flush(&mut self, at: Option<Duration>) {
        self.all.push((at, Event::Flush));
    }
}

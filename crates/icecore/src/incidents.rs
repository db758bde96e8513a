//! What went wrong with the disk, kept where an administrator finds it: in memory for `status`, and in a text
//! file beside the pool that is still there after the process has gone.

use crate::error::Error;
use crate::side_file;
use crate::units::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

/// The file in the pool's folder.
pub const FILE_NAME: &str = "errors.log";
/// Its former contents, once it has grown long.
const FORMER_NAME: &str = "errors.log.old";
/// The file is begun anew beyond this.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// More of the file is not read.
const READ_BYTES_MAX: u64 = 2 * FILE_BYTES_MAX;
/// What begins the sentence about damage.
const DAMAGE: &str = "damage in ";
/// What goes before the sentence about something that was read from its copy, and written again from it.
const HEALED: &str = "healed from its copy: ";
/// As [`HEALED`], where it was not written again.
const ONLY_READ: &str = "read from its copy: ";
/// What goes before the sentence about damage by which nothing is lost.
const HARMLESS: &str = "nothing is lost: ";
/// Incidents kept in memory.
const KEPT_MAX: usize = 64;

/// A call that the disk refused, or bytes that it did not give back as they were written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Incident {
    /// When it was met first.
    pub when: Timestamp,
    /// When it was met last.
    pub last: Timestamp,
    /// What happened, and where.
    pub what: String,
    /// How often it was met.
    pub times: u64,
    /// When it was met last, bytes were not what was written, and that was not mended.
    pub unhealed: bool,
}

/// How many there were of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub damage: u64,
}

#[derive(Default)]
struct Inner {
    tally: Tally,
    kept: VecDeque<Incident>,
}

/// What an open pool met so far.
pub(crate) struct Incidents {
    directory: Option<PathBuf>,
    inner: Mutex<Inner>,
}

impl Incidents {
    /// `directory`: where the file goes; none where nothing may be written, or there is no folder.
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, inner: Mutex::default() }
    }

    /// Notes an error of the medium. Others are no incidents.
    pub(crate) fn note(&self, error: &Error) {
        let mut inner = self.inner.lock();
        match error {
            Error::Damaged { .. } => inner.tally.damage += 1,
            Error::Io { action: "read" | "open" | "measure", .. } => inner.tally.reads += 1,
            Error::Io { action: "flush", .. } => inner.tally.flushes += 1,
            Error::Io { .. } => inner.tally.writes += 1,
            _ => return,
        }
        let unhealed = matches!(error, Error::Damaged { .. });
        Self::keep(&self.directory, &mut inner, error.to_string(), unhealed);
    }

    /// Notes damage of what could be taken from its copy.
    pub(crate) fn note_made_good(&self, error: &Error) {
        let mut inner = self.inner.lock();
        inner.tally.damage += 1;
        let what = on_one_line(&error.to_string());
        let is_of_it =
            |known: &str| known.strip_suffix(&what).is_some_and(|it| [HEALED, ONLY_READ].contains(&it));
        // What healed it has said so.
        if !inner.kept.iter().any(|known| is_of_it(&known.what)) {
            Self::keep(&self.directory, &mut inner, what, false);
        }
    }

    /// Notes damage by which nothing is lost: it is mended already, or what is there follows from something
    /// else.
    pub(crate) fn note_harmless(&self, error: &Error) {
        let mut inner = self.inner.lock();
        inner.tally.damage += 1;
        Self::keep(&self.directory, &mut inner, format!("{HARMLESS}{error}"), false);
    }

    /// Notes that what an error is about could be read from its copy, and what came of writing it again:
    /// `None` where nothing may be written, `Some(false)` where that failed.
    pub(crate) fn note_healed(&self, error: &Error, written: Option<bool>) {
        let mut inner = self.inner.lock();
        let what = on_one_line(&error.to_string());
        if let Some(met) = inner.kept.iter_mut().find(|known| known.what == what) {
            met.unhealed = false;
        }
        let outcome = if written == Some(true) { HEALED } else { ONLY_READ };
        Self::keep(&self.directory, &mut inner, format!("{outcome}{what}"), written == Some(false));
    }

    fn keep(directory: &Option<PathBuf>, inner: &mut Inner, what: String, unhealed: bool) {
        let (now, what) = (Timestamp::now(), on_one_line(&what));
        if let Some(known) = inner.kept.iter_mut().find(|known| known.what == what) {
            known.times += 1;
            known.last = now;
            known.unhealed = unhealed;
            return;
        }
        if inner.kept.len() == KEPT_MAX {
            inner.kept.pop_front();
        }
        let incident = Incident { when: now, last: now, what, times: 1, unhealed };
        if let Some(directory) = directory {
            // The medium that fails may be the one that the file lies on: then memory has to do.
            let _ = append(directory, &incident);
        }
        inner.kept.push_back(incident);
    }

    /// The last ones, the oldest first.
    pub(crate) fn last(&self) -> Vec<Incident> {
        self.inner.lock().kept.iter().cloned().collect()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.inner.lock().tally
    }
}

/// What the file in a pool's folder says, the oldest first: also of processes that have gone. Each opening of
/// the pool wrote each sentence once. Nothing, if there is no file, or it cannot be read.
#[must_use]
pub fn logged(directory: &Path) -> Vec<Incident> {
    let text = side_file::read(&directory.join(FILE_NAME), READ_BYTES_MAX);
    text.map_or_else(Vec::new, |text| parse(&text))
}

/// What lines of the file say, the oldest first. A line that is not one of ours is passed over.
#[doc(hidden)]
#[must_use]
pub fn parse(text: &str) -> Vec<Incident> {
    let lines: Vec<(Timestamp, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(when, what)| Some((Timestamp::from_rfc3339(when)?, what)))
        .collect();
    let prefixes = [HEALED, ONLY_READ];
    let made_good: HashSet<&str> = lines
        .iter()
        .filter_map(|(_, what)| prefixes.iter().find_map(|prefix| what.strip_prefix(prefix)))
        .collect();
    // The file is only written where the pool is: what was only read from its copy could not be written.
    let unhealed =
        |what: &str| what.starts_with(ONLY_READ) || (what.starts_with(DAMAGE) && !made_good.contains(what));
    let incident = |(when, what): (Timestamp, &str)| Incident {
        when,
        last: when,
        what: what.to_owned(),
        times: 1,
        unhealed: unhealed(what),
    };
    lines.into_iter().map(incident).collect()
}

/// A sentence as it is kept: each is one line of the file, whatever folders are called.
fn on_one_line(what: &str) -> String {
    what.replace(['\n', '\r'], " ")
}

fn append(directory: &Path, incident: &Incident) -> std::io::Result<()> {
    let path = directory.join(FILE_NAME);
    if std::fs::metadata(&path).is_ok_and(|found| found.len() > FILE_BYTES_MAX) {
        std::fs::rename(&path, directory.join(FORMER_NAME))?;
    }
    side_file::append(&path, &format!("{} {}\n", incident.when.to_rfc3339(), incident.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_error(offset: u64) -> Error {
        Error::io(
            "read",
            format!("4096 bytes at {offset} of segment.00000001"),
            std::io::Error::other("bad sector"),
        )
    }

    #[test]
    fn each_is_kept_once_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let incidents = Incidents::new(Some(folder.path().to_owned()));
        for _ in 0..3 {
            incidents.note(&read_error(0));
        }
        incidents.note(&Error::damaged("segment.00000001", "no"));
        incidents.note(&Error::ReadOnly);
        let last = incidents.last();
        assert_eq!(last.iter().map(|incident| incident.times).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(incidents.tally(), Tally { reads: 3, damage: 1, ..Tally::default() });
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().next().unwrap().ends_with(&last[0].what), "{text}");
    }

    #[test]
    fn what_was_healed_is_distinguished_from_what_is_lost_also_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let incidents = Incidents::new(Some(folder.path().to_owned()));
        let damage = |number: u64| Error::damaged(format!("segment.{number:08}"), "it does not match");
        (0..3).for_each(|number| incidents.note(&damage(number)));
        incidents.note_healed(&damage(0), Some(true));
        incidents.note_healed(&damage(1), Some(false));
        incidents.note_harmless(&damage(3));
        incidents.note(&read_error(0));
        let unhealed = |all: Vec<Incident>| {
            let found = all.into_iter().filter(|incident| incident.unhealed);
            found.map(|incident| incident.what).collect::<Vec<_>>()
        };
        let expected = [damage(2).to_string(), format!("{ONLY_READ}{}", damage(1))];
        assert_eq!(unhealed(incidents.last()), expected);
        assert_eq!(unhealed(logged(folder.path())), expected);
        assert_eq!(logged(folder.path()).len(), 7);
        // Damaged anew, and the copy is gone.
        incidents.note(&damage(0));
        assert_eq!(unhealed(incidents.last()).len(), 3);
        let again = incidents.last().into_iter().next().unwrap();
        assert!(again.last >= again.when && again.times == 2, "{again:?}");
        // What was healed is said once.
        incidents.note_healed(&damage(9), Some(true));
        incidents.note_made_good(&damage(9));
        assert!(incidents.last().iter().all(|incident| incident.what != damage(9).to_string()));
        incidents.note_made_good(&damage(8));
        assert!(incidents.last().iter().any(|incident| incident.what == damage(8).to_string()));
        // Where nothing may be written, no process tried to heal.
        let reading = Incidents::new(None);
        reading.note(&damage(0));
        reading.note_healed(&damage(0), None);
        assert!(unhealed(reading.last()).is_empty());
        assert!(logged(&folder.path().join("gone")).is_empty() && parse("no line\n\n").is_empty());
    }

    /// What errors name may have any character in it: the path of a folder, say.
    #[test]
    fn each_is_one_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let incidents = Incidents::new(Some(folder.path().to_owned()));
        let odd = "/mnt/a\n2026-11-22T12:00:00.000Z damage in b\r";
        incidents.note(&Error::io("flush", odd, std::io::Error::other("no")));
        incidents.note(&read_error(0));
        let found = logged(folder.path());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].what.contains("/mnt/a 2026-11-22T12:00:00.000Z damage in b"), "{found:?}");
        assert!(found.iter().all(|incident| !incident.unhealed));
        assert_eq!(found[0].what, incidents.last()[0].what);
    }

    #[test]
    fn neither_memory_nor_file_grows_without_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE_NAME), vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        let incidents = Incidents::new(Some(folder.path().to_owned()));
        (0..1000).for_each(|offset| incidents.note(&read_error(offset)));
        assert_eq!(incidents.last().len(), KEPT_MAX);
        let length = |name| std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert!(length(FILE_NAME) < FILE_BYTES_MAX && length(FORMER_NAME) > FILE_BYTES_MAX);
        // A folder that is gone takes only the file with it.
        Incidents::new(Some(folder.path().join("gone"))).note(&read_error(0));
    }
}

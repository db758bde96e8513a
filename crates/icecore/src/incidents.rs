//! What went wrong with the disk, kept where somebody finds it: in memory for `status`, and in a text file beside the
//! pool that is still there after the process has gone.

use crate::error::Error;
use crate::units::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The file in the pool's folder.
pub const FILE_NAME: &str = "errors.log";
/// Its former contents, once it has grown long.
const FORMER_NAME: &str = "errors.log.old";
/// The file is begun anew beyond this.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Incidents kept in memory.
const KEPT_MAX: usize = 64;

/// A call that the disk refused, or bytes that it did not give back as they were written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Incident {
    /// When it was met first.
    pub when: Timestamp,
    /// What happened, and where.
    pub what: String,
    /// How often it was met.
    pub times: u64,
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
        Self::keep(&self.directory, &mut inner, error.to_string());
    }

    /// Notes that what an error is about was written again from its copy; `false`: that it could be read there, and not
    /// be written again.
    pub(crate) fn note_healed(&self, error: &Error, written: bool) {
        let outcome = if written { "healed from its copy" } else { "read from its copy" };
        Self::keep(&self.directory, &mut self.inner.lock(), format!("{outcome}: {error}"));
    }

    fn keep(directory: &Option<PathBuf>, inner: &mut Inner, what: String) {
        if let Some(known) = inner.kept.iter_mut().find(|known| known.what == what) {
            known.times += 1;
            return;
        }
        if inner.kept.len() == KEPT_MAX {
            inner.kept.pop_front();
        }
        let incident = Incident { when: Timestamp::now(), what, times: 1 };
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

fn append(directory: &Path, incident: &Incident) -> std::io::Result<()> {
    let path = directory.join(FILE_NAME);
    if std::fs::metadata(&path).is_ok_and(|found| found.len() > FILE_BYTES_MAX) {
        std::fs::rename(&path, directory.join(FORMER_NAME))?;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    // One call, so that lines of several writers do not mix.
    file.write_all(format!("{} {}\n", incident.when.to_rfc3339(), incident.what).as_bytes())
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

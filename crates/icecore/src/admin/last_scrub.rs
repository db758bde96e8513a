//! What the last scrub found, kept beside the pool: a text file of a few lines that nothing depends on. A
//! monitoring program wants to know it long after the scrub's own process has gone.

use crate::pool::ScrubReport;
use crate::side_file;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file.
pub const FILE_NAME: &str = "last-scrub";
/// More than that is not ours.
const BYTES_MAX: u64 = 4096;

/// The outcome of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastScrub {
    /// When it ended.
    pub when: Timestamp,
    /// When it began, or the one that it went on with.
    pub began: Timestamp,
    /// Bytes verified.
    pub verified: u64,
    /// Damaged blocks.
    pub damaged: u64,
    /// Places that were damaged, or lacked their copy, and of which nothing is lost.
    pub spare: u64,
    /// Whether it went to the end.
    pub complete: bool,
    /// When the last one began that looked at everything, and found all of it as it should be: this one, or one
    /// before. What was met before that is over.
    pub clean: Option<Timestamp>,
}

impl LastScrub {
    /// `began`: when this one did.
    pub(crate) fn of(report: &ScrubReport, began: Timestamp) -> Self {
        let ScrubReport { verified, damaged, spare, complete, resumed, .. } = *report;
        let (when, began) = (Timestamp::now(), resumed.unwrap_or(began));
        let clean = (complete && damaged == 0 && spare == 0).then_some(began);
        Self { when, began, verified, damaged, spare, complete, clean }
    }

    /// Reads the file, if there is one that makes sense.
    pub(crate) fn load(directory: &Path) -> Option<Self> {
        Self::parse(&side_file::read(&directory.join(FILE_NAME), BYTES_MAX)?)
    }

    /// Writes the file, if this says more than what it says. Where it cannot be written, on read-only media
    /// for instance, nothing is lost but this.
    pub(crate) fn store(&self, directory: &Path) {
        let _ = side_file::replace(&directory.join(FILE_NAME), &self.after(Self::load(directory)).text());
    }

    /// What is to be remembered when this comes after `former`. One that was cut off says nothing about what
    /// it did not come to: of that the former one has the last word, unless this found more.
    fn after(self, former: Option<Self>) -> Self {
        let tells_less = |former: &Self| {
            !self.complete
                && self.damaged <= former.damaged
                && (former.complete || self.damaged < former.damaged)
        };
        let clean = self.clean.or(former.and_then(|former| former.clean));
        Self { clean, ..former.filter(tells_less).unwrap_or(self) }
    }

    /// What the file holds.
    #[doc(hidden)]
    #[must_use]
    pub fn text(&self) -> String {
        let Self { when, began, verified, damaged, spare, complete, clean } = self;
        let (when, began) = (when.to_rfc3339(), began.to_rfc3339());
        let clean = clean.map_or_else(String::new, |clean| format!("clean {}\n", clean.to_rfc3339()));
        format!(
            "when {when}\nbegan {began}\nverified_bytes {verified}\ndamaged_blocks {damaged}\n\
             harmless_places {spare}\ncomplete {complete}\n{clean}"
        )
    }

    /// Takes apart what a file holds; `None` if that makes no sense.
    #[doc(hidden)]
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key))
                .map(|(_, it)| it)
        };
        Some(Self {
            when: Timestamp::from_rfc3339(value("when")?)?,
            began: Timestamp::from_rfc3339(value("began")?)?,
            spare: value("harmless_places")?.parse().ok()?,
            verified: value("verified_bytes")?.parse().ok()?,
            damaged: value("damaged_blocks")?.parse().ok()?,
            complete: value("complete")?.parse().ok()?,
            clean: value("clean").and_then(Timestamp::from_rfc3339),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nonsense_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(LastScrub::load(folder.path()), None);
        let last = LastScrub {
            when: Timestamp(1_000_000),
            began: Timestamp(0),
            verified: 7,
            damaged: 1,
            spare: 2,
            complete: true,
            clean: None,
        };
        last.store(folder.path());
        assert_eq!(LastScrub::load(folder.path()), Some(last));
        std::fs::write(folder.path().join(FILE_NAME), b"when \xff\n").unwrap();
        assert_eq!(LastScrub::load(folder.path()), None);
        last.store(&folder.path().join("gone"));
        assert_eq!(LastScrub::parse("when 1970-01-01T00:00:00Z\nverified_bytes x\n"), None);
    }

    #[test]
    fn the_last_one_that_was_clean_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let report = |spare, complete| ScrubReport { spare, complete, ..ScrubReport::default() };
        let second = |second: i64| Timestamp(second * 1_000_000_000);
        for (began, report, clean) in [
            (1, report(1, true), None),
            (2, report(0, true), Some(2)),
            (3, report(1, true), Some(2)),
            (4, report(0, false), Some(2)),
            (5, report(0, true), Some(5)),
        ] {
            LastScrub::of(&report, second(began)).store(folder.path());
            assert_eq!(LastScrub::load(folder.path()).unwrap().clean, clean.map(second), "{began}");
        }
    }

    #[test]
    fn one_that_was_cut_off_does_not_make_damage_forgotten() {
        let one = |when, damaged, complete| LastScrub {
            when: Timestamp(when),
            began: Timestamp(0),
            verified: 7,
            damaged,
            spare: 0,
            complete,
            clean: None,
        };
        let whole = one(1, 3, true);
        assert_eq!(one(2, 0, false).after(None), one(2, 0, false));
        assert_eq!(one(2, 0, false).after(Some(whole)), whole);
        assert_eq!(one(2, 3, false).after(Some(whole)), whole);
        assert_eq!(one(2, 4, false).after(Some(whole)), one(2, 4, false));
        assert_eq!(one(2, 0, true).after(Some(whole)), one(2, 0, true));
        assert_eq!(one(3, 0, false).after(Some(one(2, 1, false))), one(2, 1, false));
        assert_eq!(one(3, 1, false).after(Some(one(2, 1, false))), one(3, 1, false));
        let clean = one(1, 0, true);
        assert_eq!(one(2, 0, false).after(Some(clean)), clean);
        // On disk, too.
        let folder = tempfile::tempdir().unwrap();
        let whole = one(1_000_000, 3, true);
        whole.store(folder.path());
        one(1_000_000_000, 0, false).store(folder.path());
        assert_eq!(LastScrub::load(folder.path()), Some(whole));
    }
}

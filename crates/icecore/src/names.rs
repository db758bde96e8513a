//! Names of datasets, snapshots and ranges of snapshots: what they may look like, and precise errors
//! for those that may not.
//!
//! A dataset's name is one or more components separated by `/`; a snapshot's is the dataset's, `@` and one
//! more component. Components are made of letters, digits, `_`, `.`, `:` and `-`. So a name never needs
//! quoting in a shell, a URL or a path, and `@`, `%` and `/` always mean what they mean in the dialect.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name of a dataset or snapshot in bytes, everything included (`a/b@c`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest name of a user property, and longest tag of a hold, in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// What a mount calls the folder in each dataset that has its snapshots. No dataset is called so.
pub const SNAPSHOT_FOLDER: &str = ".icecore";
/// Longest value of a user property in bytes.
pub const VALUE_BYTES_MAX: usize = 8192;

/// The name of a dataset, checked: `db` or `team/db`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatasetName(String);

/// The name of a snapshot, checked: `team/db@monday`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotName {
    full: String,
    at: usize,
}

/// The name of a version, checked: of a dataset (then its head is meant) or of a snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VersionName {
    /// A dataset: its head.
    Head(DatasetName),
    /// A snapshot.
    Snapshot(SnapshotName),
}

/// What a destroy is aimed at. The names inside are as given; [`DestroyTarget::check`] judges them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum DestroyTarget {
    /// One snapshot, by its full name `a@x`.
    Snapshot(String),
    /// The snapshots of one dataset from `first` to `last`, both included: `a@x%y`.
    Range {
        /// The dataset.
        dataset: String,
        /// The short name of the older end.
        first: String,
        /// The short name of the newer end.
        last: String,
    },
    /// Any snapshots, in one step: what they give back together is more than the sum of what each does.
    Snapshots {
        /// Datasets, and the short names of their snapshots.
        of: Vec<(String, Vec<String>)>,
    },
    /// A dataset.
    Dataset {
        /// Its name.
        name: String,
        /// Its snapshots and the datasets below it as well.
        recursive: bool,
    },
}

impl DatasetName {
    /// Checks `text` and makes a name of it. [`Error::BadName`] says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self> {
        if text.contains('@') {
            return Err(bad(text, "a dataset is meant, and '@' makes it the name of a snapshot"));
        }
        check_length(text)?;
        check_dataset_part(text, text)?;
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The dataset one level up; `None` at the top.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// Whether this is `other` or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The snapshot `short` of this dataset.
    pub fn snapshot(&self, short: &str) -> Result<SnapshotName> {
        SnapshotName::parse(&format!("{}@{short}", self.0))
    }
}

impl SnapshotName {
    /// Checks `text` and makes a name of it. [`Error::BadName`] says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((dataset, short)) = text.split_once('@') else {
            return Err(bad(text, "a snapshot is meant: dataset@snapshot"));
        };
        check_length(text)?;
        check_dataset_part(text, dataset)?;
        check_snapshot_part(text, short)?;
        Ok(Self { full: text.to_owned(), at: dataset.len() })
    }

    /// The full name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// The name of the dataset as text.
    #[must_use]
    pub fn dataset_str(&self) -> &str {
        &self.full[..self.at]
    }

    /// The name of the dataset.
    #[must_use]
    pub fn dataset(&self) -> DatasetName {
        DatasetName(self.dataset_str().to_owned())
    }

    /// What follows the `@`.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.full[self.at + 1..]
    }
}

impl VersionName {
    /// Checks `text`, which names a snapshot if there is an `@` in it and a dataset otherwise.
    pub fn parse(text: &str) -> Result<Self> {
        if text.contains('@') {
            SnapshotName::parse(text).map(Self::Snapshot)
        } else {
            DatasetName::parse(text).map(Self::Head)
        }
    }

    /// The full name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Head(name) => name.as_str(),
            Self::Snapshot(name) => name.as_str(),
        }
    }
}

impl DestroyTarget {
    /// Checks every name inside. [`Error::BadName`] says which rule is broken.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Snapshot(name) => SnapshotName::parse(name).map(drop),
            Self::Dataset { name, .. } => DatasetName::parse(name).map(drop),
            Self::Range { dataset, first, last } => {
                let dataset = DatasetName::parse(dataset)?;
                dataset.snapshot(first)?;
                dataset.snapshot(last).map(drop)
            }
            Self::Snapshots { of } => of.iter().try_for_each(|(dataset, snapshots)| {
                let dataset = DatasetName::parse(dataset)?;
                snapshots.iter().try_for_each(|short| dataset.snapshot(short).map(drop))
            }),
        }
    }
}

/// Reads what a destroy is aimed at: `a` (a dataset), `a@x` (a snapshot) or `a@x%y` (a range, both ends
/// included). `recursive` concerns datasets only.
pub fn parse_target(text: &str, recursive: bool) -> Result<DestroyTarget> {
    let Some((dataset, short)) = text.split_once('@') else {
        return DatasetName::parse(text).map(|name| DestroyTarget::Dataset { name: name.0, recursive });
    };
    let Some((first, last)) = short.split_once('%') else {
        return SnapshotName::parse(text).map(|name| DestroyTarget::Snapshot(name.full));
    };
    check_dataset_part(text, dataset)?;
    if first.is_empty() || last.is_empty() {
        return Err(bad(text, "a range names both its ends: dataset@first%last"));
    }
    if last.contains('%') {
        return Err(bad(text, "a range has two ends and one '%'"));
    }
    check_snapshot_part(text, first)?;
    check_snapshot_part(text, last)?;
    let target =
        DestroyTarget::Range { dataset: dataset.to_owned(), first: first.to_owned(), last: last.to_owned() };
    target.check()?;
    Ok(target)
}

/// Checks the name of a user property: letters, digits, `_`, `.`, `:` and `-`, with a `:` in it so that it
/// can never collide with a property of the store's own.
pub fn check_property_name(name: &str) -> Result<()> {
    check_key(name, "the name of a property")?;
    if name.contains(':') {
        Ok(())
    } else {
        Err(bad(name, "a user property has a ':' in its name, as in team:owner"))
    }
}

/// Checks the value of a user property: any text without control characters, up to [`VALUE_BYTES_MAX`].
pub fn check_property_value(name: &str, value: &str) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        let length = value.len();
        return Err(Error::Invalid(format!(
            "the value of property {name} has {length} bytes: {VALUE_BYTES_MAX} at most"
        )));
    }
    match value.chars().find(|character| character.is_control()) {
        Some(found) => Err(Error::Invalid(format!(
            "the value of property {name} contains {found:?}: control characters are not kept"
        ))),
        None => Ok(()),
    }
}

/// Checks the tag of a hold: letters, digits, `_`, `.`, `:` and `-`.
pub fn check_tag(tag: &str) -> Result<()> {
    check_key(tag, "a tag")
}

fn check_key(text: &str, what: &str) -> Result<()> {
    if text.is_empty() {
        return Err(bad(text, format!("{what} is not empty")));
    }
    if text.len() > KEY_BYTES_MAX {
        return Err(bad(shortened(text), format!("{} bytes long: {KEY_BYTES_MAX} at most", text.len())));
    }
    match text.chars().find(|character| !is_allowed(*character)) {
        Some(found) => Err(bad(text, not_allowed(found))),
        None => Ok(()),
    }
}

fn check_length(text: &str) -> Result<()> {
    if text.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(bad(shortened(text), format!("{} bytes long in all: {NAME_BYTES_MAX} at most", text.len())))
}

/// `whole` is what the error shows; `part` is what is checked.
fn check_dataset_part(whole: &str, part: &str) -> Result<()> {
    if part.is_empty() {
        return Err(bad(whole, "the name of the dataset is empty"));
    }
    if part.starts_with('/') || part.ends_with('/') {
        return Err(bad(whole, "the name of a dataset neither starts nor ends with '/'"));
    }
    for component in part.split('/') {
        if component.is_empty() {
            return Err(bad(whole, "two '/' in a row leave an empty component"));
        }
        check_component(whole, component)?;
        if component == SNAPSHOT_FOLDER {
            return Err(bad(whole, "on a mount the folder of that name has the snapshots"));
        }
    }
    Ok(())
}

fn check_snapshot_part(whole: &str, part: &str) -> Result<()> {
    if part.is_empty() {
        return Err(bad(whole, "the name of the snapshot is empty"));
    }
    if part.contains('@') {
        return Err(bad(whole, "there is more than one '@'"));
    }
    if part.contains('/') {
        return Err(bad(whole, "the name of a snapshot has no '/' in it"));
    }
    check_component(whole, part)
}

/// `.` and `..` would mean something else in a path, and a leading `-` something else on a command line.
fn check_component(whole: &str, component: &str) -> Result<()> {
    if let Some(found) = component.chars().find(|character| !is_allowed(*character)) {
        return Err(bad(shortened(whole), not_allowed(found)));
    }
    if component == "." || component == ".." {
        return Err(bad(whole, "'.' and '..' are not names"));
    }
    if component.starts_with('-') {
        return Err(bad(whole, "no component starts with '-'"));
    }
    Ok(())
}

const fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | ':' | '-')
}

fn not_allowed(found: char) -> String {
    let allowed = "letters, digits, '_', '.', ':' and '-' are allowed";
    let range = if found == '%' {
        " ('%' makes a range of snapshots, a@first%last, which destroy and list --reclaim take)"
    } else {
        ""
    };
    format!("{found:?} is not allowed in a name; {allowed}{range}")
}

/// A name that is far too long is not repeated in full.
fn shortened(text: &str) -> String {
    if text.len() <= NAME_BYTES_MAX {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(40).collect();
    kept.push_str("...");
    kept
}

fn bad(name: impl Into<String>, reason: impl Into<String>) -> Error {
    Error::BadName { name: name.into(), reason: reason.into() }
}

macro_rules! text_like {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    )*};
}

text_like!(DatasetName, SnapshotName, VersionName);

impl fmt::Display for DestroyTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(name) | Self::Dataset { name, .. } => formatter.write_str(name),
            Self::Range { dataset, first, last } => write!(formatter, "{dataset}@{first}%{last}"),
            Self::Snapshots { of } => {
                let names =
                    of.iter().flat_map(|(dataset, all)| all.iter().map(move |short| (dataset, short)));
                for (index, (dataset, short)) in names.enumerate() {
                    write!(formatter, "{}{dataset}@{short}", if index > 0 { " " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;

//! The properties that the store itself knows, in one table: columns of `list`, answers of `get`, keys to
//! sort by, and the help about them.

use crate::exit;
use crate::format;
use crate::output::Align;
use icecore::limits::Limit;
use icecore::units::{ByteLength, Timestamp};
use icecore::{EntryKind, ListEntry};
use serde_json::json;

/// A property that the store knows.
pub struct Native {
    pub name: &'static str,
    /// Other names that are understood.
    aliases: &'static [&'static str],
    header: &'static str,
    align: Align,
    help: &'static str,
    value: fn(&ListEntry) -> Value,
}

/// Every native property, in the order of `get all`.
pub const NATIVE: &[Native] = &[
    Native {
        name: "name",
        aliases: &[],
        header: "NAME",
        align: Align::Left,
        help: "name of the dataset or snapshot",
        value: |entry| Value::Text(entry.name.clone()),
    },
    Native {
        name: "type",
        aliases: &[],
        header: "TYPE",
        align: Align::Left,
        help: "dataset or snapshot",
        value: |entry| Value::Text(kind_name(entry.kind).to_owned()),
    },
    Native {
        name: "creation",
        aliases: &["created"],
        header: "CREATION",
        align: Align::Left,
        help: "when it was made",
        value: |entry| Value::Time(entry.created),
    },
    Native {
        name: "used",
        aliases: &[],
        header: "USED",
        align: Align::Right,
        help: "bytes that destroying it alone gives back",
        value: |entry| Value::Size(entry.used),
    },
    Native {
        name: "available",
        aliases: &["avail"],
        header: "AVAIL",
        align: Align::Right,
        help: "bytes that can still be written to a dataset",
        value: |entry| entry.available.map_or(Value::None, Value::Size),
    },
    Native {
        name: "referenced",
        aliases: &["refer"],
        header: "REFER",
        align: Align::Right,
        help: "bytes that can be reached from it",
        value: |entry| Value::Size(entry.referenced),
    },
    Native {
        name: "written",
        aliases: &[],
        header: "WRITTEN",
        align: Align::Right,
        help: "bytes written since the snapshot before it",
        value: |entry| Value::Size(entry.written),
    },
    Native {
        name: "origin",
        aliases: &[],
        header: "ORIGIN",
        align: Align::Left,
        help: "the snapshot that a clone was made of",
        value: |entry| entry.origin.clone().map_or(Value::None, Value::Text),
    },
    Native {
        name: "clones",
        aliases: &[],
        header: "CLONES",
        align: Align::Left,
        help: "the clones that were made of a snapshot, or hang on it",
        value: |entry| match entry.kind {
            EntryKind::Dataset => Value::None,
            EntryKind::Snapshot => Value::Names(entry.clones.clone()),
        },
    },
    Native {
        name: "holds",
        aliases: &["userrefs"],
        header: "HOLDS",
        align: Align::Right,
        help: "number of holds on a snapshot",
        value: |entry| match entry.kind {
            EntryKind::Dataset => Value::None,
            EntryKind::Snapshot => Value::Count(u64::from(entry.holds)),
        },
    },
    Native {
        name: "quota",
        aliases: &[],
        header: "QUOTA",
        align: Align::Right,
        help: "most that a dataset may use, with all that belongs to it",
        value: |entry| limit(entry, Limit::Quota),
    },
    Native {
        name: "refquota",
        aliases: &[],
        header: "REFQUOTA",
        align: Align::Right,
        help: "most that a dataset may refer to",
        value: |entry| limit(entry, Limit::RefQuota),
    },
    Native {
        name: "reservation",
        aliases: &[],
        header: "RESERV",
        align: Align::Right,
        help: "bytes kept free for a dataset with all that belongs to it",
        value: |entry| limit(entry, Limit::Reservation),
    },
    Native {
        name: "refreservation",
        aliases: &[],
        header: "REFRESERV",
        align: Align::Right,
        help: "bytes kept free for what a dataset refers to",
        value: |entry| limit(entry, Limit::RefReservation),
    },
];

/// A limit of a dataset; snapshots have none.
fn limit(entry: &ListEntry, limit: Limit) -> Value {
    match entry.kind {
        EntryKind::Dataset => entry.limits.get(limit).map_or(Value::Unlimited, Value::Size),
        EntryKind::Snapshot => Value::None,
    }
}

/// A value of a property.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Value {
    None,
    /// A limit that is not set.
    Unlimited,
    Text(String),
    Names(Vec<String>),
    Count(u64),
    Size(ByteLength),
    Time(Timestamp),
}

impl Value {
    /// As text; `exact` for scripts: bytes, and seconds since 1970.
    pub fn text(&self, exact: bool) -> String {
        match self {
            Self::None => "-".to_owned(),
            Self::Unlimited => "none".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Names(names) if names.is_empty() => "-".to_owned(),
            Self::Names(names) => names.join(","),
            Self::Count(count) => count.to_string(),
            Self::Size(size) if exact => size.to_string(),
            Self::Size(size) => format::size(*size),
            Self::Time(time) if exact => format::epoch_seconds(*time).to_string(),
            Self::Time(time) => format::time(*time),
        }
    }

    /// As JSON: sizes are numbers, times RFC 3339 to the nanosecond.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::None | Self::Unlimited => serde_json::Value::Null,
            Self::Text(text) => json!(text),
            Self::Names(names) => json!(names),
            Self::Count(count) => json!(count),
            Self::Size(size) => json!(size.get()),
            Self::Time(time) => json!(format::exact_time(*time)),
        }
    }
}

/// A property that was asked for: one of the store's, or one of the user's.
#[derive(Clone, Copy)]
pub enum Property<'a> {
    Native(&'static Native),
    User(&'a str),
}

impl<'a> Property<'a> {
    /// Finds the property of that name. A name with a colon is a user property, whether it is set or not.
    pub fn parse(name: &'a str) -> anyhow::Result<Self> {
        if name.contains(':') {
            icecore::names::check_property_name(name).map_err(icecore::admin::Failure::from)?;
            return Ok(Self::User(name));
        }
        let lower = name.to_ascii_lowercase();
        NATIVE
            .iter()
            .find(|native| native.name == lower || native.aliases.contains(&lower.as_str()))
            .map(Self::Native)
            .ok_or_else(|| {
                let known: Vec<_> = NATIVE.iter().map(|native| native.name).collect();
                let known = known.join(", ");
                exit::usage(format!(
                    "there is no property {name:?}: use one of {known}, or a user property as in team:owner"
                ))
            })
    }

    /// Finds all of a list with commas between.
    pub fn parse_list(names: &'a str) -> anyhow::Result<Vec<Self>> {
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Self::parse).collect()
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Native(native) => native.name,
            Self::User(name) => name,
        }
    }

    /// Header and alignment of its column.
    pub fn column(&self) -> (String, Align) {
        match self {
            Self::Native(native) => (native.header.to_owned(), native.align),
            Self::User(name) => (name.to_uppercase(), Align::Left),
        }
    }

    /// Its value. `user` knows the user properties of the entry.
    pub fn value(&self, entry: &ListEntry, user: impl FnOnce(&str) -> Option<String>) -> Value {
        match self {
            Self::Native(native) => (native.value)(entry),
            Self::User(name) => user(name).map_or(Value::None, Value::Text),
        }
    }
}

/// `dataset` or `snapshot`.
pub const fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Dataset => "dataset",
        EntryKind::Snapshot => "snapshot",
    }
}

/// The table, as help shows it.
pub fn help() -> String {
    let mut text = String::from("Properties:\n");
    for native in NATIVE {
        let names =
            std::iter::once(&native.name).chain(native.aliases).copied().collect::<Vec<_>>().join(", ");
        text.push_str(&format!("  {names:<19} {}\n", native.help));
    }
    text.push_str("  with a colon        user properties, as in team:owner");
    text
}

/// What lists are sorted by: datasets by name, level by level, each followed by its snapshots, oldest first.
pub fn natural_key(entry: &ListEntry) -> impl Ord + use<> {
    let (dataset, short) = entry.name.split_once('@').unwrap_or((&entry.name, ""));
    // The separator goes before every character that a name can have.
    let levels = dataset.replace('/', "\0");
    (levels, entry.kind == EntryKind::Snapshot, entry.created, short.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, created: i64) -> ListEntry {
        ListEntry {
            name: name.to_owned(),
            kind: if name.contains('@') { EntryKind::Snapshot } else { EntryKind::Dataset },
            used: ByteLength(1536),
            available: None,
            referenced: ByteLength(2048),
            written: ByteLength(0),
            created: Timestamp(created),
            origin: None,
            limits: icecore::limits::DatasetLimits::default(),
            holds: 2,
            clones: vec!["b".into(), "c".into()],
        }
    }

    #[test]
    fn every_name_and_alias_leads_to_one_property() {
        let mut seen = std::collections::HashSet::new();
        for native in NATIVE {
            for name in std::iter::once(&native.name).chain(native.aliases) {
                assert!(seen.insert(*name), "{name} is there twice");
                assert_eq!(Property::parse(&name.to_uppercase()).unwrap().name(), native.name);
            }
        }
        assert!(Property::parse("nonsense").is_err());
        assert!(matches!(Property::parse("team:owner"), Ok(Property::User("team:owner"))));
        assert!(Property::parse("team:ow ner").is_err());
        assert_eq!(Property::parse_list("name, used,avail").unwrap().len(), 3);
    }

    #[test]
    fn values_are_shown_for_people_scripts_and_programs() {
        let entry = entry("a@x", 1_500_000_000_000_000_000);
        let shown = |name: &str, exact| Property::parse(name).unwrap().value(&entry, |_| None).text(exact);
        assert_eq!((shown("used", false), shown("used", true)), ("1.50K".into(), "1536".into()));
        assert_eq!(shown("creation", false), "2017-07-14T02:40:00Z");
        assert_eq!(shown("creation", true), "1500000000");
        assert_eq!(shown("clones", true), "b,c");
        assert_eq!(shown("avail", true), "-");
        assert_eq!(shown("x:y", true), "-");
        let json = Property::parse("used").unwrap().value(&entry, |_| None).json();
        assert_eq!(json, json!(1536));
    }

    #[test]
    fn snapshots_follow_their_dataset_in_order_of_age() {
        let mut entries =
            [entry("a-b", 1), entry("a@b", 9), entry("a/c", 1), entry("a", 5), entry("a@z", 2)].to_vec();
        entries.sort_by_cached_key(natural_key);
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "a@z", "a@b", "a/c", "a-b"]);
    }
}

//! Pins: readers' holds on versions. A pin keeps what its version reaches, and nothing else.
//!
//! A snapshot holds all that it reaches for as long as it is in the tree of versions. So a pin on a snapshot
//! keeps the snapshot there, also when it was destroyed meanwhile: see `State::doom_unread`. A pin on a head
//! keeps that head in the tree as well, and beside that what the head reached at the moment of the pin and
//! dropped later: see `state/graveyard.rs`.

use crate::sync::{Arc, Mutex};
use crate::units::{LogAddress, Marks, Stream, Timestamp, VersionId};
use std::collections::{BTreeMap, BTreeSet};

/// What a pin holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hold {
    /// Everything that lived at the moment of the pin.
    Pool,
    /// What a head reached at the moment of the pin.
    Head(VersionId),
    /// What a snapshot reaches.
    Snapshot(VersionId),
}

impl Hold {
    /// The version that has to stay in the tree of versions.
    const fn version(self) -> Option<VersionId> {
        match self {
            Self::Pool => None,
            Self::Head(version) | Self::Snapshot(version) => Some(version),
        }
    }
}

/// Which pins may reach blocks that died, beside those on the whole pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Readers {
    /// None.
    None,
    /// Pins on this head.
    Of(VersionId),
    /// Pins on any head.
    Any,
}

/// All pins.
#[derive(Default)]
pub(crate) struct Pins {
    taken: Mutex<BTreeMap<(Hold, u64), Taken>>,
    /// Those that may last, with what people want to know of them.
    named: Mutex<BTreeMap<u64, Named>>,
}

/// A pin that may last, as people see it.
#[derive(Clone)]
pub(crate) struct Named {
    pub hold: Hold,
    pub moment: u64,
    pub marks: Marks,
    /// What is read, by its name at that time.
    pub version: Arc<str>,
    pub since: Timestamp,
    pub reader: Option<Arc<ReaderName>>,
}

/// Who reads a [`crate::View`].
#[derive(Debug)]
pub struct ReaderName {
    /// Another process, on whose behalf this one reads.
    pub process: Option<u32>,
    /// What reads in the process: a few words.
    pub what: Option<String>,
}

/// Pins of one kind and moment.
struct Taken {
    count: usize,
    /// What has an address from here on was born later.
    marks: Marks,
}

impl Pins {
    /// Pins something as of `moment`, when the streams had come to `marks`.
    pub(crate) fn pin(self: &Arc<Self>, hold: Hold, moment: u64, marks: Marks) -> Pin {
        let key = (hold, moment);
        self.taken.lock().entry(key).or_insert(Taken { count: 0, marks }).count += 1;
        Pin { pins: Arc::clone(self), key, number: None }
    }

    /// Of the pins that may reach what died up to `until`, the newest: its moment, and where the streams were
    /// then. What has an address from there on is reached by none of them.
    pub(crate) fn newest(&self, readers: Readers, until: u64) -> Option<(u64, Marks)> {
        let taken = self.taken.lock();
        let of = |hold| {
            let before = taken.range((hold, 0)..(hold, until)).next_back();
            before.map(|((_, moment), taken)| (*moment, taken.marks))
        };
        let heads = || {
            let heads =
                taken.iter().filter(|((hold, moment), _)| matches!(hold, Hold::Head(_)) && *moment < until);
            heads.map(|((_, moment), taken)| (*moment, taken.marks)).max_by_key(|(moment, _)| *moment)
        };
        let other = match readers {
            Readers::None => None,
            Readers::Of(head) => of(Hold::Head(head)),
            Readers::Any => heads(),
        };
        [of(Hold::Pool), other].into_iter().flatten().max_by_key(|(moment, _)| *moment)
    }

    /// Whether one of these pins may reach a block that died at `moment`.
    pub(crate) fn reach(&self, readers: Readers, moment: u64, stream: Stream, address: LogAddress) -> bool {
        self.newest(readers, moment).is_some_and(|(_, marks)| address < marks.of(stream))
    }

    /// Whether a version has to stay in the tree of versions.
    pub(crate) fn holds(&self, version: VersionId) -> bool {
        let taken = self.taken.lock();
        let is_held = |hold| taken.range((hold, 0)..=(hold, u64::MAX)).next().is_some();
        is_held(Hold::Head(version)) || is_held(Hold::Snapshot(version))
    }

    /// The versions that have to stay in the tree of versions.
    pub(crate) fn versions(&self) -> BTreeSet<VersionId> {
        self.taken.lock().keys().filter_map(|(hold, _)| hold.version()).collect()
    }

    /// The heads that are pinned, and where the streams were at the moment of the oldest pin on each.
    pub(crate) fn heads(&self) -> BTreeMap<VersionId, Marks> {
        let mut heads = BTreeMap::new();
        for ((hold, _), taken) in &*self.taken.lock() {
            if let Hold::Head(head) = hold {
                heads.entry(*head).or_insert(taken.marks);
            }
        }
        heads
    }

    /// The pins that may last.
    pub(crate) fn named(&self) -> Vec<Named> {
        self.named.lock().values().cloned().collect()
    }

    /// Number of pins.
    pub(crate) fn count(&self) -> usize {
        self.taken.lock().values().map(|taken| taken.count).sum()
    }
}

/// One pin; let go when dropped.
pub(crate) struct Pin {
    pins: Arc<Pins>,
    key: (Hold, u64),
    /// In [`Pins::named`].
    number: Option<u64>,
}

impl Pin {
    /// A pin that may last: it is shown.
    pub(crate) fn named(mut self, version: Arc<str>, since: Timestamp) -> Self {
        let (hold, moment) = self.key;
        let marks = self.pins.taken.lock().get(&self.key).map(|taken| taken.marks).unwrap_or_default();
        let mut named = self.pins.named.lock();
        let number = named.last_key_value().map_or(0, |(last, _)| last + 1);
        named.insert(number, Named { hold, moment, marks, version, since, reader: None });
        drop(named);
        self.number = Some(number);
        self
    }

    /// Says who reads.
    pub(crate) fn read_by(&self, reader: Arc<ReaderName>) {
        let mut named = self.pins.named.lock();
        if let Some(named) = self.number.and_then(|number| named.get_mut(&number)) {
            named.reader = Some(reader);
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let gone = self.pins.named.lock().remove(&number);
            drop(gone);
        }
        let mut all = self.pins.taken.lock();
        if let Some(taken) = all.get_mut(&self.key) {
            taken.count -= 1;
            if taken.count == 0 {
                all.remove(&self.key);
            }
        }
    }
}

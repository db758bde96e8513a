//! User properties and holds.

use super::Pool;
use crate::engine::Purpose;
use crate::error::{Error, Result};
use crate::limits::Limit;
use crate::names::{VersionName, check_property_name, check_property_value, check_tag};
use crate::operation::{Operation, Target};
use crate::retention;
use crate::state::State;
use crate::units::{ByteLength, DatasetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A hold: while a snapshot has one it cannot be destroyed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// Its tag.
    pub tag: String,
    /// When it was put on.
    pub created: Timestamp,
    /// When a prune may take it off.
    pub expires: Option<Timestamp>,
}

/// Begins the property of a snapshot that says when the hold of the tag behind it expires. Without such a
/// hold it means nothing; so it is set before the hold is put on, and goes after it.
const EXPIRES_PREFIX: &str = "icecore:hold.expires.";

/// Checks a user property that a caller wants to set: those that Icecore reads itself have to make sense.
pub(super) fn check_property(key: &str, value: &str) -> Result<()> {
    check_property_name(key)?;
    check_property_value(key, value)?;
    if key.starts_with(EXPIRES_PREFIX) {
        return Err(Error::Invalid(format!("{key} goes with a hold: `icecore hold --expires` sets it")));
    }
    if retention::MONITOR_PROPERTIES.contains(&key) {
        return retention::parse_duration(value).map(drop);
    }
    if key.starts_with(retention::RESERVED_PREFIX) && !key.starts_with(retention::PROPERTY_PREFIX) {
        let prefix = retention::RESERVED_PREFIX;
        return Err(Error::Invalid(format!("{key} means nothing: names with {prefix} are icecore's own")));
    }
    retention::check_property(key, value)
}

/// Where a property's value comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PropertySource {
    /// Set on the thing itself.
    Local,
    /// Set on this dataset above it.
    Inherited(String),
}

/// A user property.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it was set.
    pub source: PropertySource,
}

impl Pool {
    /// Puts a hold on a snapshot. Durable on return.
    ///
    /// # Errors
    /// [`Error::Exists`] if it has a hold of this tag, [`Error::NotFound`], [`Error::BadName`].
    pub fn hold(&self, tag: &str, snapshot: &str) -> Result<()> {
        self.hold_until(tag, snapshot, None)
    }

    /// Puts a hold on a snapshot that may be taken off again after a moment. Nothing happens at that moment:
    /// the next prune takes it off. Durable on return.
    ///
    /// # Errors
    /// As for [`Pool::hold`].
    pub fn hold_until(&self, tag: &str, snapshot: &str, expires: Option<Timestamp>) -> Result<()> {
        check_tag(tag)?;
        if expires.is_some() {
            check_property_name(&format!("{EXPIRES_PREFIX}{tag}"))?;
        }
        let since = Some(self.engine().now());
        self.engine().with_room(|| self.change_hold(tag, snapshot, since, expires))
    }

    /// Takes a hold off a snapshot. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such hold.
    pub fn release(&self, tag: &str, snapshot: &str) -> Result<()> {
        self.engine().with_room(|| self.change_hold(tag, snapshot, None, None))
    }

    fn change_hold(
        &self,
        tag: &str,
        snapshot: &str,
        since: Option<Timestamp>,
        expires: Option<Timestamp>,
    ) -> Result<()> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let (_, version) = self.find_snapshot(&state, snapshot)?;
        let key = format!("{EXPIRES_PREFIX}{tag}");
        let row = state.catalogue.snapshot(version).expect("found");
        let (has, had_expiry) = (row.holds.contains_key(tag), row.properties.contains_key(&key));
        match (has, since) {
            (true, Some(_)) => return Err(Error::Exists { what: format!("hold {tag:?} on {snapshot}") }),
            (false, None) => return Err(Error::NotFound { what: format!("hold {tag:?} on {snapshot}") }),
            _ => {}
        }
        let hold = Operation::Hold { version, tag: tag.to_owned(), since };
        let value = expires.map(Timestamp::to_rfc3339);
        let changes_expiry = had_expiry || value.is_some();
        let expiry = Operation::SetProperty { target: Target::Snapshot(version), key, value };
        // A hold may have to go before its snapshot can.
        let purpose = if since.is_some() { Purpose::Data } else { Purpose::Freeing };
        let mut operations = vec![hold];
        if changes_expiry {
            operations.insert(if since.is_some() { 0 } else { 1 }, expiry);
        }
        for operation in operations {
            engine.append(&mut state, &operation, None, purpose)?;
        }
        self.finish(state)
    }

    /// The holds on a snapshot.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn holds(&self, snapshot: &str) -> Result<Vec<Hold>> {
        self.engine().check_open()?;
        let state = self.engine().state();
        let (_, version) = self.find_snapshot(&state, snapshot)?;
        let row = state.catalogue.snapshot(version).expect("found");
        let expires = |tag: &String| {
            let value = row.properties.get(&format!("{EXPIRES_PREFIX}{tag}"));
            value.and_then(|text| Timestamp::from_rfc3339(text))
        };
        let hold = |(tag, created): (&String, &Timestamp)| Hold {
            tag: tag.clone(),
            created: *created,
            expires: expires(tag),
        };
        Ok(row.holds.iter().map(hold).collect())
    }

    /// Sets a user property of a dataset or snapshot, or a limit of a dataset (see [`Limit`]) to bytes or
    /// `none`. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::BadName`].
    pub fn set_property(&self, name: &str, key: &str, value: &str) -> Result<()> {
        if let Some(limit) = Limit::from_name(key) {
            return self.set_limit(name, limit, limit.parse(value)?);
        }
        check_property(key, value)?;
        self.change_property(name, key, Some(value))
    }

    /// Sets a quota or reservation of a dataset, or takes it away. A quota below what is used only means that
    /// nothing more fits. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NoSpace`] for a reservation of what is not there; [`Error::Invalid`].
    pub fn set_limit(&self, dataset: &str, limit: Limit, value: Option<ByteLength>) -> Result<()> {
        let engine = self.engine();
        engine.with_room(|| {
            engine.admit()?;
            let mut state = engine.settled_state()?;
            let target = self.find_target(&state, dataset)?;
            let Target::Dataset(id) = target else {
                let message = format!("{dataset} is a snapshot, and a {} is for datasets", limit.name());
                return Err(Error::Invalid(message));
            };
            engine.check_new_limit(&state, id, limit, value)?;
            let key = limit.name().to_owned();
            let operation =
                Operation::SetProperty { target, key, value: value.map(|value| value.to_string()) };
            // On a full pool, limits have to be changed to get out of it.
            engine.append(&mut state, &operation, None, Purpose::Freeing)?;
            self.finish(state)
        })
    }

    /// Removes a user property, so that it is inherited from above again. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not set there.
    pub fn inherit_property(&self, name: &str, key: &str) -> Result<()> {
        check_property_name(key)?;
        self.change_property(name, key, None)
    }

    fn change_property(&self, name: &str, key: &str, value: Option<&str>) -> Result<()> {
        self.engine().with_room(|| self.try_change_property(name, key, value))
    }

    fn try_change_property(&self, name: &str, key: &str, value: Option<&str>) -> Result<()> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let target = self.find_target(&state, name)?;
        let local = local_properties(&state, target);
        if value.is_none() && !local.contains_key(key) {
            return Err(Error::NotFound { what: format!("property {key} of {name}") });
        }
        let operation =
            Operation::SetProperty { target, key: key.to_owned(), value: value.map(str::to_owned) };
        let purpose = if value.is_some() { Purpose::Data } else { Purpose::Freeing };
        engine.append(&mut state, &operation, None, purpose)?;
        self.finish(state)
    }

    fn find_target(&self, state: &State, name: &str) -> Result<Target> {
        Ok(match VersionName::parse(name)? {
            VersionName::Head(dataset) => Target::Dataset(state.catalogue.find(dataset.as_str())?),
            VersionName::Snapshot(_) => Target::Snapshot(self.find_snapshot(state, name)?.1),
        })
    }

    /// User properties of a dataset or snapshot, with those it inherits, ordered by name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn properties(&self, name: &str) -> Result<Vec<Property>> {
        self.engine().check_open()?;
        let state = self.engine().state();
        let target = self.find_target(&state, name)?;
        let mut found: BTreeMap<String, (String, PropertySource)> = BTreeMap::new();
        let mut add = |properties: &BTreeMap<String, String>, source: &PropertySource| {
            for (key, value) in properties.iter().filter(|(key, _)| key.contains(':')) {
                found.entry(key.clone()).or_insert_with(|| (value.clone(), source.clone()));
            }
        };
        add(local_properties(&state, target), &PropertySource::Local);
        let dataset = match target {
            Target::Dataset(_) => name,
            Target::Snapshot(_) => name.split('@').next().unwrap_or(name),
        };
        let is_snapshot = matches!(target, Target::Snapshot(_));
        let mut above = if is_snapshot { Some(dataset) } else { parent_of(dataset) };
        while let Some(name) = above {
            if let Ok(id) = state.catalogue.find(name) {
                add(dataset_properties(&state, id), &PropertySource::Inherited(name.to_owned()));
            }
            above = parent_of(name);
        }
        Ok(found.into_iter().map(|(name, (value, source))| Property { name, value, source }).collect())
    }
}

fn parent_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(parent, _)| parent)
}

fn dataset_properties(state: &State, id: DatasetId) -> &BTreeMap<String, String> {
    &state.catalogue.dataset(id).expect("found").properties
}

fn local_properties(state: &State, target: Target) -> &BTreeMap<String, String> {
    match target {
        Target::Dataset(id) => dataset_properties(state, id),
        Target::Snapshot(version) => &state.catalogue.snapshot(version).expect("found").properties,
    }
}

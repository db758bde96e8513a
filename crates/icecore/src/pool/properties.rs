//! User properties and holds.

use super::Pool;
use crate::engine::Purpose;
use crate::error::{Error, Result};
use crate::names::{VersionName, check_property_name, check_property_value, check_tag};
use crate::operation::{Operation, Target};
use crate::state::State;
use crate::units::{DatasetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A hold: while a snapshot has one it cannot be destroyed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// Its tag.
    pub tag: String,
    /// When it was put on.
    pub created: Timestamp,
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
        check_tag(tag)?;
        self.change_hold(tag, snapshot, Some(Timestamp::now()))
    }

    /// Takes a hold off a snapshot. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such hold.
    pub fn release(&self, tag: &str, snapshot: &str) -> Result<()> {
        self.change_hold(tag, snapshot, None)
    }

    fn change_hold(&self, tag: &str, snapshot: &str, since: Option<Timestamp>) -> Result<()> {
        self.engine().with_room(|| self.try_change_hold(tag, snapshot, since))
    }

    fn try_change_hold(&self, tag: &str, snapshot: &str, since: Option<Timestamp>) -> Result<()> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let (_, version) = self.find_snapshot(&state, snapshot)?;
        let has = state.catalogue.snapshot(version).expect("found").holds.contains_key(tag);
        match (has, since) {
            (true, Some(_)) => return Err(Error::Exists { what: format!("hold {tag:?} on {snapshot}") }),
            (false, None) => return Err(Error::NotFound { what: format!("hold {tag:?} on {snapshot}") }),
            _ => {}
        }
        let operation = Operation::Hold { version, tag: tag.to_owned(), since };
        // A hold may have to go before its snapshot can.
        let purpose = if since.is_some() { Purpose::Data } else { Purpose::Freeing };
        engine.append(&mut state, &operation, None, purpose)?;
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
        let holds = &state.catalogue.snapshot(version).expect("found").holds;
        Ok(holds.iter().map(|(tag, created)| Hold { tag: tag.clone(), created: *created }).collect())
    }

    /// Sets a user property of a dataset or snapshot. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::BadName`].
    pub fn set_property(&self, name: &str, key: &str, value: &str) -> Result<()> {
        check_property_name(key)?;
        check_property_value(key, value)?;
        self.change_property(name, key, Some(value))
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
            for (key, value) in properties {
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

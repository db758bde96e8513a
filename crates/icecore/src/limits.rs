//! Quotas and reservations of datasets, as they are set and shown. What they do is the business of the
//! state, which counts, and of the engine, which refuses.
//!
//! They are kept among the properties of a dataset, under names without a colon, which no user property has.

use crate::error::{Error, Result};
use crate::units::ByteLength;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A limit of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Limit {
    /// Most that the dataset may use, with its snapshots and the datasets below it.
    Quota,
    /// Most that its head may refer to.
    RefQuota,
    /// What is kept free for it, its snapshots and the datasets below it.
    Reservation,
    /// What is kept free for its head.
    RefReservation,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 4] = [Self::Quota, Self::RefQuota, Self::Reservation, Self::RefReservation];

    /// The name of the property.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::RefQuota => "refquota",
            Self::Reservation => "reservation",
            Self::RefReservation => "refreservation",
        }
    }

    /// The limit of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// Reads a value: bytes, or `none`.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn parse(self, value: &str) -> Result<Option<ByteLength>> {
        if value == "none" {
            return Ok(None);
        }
        let wrong =
            || Error::Invalid(format!("{}: {value:?} is neither a number of bytes nor none", self.name()));
        value.parse().map(|bytes| Some(ByteLength(bytes))).map_err(|_| wrong())
    }
}

/// The limits of one dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DatasetLimits {
    /// See [`Limit::Quota`].
    pub quota: Option<ByteLength>,
    /// See [`Limit::RefQuota`].
    pub refquota: Option<ByteLength>,
    /// See [`Limit::Reservation`].
    pub reservation: Option<ByteLength>,
    /// See [`Limit::RefReservation`].
    pub refreservation: Option<ByteLength>,
}

impl DatasetLimits {
    /// One of them.
    #[must_use]
    pub const fn get(&self, limit: Limit) -> Option<ByteLength> {
        match limit {
            Limit::Quota => self.quota,
            Limit::RefQuota => self.refquota,
            Limit::Reservation => self.reservation,
            Limit::RefReservation => self.refreservation,
        }
    }

    /// One of them, to change it.
    pub const fn get_mut(&mut self, limit: Limit) -> &mut Option<ByteLength> {
        match limit {
            Limit::Quota => &mut self.quota,
            Limit::RefQuota => &mut self.refquota,
            Limit::Reservation => &mut self.reservation,
            Limit::RefReservation => &mut self.refreservation,
        }
    }

    /// Whether none is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those among the properties of a dataset. What cannot be read is no limit: it was checked when it was
    /// set.
    pub(crate) fn of_properties(properties: &BTreeMap<String, String>) -> Self {
        let mut limits = Self::default();
        for limit in Limit::ALL {
            let value = properties.get(limit.name());
            *limits.get_mut(limit) = value.and_then(|value| limit.parse(value).ok().flatten());
        }
        limits
    }

    /// Refuses what contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        for (kept, most) in [(Limit::Reservation, Limit::Quota), (Limit::RefReservation, Limit::RefQuota)] {
            if let (Some(reserved), Some(quota)) = (self.get(kept), self.get(most))
                && reserved > quota
            {
                let (kept, most) = (kept.name(), most.name());
                return Err(Error::Invalid(format!(
                    "a {kept} of {} can never be used up within a {most} of {}",
                    reserved.as_option(),
                    quota.as_option()
                )));
            }
        }
        Ok(())
    }
}

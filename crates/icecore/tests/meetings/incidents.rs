//! In place of the store's file of incidents: no test reads it here.

use crate::error::Error;

pub struct Incidents;

impl Incidents {
    pub fn note(&self, _: &Error) {}
    pub fn note_harmless(&self, _: &Error) {}
    pub fn note_healed(&self, _: &Error, _: Option<bool>) {}
}

//! A system that this program does not drive: why, never a substitute.

use super::{Ground, Kind, System};
use crate::error::{Error, Result};

pub(super) const BCACHEFS: Kind = Kind { name: "bcachefs", snapshots: true, files: true, probe, begin };

/// The probe never passes, so nothing begins.
fn begin(_: &Ground<'_>) -> Result<Box<dyn System>> {
    Err(Error::Inconclusive { what: "the system".to_owned(), reason: NOT_DRIVEN.to_owned() })
}

fn probe() -> Result<(), String> {
    super::has_file_system("bcachefs").and_then(|()| Err(NOT_DRIVEN.to_owned()))
}

const NOT_DRIVEN: &str = "this machine has it, and this program does not drive it natively yet";

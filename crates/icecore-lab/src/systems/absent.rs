//! Systems that this program does not drive on this machine: what it lacks, never a substitute.

use super::{Ground, Kind, System};
use crate::error::{Error, Result};
use std::fs;
use std::path::Path;

pub(super) const LVM: Kind = absent("lvm", device_mapper);
pub(super) const LVM_THIN: Kind = absent("lvm-thin", device_mapper);
pub(super) const ZFS: Kind = absent("zfs", zfs);
pub(super) const BCACHEFS: Kind = absent("bcachefs", bcachefs);

const fn absent(name: &'static str, probe: fn() -> Result<(), String>) -> Kind {
    Kind { name, snapshots: true, files: true, probe, begin }
}

/// The probes above never pass, so nothing begins.
fn begin(_: &Ground<'_>) -> Result<Box<dyn System>> {
    Err(Error::Inconclusive { what: "the system".to_owned(), reason: NOT_DRIVEN.to_owned() })
}

fn device_mapper() -> Result<(), String> {
    let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
    let there = devices.contains("device-mapper") || Path::new("/dev/mapper/control").exists();
    Err(if there { NOT_DRIVEN } else { "no device-mapper in this kernel" }.to_owned())
}

fn zfs() -> Result<(), String> {
    let there = Path::new("/sys/module/zfs").exists();
    Err(if there { NOT_DRIVEN } else { "no ZFS module is loaded in this kernel" }.to_owned())
}

fn bcachefs() -> Result<(), String> {
    let there = super::has_file_system("bcachefs").is_ok();
    Err(if there { NOT_DRIVEN } else { "no bcachefs in this kernel" }.to_owned())
}

const NOT_DRIVEN: &str = "this machine has it, and this program does not drive it natively yet";

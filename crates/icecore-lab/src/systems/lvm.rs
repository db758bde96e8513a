//! LVM, classic: ext4 on a volume, and a snapshot has a copy area of a fixed size. What a write replaces is
//! copied there first.

use super::volumes::{self, Group, ORIGIN, Scheme};
use super::{Ground, Kind, System};
use crate::error::Result;

pub(super) const KIND: Kind = Kind { name: "lvm", snapshots: true, files: true, probe, begin };

const SCHEME: Scheme = Scheme { create, snapshot, held: copied_bytes, space, has_areas: true };

fn probe() -> std::result::Result<(), String> {
    volumes::probe("dm_snapshot")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let areas = ground.areas.count * (ground.areas.bytes + volumes::EXTENT_BYTES);
    volumes::begin(ground, ground.bytes + areas, SCHEME)
}

fn create(group: &Group, ground: &Ground<'_>) -> Result<()> {
    // The file system of the others takes the whole of a device of this size.
    group.run(&["lvcreate", "--yes", "--name", ORIGIN, "--size", &volumes::size(ground.bytes)])
}

fn snapshot(group: &Group, name: &str, area_bytes: u64) -> Result<()> {
    let (origin, size) = (group.volume(ORIGIN), volumes::size(area_bytes));
    group.run(&["lvcreate", "--yes", "--snapshot", "--name", name, "--size", &size, &origin])
}

/// The part of each copy area that is in use.
fn copied_bytes(group: &Group, names: &[String]) -> Result<Vec<u64>> {
    let volumes = group.list()?;
    Ok(names.iter().map(|name| volumes.get(name).map_or(0, |volume| volume.used_bytes())).collect())
}

/// The files, and all that was copied for snapshots.
fn space(group: &Group, files: u64) -> Result<u64> {
    let volumes = group.list()?;
    let copied = volumes.iter().filter(|(name, _)| *name != ORIGIN).map(|(_, volume)| volume.used_bytes());
    Ok(files + copied.sum::<u64>())
}

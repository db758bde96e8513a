//! LVM, thin: ext4 on a thin volume with chunks of 64 KiB. Snapshots share chunks with it, in one pool.

use super::volumes::{self, Group, ORIGIN, Scheme};
use super::{Ground, Kind, System};
use crate::error::{Error, Result};
use crate::tool;
use std::collections::BTreeMap;
use std::process::Command;

pub(super) const KIND: Kind = Kind { name: "lvm-thin", snapshots: true, files: true, probe, begin };

const SCHEME: Scheme = Scheme { create, snapshot, held: exclusive_bytes, space, has_areas: false };

const POOL: &str = "pool";
const METADATA_BYTES: u64 = 32 << 20;

fn probe() -> std::result::Result<(), String> {
    volumes::probe("dm_thin_pool")?;
    super::has_program("thin_check", "thin-provisioning-tools")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    // The pool has a spare copy of its metadata.
    volumes::begin(ground, ground.bytes + 2 * METADATA_BYTES, SCHEME)
}

fn create(group: &Group, ground: &Ground<'_>) -> Result<()> {
    let (bytes, metadata) = (volumes::size(ground.bytes), volumes::size(METADATA_BYTES));
    let (pool, in_pool) = (POOL, group.volume(POOL));
    group.run(
        &[
            &["lvcreate", "--yes", "--type", "thin-pool", "--chunksize", "64k", "--name", pool][..],
            &["--size", &bytes, "--poolmetadatasize", &metadata],
        ]
        .concat(),
    )?;
    group.run(&[
        "lvcreate",
        "--yes",
        "--type",
        "thin",
        "--name",
        ORIGIN,
        "--virtualsize",
        &bytes,
        "--thinpool",
        &in_pool,
    ])
}

fn snapshot(group: &Group, name: &str, _area_bytes: u64) -> Result<()> {
    let origin = group.volume(ORIGIN);
    group.run(&["lvcreate", "--yes", "--snapshot", "--setactivationskip", "n", "--name", name, &origin])
}

/// What only this snapshot has, from the metadata of the pool (thin_ls(8)). Device-mapper lets programs read
/// a frozen copy of it.
fn exclusive_bytes(group: &Group, names: &[String]) -> Result<Vec<u64>> {
    let volumes = group.list()?;
    let message = |text: &str| {
        let mut command = Command::new("/usr/sbin/dmsetup");
        let pool = group.mapped(&format!("{POOL}-tpool"));
        tool::output(command.args(["message", &pool, "0", text]), &group.options)
    };
    message("reserve_metadata_snap")?;
    let mut command = Command::new("/usr/sbin/thin_ls");
    command.args(["--metadata-snap", "--no-headers", "--format", "DEV,EXCLUSIVE_BYTES"]);
    let metadata = format!("/dev/mapper/{}", group.mapped(&format!("{POOL}_tmeta")));
    let listed = tool::output(command.arg(metadata), &group.options);
    message("release_metadata_snap")?;
    let held = parse(&listed?);
    let of = |name: &String| {
        let number = volumes.get(name).and_then(|volume| volume.thin_id)?;
        held.get(&number).copied()
    };
    let missing = |name: &String| Error::Mismatch {
        what: "what thin_ls printed".to_owned(),
        detail: format!("it has no volume {name}"),
    };
    names.iter().map(|name| of(name).ok_or_else(|| missing(name))).collect()
}

fn parse(listed: &str) -> BTreeMap<u64, u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    listed.lines().filter_map(line).collect()
}

/// What the pool has given out.
fn space(group: &Group, _files: u64) -> Result<u64> {
    Ok(group.list()?.get(POOL).map_or(0, |pool| pool.used_bytes()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_of_thin_volumes_is_read() {
        let held = super::parse("  1        65536\n  2            0\nnot a volume\n");
        assert_eq!(held, [(1, 65536), (2, 0)].into());
    }
}

//! Datasets that come and go: clones, promotions, rollbacks, quotas.

use super::pieces::Pieces;
use super::process::Turn;
use super::sample::Deeds;
use crate::error::{Error, Result};
use icecore::limits::Limit;
use icecore::units::{ByteLength, InodeNumber};
use icecore::{Creation, DestroyTarget, Pool};
use std::time::Duration;

/// What is cloned and rolled back.
pub(super) const BASE: &str = "soak/base";
const PACE: Duration = Duration::from_millis(400);
const CHANGES: usize = 16;
const TEMPORARY_BYTES: u64 = 1 << 20;
/// Room for the file and what its tree takes, and for nothing as long as it.
const QUOTA_BYTES: u64 = 3 << 19;

pub(super) fn work(base: &mut Pieces, turn: &mut Turn<'_>) -> Result<Deeds> {
    let mut deeds = Deeds::default();
    let mut number = 0;
    while turn.goes_on(PACE) {
        let name = format!("{}-{number}", turn.cycle);
        match number % 4 {
            0 => clone(base, &name, turn, &mut deeds)?,
            1 => promote(base, &name, turn, &mut deeds)?,
            2 => roll_back(base, &name, turn, &mut deeds)?,
            _ => come_and_go(&name, turn, &mut deeds)?,
        }
        number += 1;
    }
    Ok(deeds)
}

/// Destroys, and does not ask what that gives back.
pub(super) fn destroyed(pool: &Pool, target: DestroyTarget) -> Result<()> {
    pool.destroy(&target)?;
    Ok(())
}

/// A snapshot of the base, and a clone of that with changes of its own.
fn branch(base: &Pieces, name: &str, turn: &mut Turn<'_>, deeds: &mut Deeds) -> Result<(String, Pieces)> {
    let snapshot = format!("{BASE}@{name}");
    turn.pool.snapshot(std::slice::from_ref(&snapshot), false, &[])?;
    deeds.snapshots_taken += 1;
    let mut branch = base.in_dataset(&format!("soak/branch-{name}"));
    turn.pool.clone_snapshot(&snapshot, &branch.dataset, false)?;
    deeds.clones += 1;
    branch.overwrite(turn.pool, CHANGES, false, &mut turn.random)?;
    Ok((snapshot, branch))
}

fn clone(base: &mut Pieces, name: &str, turn: &mut Turn<'_>, deeds: &mut Deeds) -> Result<()> {
    let (snapshot, branch) = branch(base, name, turn, deeds)?;
    base.overwrite(turn.pool, CHANGES, true, &mut turn.random)?;
    branch.verify(turn.pool)?;
    base.verify(turn.pool)?;
    destroyed(turn.pool, DestroyTarget::Dataset { name: branch.dataset, recursive: true })?;
    deeds.snapshots_destroyed += 1;
    destroyed(turn.pool, DestroyTarget::Snapshot(snapshot))
}

/// The clone takes the place of what it was made from.
fn promote(base: &mut Pieces, name: &str, turn: &mut Turn<'_>, deeds: &mut Deeds) -> Result<()> {
    let (snapshot, branch) = branch(base, name, turn, deeds)?;
    turn.pool.promote(&branch.dataset)?;
    destroyed(turn.pool, DestroyTarget::Dataset { name: BASE.to_owned(), recursive: false })?;
    turn.pool.rename(&branch.dataset, BASE, false)?;
    deeds.promotions += 1;
    *base = branch.in_dataset(BASE);
    base.verify(turn.pool)?;
    deeds.snapshots_destroyed += 1;
    destroyed(turn.pool, DestroyTarget::Snapshot(snapshot))
}

fn roll_back(base: &Pieces, name: &str, turn: &mut Turn<'_>, deeds: &mut Deeds) -> Result<()> {
    let snapshot = format!("{BASE}@{name}");
    turn.pool.snapshot(std::slice::from_ref(&snapshot), false, &[])?;
    base.clone().overwrite(turn.pool, CHANGES, true, &mut turn.random)?;
    if turn.pool.diff(&snapshot, BASE)?.is_empty() {
        let detail = "nothing differs from it, and something was written".to_owned();
        return Err(Error::Mismatch { what: snapshot, detail });
    }
    let saved = turn.pool.rollback(&snapshot, false)?.saved_as;
    deeds.rollbacks += 1;
    base.verify(turn.pool)?;
    destroyed(turn.pool, DestroyTarget::Snapshot(saved))?;
    deeds.snapshots_taken += 2;
    deeds.snapshots_destroyed += 2;
    destroyed(turn.pool, DestroyTarget::Snapshot(snapshot))
}

/// A dataset with a file, a quota in the way of a second one, and without it.
fn come_and_go(name: &str, turn: &mut Turn<'_>, deeds: &mut Deeds) -> Result<()> {
    let (pool, name) = (turn.pool, format!("soak/temporary-{name}"));
    let pieces = Pieces::create(pool, &name, TEMPORARY_BYTES, &mut turn.random)?;
    pool.set_limit(&name, Limit::Quota, Some(ByteLength(QUOTA_BYTES)))?;
    let dataset = pool.dataset(&name)?;
    let second = dataset.create(InodeNumber::ROOT, b"second", &Creation::file())?.inode;
    let data = vec![1; TEMPORARY_BYTES as usize];
    match dataset.write(second, 0, &data) {
        Err(icecore::Error::QuotaExceeded { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(()) => {
            let detail = "it took more than its quota".to_owned();
            return Err(Error::Mismatch { what: name, detail });
        }
    }
    pool.set_limit(&name, Limit::Quota, None)?;
    dataset.write_durable(second, 0, &data)?;
    dataset.truncate(second, TEMPORARY_BYTES / 2)?;
    dataset.unlink(InodeNumber::ROOT, b"second")?;
    pieces.verify(pool)?;
    drop(dataset);
    deeds.datasets += 1;
    destroyed(pool, DestroyTarget::Dataset { name, recursive: true })
}

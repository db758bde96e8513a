//! The one way in which a transaction reaches the log: all its files in one record, then durable, then
//! published.

use crate::errors::Result;
use crate::locks::{FileState, Pinned};
use crate::registry::OpenPool;
use crate::store::{self, Group, HeadFile};
use std::sync::Arc;

/// The finished writes to one file.
pub struct Prepared {
    /// The writes.
    pub group: Group,
    /// The file.
    pub head: Arc<HeadFile>,
    /// Its entry in the lock table.
    pub state: Arc<FileState>,
    /// The version that the writes start from, which readers get until the next one is published.
    pub former: Pinned,
}

/// Commits the writes to all the files together. Either they are all published, with `durable` certain to
/// survive a crash, or none is visible; after a failed flush none is visible in this process, and the
/// next life of the pool decides. Returns the new version of each file.
pub fn commit(pool: &OpenPool, prepared: Vec<Prepared>, durable: bool) -> Result<Vec<Pinned>> {
    let mut groups = Vec::with_capacity(prepared.len());
    let mut files = Vec::with_capacity(prepared.len());
    for Prepared { group, head, state, former } in prepared {
        state.hold_back(former);
        groups.push(group);
        files.push((head, state));
    }
    let point = match store::commit(&pool.pool, groups) {
        Ok(point) => point,
        Err(fault) => {
            files.iter().for_each(|(_, state)| state.hold_no_longer());
            return Err(fault);
        }
    };
    if durable && let Err(fault) = store::make_durable(&pool.pool, point) {
        pool.keep_held_back(files.into_iter().map(|(_, state)| state));
        return Err(fault);
    }
    // Each of them, whatever happens to another: none may be left held back.
    let published: Vec<Result<Pinned>> = files.iter().map(|(head, state)| state.publish(head)).collect();
    published.into_iter().collect()
}

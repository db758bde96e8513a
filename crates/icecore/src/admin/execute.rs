//! Requests, done to a pool.

use super::failure::{ErrorCode, Failure};
use super::files::Files;
use super::last_scrub::LastScrub;
use super::protocol::{Progress, Request, Response, Status};
use super::server::{Service, Session};
use crate::error::{Error, Result};
use crate::pool::{Pool, ScrubOptions, ScrubProgress, Shared};
use crate::units::Timestamp;
use std::sync::{Arc, Weak};

/// Makes sessions on a pool without keeping it open.
pub struct PoolService {
    pool: Weak<Shared>,
}

impl PoolService {
    /// Sessions on this pool.
    #[must_use]
    pub fn of(pool: &Pool) -> Self {
        Self { pool: Arc::downgrade(&pool.shared) }
    }
}

impl Service for PoolService {
    fn session(&self, process: Option<u32>) -> Box<dyn Session> {
        Box::new(Executor { pool: Handle::Weak(self.pool.clone()), files: Files::of(process) })
    }
}

/// Does requests to a pool, and keeps what one client holds: pins, and a staged file.
pub struct Executor {
    pool: Handle,
    files: Files,
}

enum Handle {
    /// Of a program that opened the pool itself.
    Strong(Pool),
    /// Of a client: it is not for clients to keep a pool open.
    Weak(Weak<Shared>),
}

impl Executor {
    /// An executor that keeps the pool open.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { pool: Handle::Strong(pool), files: Files::default() }
    }

    fn pool(&self) -> Option<Pool> {
        match &self.pool {
            Handle::Strong(pool) => Some(pool.clone()),
            Handle::Weak(shared) => shared.upgrade().map(Pool::guest),
        }
    }
}

impl Session for Executor {
    fn call(
        &mut self,
        request: Request,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Response, Failure> {
        let Some(pool) = self.pool() else {
            return Err(Failure::new(ErrorCode::Closing, "the owner is closing the pool"));
        };
        let response = match request {
            Request::Scrub(options) => scrub(&pool, &options, progress),
            request => match self.files.call(&pool, request) {
                Ok(response) => response,
                Err(request) => administer(&pool, request),
            },
        };
        Ok(response?)
    }

    fn holds(&self) -> bool {
        self.files.holds()
    }
}

fn done(outcome: Result<()>) -> Result<Response> {
    outcome.map(|()| Response::Done)
}

/// Everything that concerns the pool as a whole, its datasets and its snapshots.
fn administer(pool: &Pool, request: Request) -> Result<Response> {
    match request {
        Request::Status => Ok(Response::Status(Box::new(status(pool)))),
        Request::Sync => done(pool.sync()),
        Request::Create { name, parents, properties } => {
            done(pool.create_dataset(&name, parents, &properties))
        }
        Request::Snapshot { names, recursive, properties } => {
            pool.snapshot(&names, recursive, &properties).map(Response::Names)
        }
        Request::Clone { snapshot, target, parents } => {
            done(pool.clone_snapshot(&snapshot, &target, parents))
        }
        Request::Rollback { snapshot, force } => {
            pool.rollback(&snapshot, force).map(|report| Response::RolledBack { saved_as: report.saved_as })
        }
        Request::Promote { dataset } => done(pool.promote(&dataset)),
        Request::Rename { from, to, recursive } => done(pool.rename(&from, &to, recursive)),
        Request::PlanDestroy { target, unheld: false } => pool.plan_destroy(&target).map(Response::Destroyed),
        Request::PlanDestroy { target, unheld: true } => {
            pool.plan_destroy_unheld(&target).map(Response::Destroyed)
        }
        Request::Destroy { target } => pool.destroy(&target).map(Response::Destroyed),
        Request::Hold { tag, snapshot, expires } => done(pool.hold_until(&tag, &snapshot, expires)),
        Request::Release { tag, snapshot } => done(pool.release(&tag, &snapshot)),
        Request::Holds { snapshot } => pool.holds(&snapshot).map(Response::Holds),
        Request::SetProperty { name, key, value } => done(pool.set_property(&name, &key, &value)),
        Request::InheritProperty { name, key } => done(pool.inherit_property(&name, &key)),
        Request::Properties { name } => pool.properties(&name).map(Response::Properties),
        Request::Copies => Ok(Response::Copies(pool.copies())),
        Request::RestoreCopies => pool.restore_copies().map(Response::Copies),
        Request::SetCopies { mode, folder } => pool.set_copies(mode, folder).map(Response::Copies),
        Request::SetSizeLimit { limit } => done(pool.set_size_limit(limit)),
        Request::Trim => pool.trim().map(Response::Trimmed),
        Request::LetGo => done(pool.let_go()),
        Request::List(filter) => pool.list(&filter).map(Response::List),
        Request::Diff { from, to } => pool.diff(&from, &to).map(Response::Diff),
        other => Err(Error::Invalid(format!("this program does not know how to do {other:?}"))),
    }
}

fn status(pool: &Pool) -> Status {
    Status {
        path: pool.describe(),
        id: pool.id(),
        process: std::process::id(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        read_only: pool.is_read_only(),
        last_scrub: pool.engine().storage.directory().and_then(|directory| LastScrub::load(&directory)),
        scrubbing: pool.scrubbing(),
        incidents: pool.incidents(),
        readers: pool.readers(),
        snapshots_hold: pool.snapshots_hold(),
        statistics: pool.statistics(),
    }
}

fn scrub(
    pool: &Pool,
    options: &ScrubOptions,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Response> {
    let mut tell = |now: ScrubProgress| progress(Progress { done: now.done, total: now.total });
    let now = Timestamp::now();
    let report = pool.scrub_with(options, &mut tell)?;
    if let Some(directory) = pool.engine().storage.directory() {
        LastScrub::of(&report, now).store(&directory);
    }
    Ok(Response::Scrubbed(report))
}

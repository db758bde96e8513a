//! A pool, whichever process has it open.

use super::client::{Client, Outcome};
use super::execute::Executor;
use super::failure::{ErrorCode, Failure};
use super::held::Held;
use super::protocol::{Progress, Request, Response};
use super::server::Session;
use crate::error::Error;
use crate::options::OpenOptions;
use crate::pool::Pool;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long an owner that does not answer (yet, or any more) is waited for: it may be recovering the pool, or
/// be a command that is about to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is tried within that time.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// A connection that was silent for longer is made anew: the owner may have ended it.
const FRESH: Duration = Duration::from_secs(30);

/// A pool that this process has opened, or a connection to the process that has.
pub struct Access {
    directory: PathBuf,
    options: OpenOptions,
    /// An idle owner is to close the pool, not to be talked to.
    takes_over: bool,
    way: Way,
    held: Held,
    stale: Option<String>,
}

enum Way {
    Local(Pool, Box<Executor>),
    Remote(Client, Instant),
    /// The owner closed the pool, or ended the connection; who has the pool now is looked for when something
    /// is asked.
    Lost,
}

impl Way {
    fn local(pool: Pool) -> Self {
        let executor = Box::new(Executor::new(pool.clone()));
        Self::Local(pool, executor)
    }

    /// The outcome of a request; `None` if nothing came of it, because another process owns the pool now, or
    /// will.
    fn ask(
        &mut self,
        request: Request,
        holds: bool,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Option<Result<Response, Failure>> {
        match self {
            Way::Local(pool, executor) => {
                let outcome = executor.call(request, progress);
                // What was read after the pool was changed may be anything.
                (!pool.is_outdated()).then_some(outcome)
            }
            Way::Remote(client, used) if holds || used.elapsed() < FRESH => {
                match client.call(&request, &mut |now| _ = progress(now)) {
                    Ok(Outcome::Done(response)) => {
                        *used = Instant::now();
                        Some(Ok(response))
                    }
                    Err(failure) => Some(Err(failure)),
                    Ok(Outcome::NotBegun) => None,
                }
            }
            Way::Remote(..) | Way::Lost => None,
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = if self.is_remote() { "remote" } else { "local" };
        formatter
            .debug_struct("Access")
            .field("directory", &self.directory)
            .field("way", &way)
            .finish_non_exhaustive()
    }
}

/// Opens the pool in this folder, or connects to the process that has it open. `read_only` says that nothing
/// will be changed: then the pool is not owned, and any process may open it for writing meanwhile. It is
/// opened for writing nevertheless where it was not closed cleanly, to recover it.
pub fn connect_or_open(directory: &Path, read_only: bool) -> Result<Access, Failure> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Access::new(directory, options, false)
}

impl Access {
    /// [`connect_or_open`] with other options; an idle owner is made to close the pool: for those who use
    /// [`Access::pool`] itself. With [`OpenOptions::read_only`] they ask [`Pool::is_outdated`] after each
    /// read.
    pub fn open(directory: &Path, options: OpenOptions) -> Result<Self, Failure> {
        Self::new(directory, options, true)
    }

    fn new(directory: &Path, options: OpenOptions, takes_over: bool) -> Result<Self, Failure> {
        let mut access = Self {
            directory: directory.to_owned(),
            options,
            takes_over,
            way: Way::Lost,
            held: Held::default(),
            stale: None,
        };
        access.find_way()?;
        Ok(access)
    }

    /// Why what is read may be older than what the owner of the pool knows: it does not answer, and this is
    /// what it had written.
    #[must_use]
    pub fn stale(&self) -> Option<&str> {
        self.stale.as_deref()
    }

    /// Opens, or else connects; tries both in turn for a while, since owners come and go. Reading does
    /// without an owner that hangs.
    fn find_way(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        self.way = loop {
            let in_use = match open_pool(&self.directory, &self.options, self.takes_over) {
                Ok(pool) => {
                    // One that is only read: any process may open it for writing.
                    pool.disown();
                    break Way::local(pool);
                }
                Err(failure) if failure.code == ErrorCode::PoolInUse => failure,
                Err(failure) => return Err(failure),
            };
            let reached = Client::connect(&self.directory).and_then(|client| {
                // A command that writes finds out when it asks.
                let is_there = !self.options.read_only || client.is_alive();
                if is_there { Ok(client) } else { Err(io::ErrorKind::TimedOut.into()) }
            });
            match reached {
                Ok(client) => break Way::Remote(client, Instant::now()),
                Err(error) if is_unanswered(&error) && Instant::now() < deadline => {
                    thread::sleep(RETRY_INTERVAL)
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut && self.options.read_only => {
                    break self.look_past(&in_use)?;
                }
                Err(error) => return Err(not_reached(&in_use, &error)),
            }
        };
        Ok(())
    }

    /// A picture of the pool as it is on disk, recovered in memory.
    fn look_past(&mut self, in_use: &Failure) -> Result<Way, Failure> {
        let hangs = || not_reached(in_use, &io::ErrorKind::TimedOut.into());
        let pool = Pool::open_picture(&self.directory).map_err(|_| hangs())?;
        self.stale = Some(format!("{in_use}, and it does not answer: this is what was on disk"));
        Ok(Way::local(pool))
    }

    /// Whether another process has the pool open.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self.way, Way::Remote(..))
    }

    /// The pool, if this process has opened it.
    #[must_use]
    pub const fn pool(&self) -> Option<&Pool> {
        match &self.way {
            Way::Local(pool, _) => Some(pool),
            Way::Remote(..) | Way::Lost => None,
        }
    }

    /// Does what is asked, here or there.
    ///
    /// When the owner closes the pool, or ends the connection after a long silence, or another process opens
    /// a pool that this one only reads, pins of snapshots go on with the next owner. With a pin of a head, or
    /// a staged file, this fails with [`ErrorCode::Closing`]. What was asked was not done then, *every* pin
    /// is void and nothing is staged any more. A caller that can begin again with all of that may do so.
    pub fn call(&mut self, request: Request) -> Result<Response, Failure> {
        self.call_with(request, &mut |_| {})
    }

    /// [`Access::call`], telling of the progress of what takes long.
    pub fn call_with(
        &mut self,
        request: Request,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Response, Failure> {
        self.call_while(request, &mut |now| {
            progress(now);
            true
        })
    }

    /// [`Access::call_with`], of which `progress` says whether to go on. What is done here is cut off soon
    /// after it answers `false`; what another process does goes on.
    pub fn call_while(
        &mut self,
        request: Request,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Response, Failure> {
        loop {
            let translated = self.held.translated(request.clone());
            if let Some(outcome) = self.way.ask(translated, self.held.anything(), progress) {
                return self.held.follow(&request, outcome);
            }
            self.way = Way::Lost;
            if self.held.lose(&request)? {
                return Ok(Response::Done);
            }
            self.find_way()?;
            let way = &mut self.way;
            self.held.regain(|request| {
                way.ask(request, true, progress)
                    .unwrap_or_else(|| Err(Failure::protocol("the owner went again")))
            })?;
        }
    }

    /// Closes a pool that was opened here. Errors of the last writes surface here.
    pub fn close(self) -> Result<(), Failure> {
        match self.way {
            Way::Local(pool, executor) => {
                drop(executor);
                let closed = pool.close();
                // Of a picture nothing is kept.
                if self.stale.is_some() { Ok(()) } else { Ok(closed?) }
            }
            Way::Remote(..) | Way::Lost => Ok(()),
        }
    }
}

/// Reading alone suffices for many commands; but only the next writer can recover a pool.
fn open_pool(directory: &Path, options: &OpenOptions, takes_over: bool) -> Result<Pool, Failure> {
    let open = if takes_over { Pool::open_directory } else { Pool::open_if_free };
    let opened = match open(directory, options) {
        Err(Error::NeedsRecovery { .. }) if options.read_only => Pool::open_recovered(directory, options),
        other => other,
    };
    opened.map_err(|error| match error {
        // Its way out is for programs that come without the socket.
        Error::PoolInUse { path, owner, .. } => {
            Failure::new(ErrorCode::PoolInUse, format!("pool {path} is in use by {owner}"))
        }
        error => error.into(),
    })
}

/// Why the owner of a pool cannot be asked, and what to do about it.
fn not_reached(in_use: &Failure, error: &io::Error) -> Failure {
    let message = if is_unanswered(error) {
        format!("{in_use}, and it has no control socket: do it there, or end that process")
    } else if error.kind() == io::ErrorKind::TimedOut {
        format!("{in_use}, and it does not answer: it hangs, or was stopped; let it go on, or end it")
    } else {
        format!("{in_use}, and its control socket cannot be reached: {error}")
    };
    Failure::new(ErrorCode::PoolInUse, message)
}

fn is_unanswered(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

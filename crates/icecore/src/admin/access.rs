//! A pool, whoever has it open.

use super::client::{Client, Outcome};
use super::execute::Executor;
use super::failure::{ErrorCode, Failure};
use super::protocol::{Progress, Request, Response};
use super::server::Session;
use crate::error::Error;
use crate::options::OpenOptions;
use crate::pool::Pool;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long an owner that does not answer (yet, or any more) is waited for: it may be recovering the pool, or be
/// a command that is about to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is tried within that time.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// A connection that was silent for longer is made anew: the owner may have ended it.
const FRESH: Duration = Duration::from_secs(30);

/// A pool that this process has opened, or a connection to the process that has.
pub struct Access {
    directory: PathBuf,
    options: OpenOptions,
    way: Way,
    held: Held,
}

enum Way {
    Local(Pool, Box<Executor>),
    Remote(Client, Instant),
    /// The owner closed the pool, or ended the connection; who has the pool now is looked for when something is asked.
    Lost,
}

/// What lives and dies with a connection: as long as there is any, it is not made anew.
#[derive(Default)]
struct Held {
    pins: usize,
    staged: bool,
}

impl Held {
    /// Follows a request that was done.
    const fn follow(&mut self, request: &Request) {
        match request {
            Request::Pin { .. } => self.pins += 1,
            Request::Unpin { .. } => self.pins = self.pins.saturating_sub(1),
            Request::BeginImport { .. } => self.staged = true,
            Request::CommitImport { .. } | Request::AbortImport => self.staged = false,
            _ => {}
        }
    }

    /// Follows a request that failed: what is staged is given up also then, to begin another file and to make it one.
    const fn follow_failed(&mut self, request: &Request) {
        if matches!(request, Request::BeginImport { .. } | Request::CommitImport { .. }) {
            self.staged = false;
        }
    }

    /// Whether the request does no more than let go of all that there is: then it does not matter that it went already.
    const fn ends_with(&self, request: &Request) -> bool {
        match request {
            Request::Unpin { .. } => self.pins == 1 && !self.staged,
            Request::AbortImport => self.pins == 0 && self.staged,
            _ => false,
        }
    }

    const fn anything(&self) -> bool {
        self.pins > 0 || self.staged
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

/// Opens the pool in this folder, or connects to the process that has it open. `read_only` says that nothing will
/// be changed; the pool is opened for writing nevertheless where it was not closed cleanly, to recover it.
pub fn connect_or_open(directory: &Path, read_only: bool) -> Result<Access, Failure> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Access::open(directory, options)
}

impl Access {
    /// [`connect_or_open`] with other options.
    pub fn open(directory: &Path, options: OpenOptions) -> Result<Self, Failure> {
        let way = find_way(directory, &options)?;
        Ok(Self { directory: directory.to_owned(), options, way, held: Held::default() })
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
    /// Fails with [`ErrorCode::Closing`] when what this access held went with an owner that closed the pool, or that ended the
    /// connection after a long silence. What was asked was not done then, *every* pin is void (the numbers of the next owner
    /// begin anew, so an old one may come to mean another version) and nothing is staged any more. Whoever can begin
    /// again with all of that may do so.
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

    /// [`Access::call_with`], of which `progress` says whether to go on. What is done here is cut off soon after it answers `false`; what
    /// another process does goes on.
    pub fn call_while(
        &mut self,
        request: Request,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Response, Failure> {
        loop {
            match &mut self.way {
                Way::Local(_, executor) => {
                    return executor.call(request, progress);
                }
                Way::Remote(client, used) if self.held.anything() || used.elapsed() < FRESH => {
                    match client.call(&request, &mut |now| _ = progress(now)) {
                        Ok(Outcome::Done(response)) => {
                            *used = Instant::now();
                            self.held.follow(&request);
                            return Ok(response);
                        }
                        Err(failure) => {
                            self.held.follow_failed(&request);
                            return Err(failure);
                        }
                        Ok(Outcome::NotBegun) => {}
                    }
                    if self.held.anything() {
                        let held = std::mem::take(&mut self.held);
                        self.way = Way::Lost;
                        return if held.ends_with(&request) {
                            Ok(Response::Done)
                        } else {
                            Err(ended_meanwhile(&held))
                        };
                    }
                }
                Way::Remote(..) | Way::Lost => {}
            }
            self.way = find_way(&self.directory, &self.options)?;
        }
    }

    /// Closes a pool that was opened here. Errors of the last writes surface here.
    pub fn close(self) -> Result<(), Failure> {
        match self.way {
            Way::Local(pool, executor) => {
                drop(executor);
                Ok(pool.close()?)
            }
            Way::Remote(..) | Way::Lost => Ok(()),
        }
    }
}

/// What is said where all that was held went with the connection. Of other things that a command did before, such as directories
/// that it made, this knows nothing.
fn ended_meanwhile(held: &Held) -> Failure {
    let lost = if held.staged { "; nothing of the file was imported" } else { " of reading" };
    let message = format!(
        "the process that had the pool open ended the connection in the middle{lost}: repeat the command"
    );
    Failure::new(ErrorCode::Closing, message)
}

/// Opens, or else connects; tries both in turn for a while, since owners come and go.
fn find_way(directory: &Path, options: &OpenOptions) -> Result<Way, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let in_use = match open_pool(directory, options) {
            Ok(pool) => {
                let executor = Box::new(Executor::new(pool.clone()));
                return Ok(Way::Local(pool, executor));
            }
            Err(failure) if failure.code == ErrorCode::PoolInUse => failure,
            Err(failure) => return Err(failure),
        };
        match Client::connect(directory) {
            Ok(client) => return Ok(Way::Remote(client, Instant::now())),
            Err(error) if is_nobody(&error) && Instant::now() < deadline => thread::sleep(RETRY_INTERVAL),
            Err(error) if is_nobody(&error) => {
                let message =
                    format!("{in_use}, and it has no control socket: do it there, or end that process");
                return Err(Failure::new(ErrorCode::PoolInUse, message));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let message = format!(
                    "{in_use}, and it does not answer: it hangs, or was stopped; let it go on, or end it"
                );
                return Err(Failure::new(ErrorCode::PoolInUse, message));
            }
            Err(error) => {
                let message = format!("{in_use}, and its control socket cannot be reached: {error}");
                return Err(Failure::new(ErrorCode::PoolInUse, message));
            }
        }
    }
}

/// Reading alone suffices for many commands; but only the next writer can recover a pool.
fn open_pool(directory: &Path, options: &OpenOptions) -> Result<Pool, Failure> {
    let opened = match Pool::open_directory(directory, options) {
        Err(Error::NeedsRecovery { .. }) if options.read_only => {
            let writing = OpenOptions { read_only: false, ..options.clone() };
            Pool::open_directory(directory, &writing)
        }
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

fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

//! The life of one mount, from opening the pool to closing it.

use crate::filesystem::StoreFileSystem;
use crate::mounting::{self, How};
use crate::options::MountOptions;
use crate::readahead;
use crate::transport;
use icecore::{Error, OpenOptions, Pool};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is asked whether to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// How long programs have to close their files when a mount is ended under them.
const GRACE: Duration = Duration::from_secs(10);
/// How long a mount waits for another process to let go of the pool, and how often it tries: a command has it
/// for a moment.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The fewest open files a mount works with: one for each thread, the pool's segments, and some for commands.
const LEAST_OPEN_FILES: u64 = 64;

/// Why there is no mount, or why it did not end well.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It cannot be done; the sentence says why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] Error),
    /// The system.
    #[error("cannot {action} {what}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// With what.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl MountError {
    pub(crate) fn io(action: &'static str, what: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io { action, what: what.as_ref().display().to_string(), source }
    }
}

/// Mounts, and answers requests until the mount goes away or `stop` answers true. Then everything is durable
/// and the pool closed. `ready` is called once, when the mount is live. The soft limit of open files of this
/// process becomes the hard one: getrlimit(2).
///
/// # Errors
/// Whatever keeps the mount from being made; then nothing is mounted. Or the pool could not be closed
/// cleanly.
pub fn serve(
    options: &MountOptions,
    ready: impl FnOnce(),
    mut stop: impl FnMut() -> bool,
) -> Result<(), MountError> {
    raise_open_files()?;
    let point = mounting::prepare(&options.point)?;
    let pool = open(options, &mut stop)?;
    let served = serve_pool(options, &point, &pool, ready, &mut stop);
    let closed = pool.close();
    served?;
    Ok(closed?)
}

/// Takes all open files that the system allows, and refuses a limit under which a mount would fail while it
/// is served.
fn raise_open_files() -> Result<(), MountError> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)
            .map_err(|error| MountError::io("raise", "the limit of open files", error.into()))?;
    }
    match limit.current {
        Some(files) if files < LEAST_OPEN_FILES => Err(MountError::Refused(format!(
            "this process may have {files} open files, and a mount needs {LEAST_OPEN_FILES}: \
             raise the limit with `ulimit -n`"
        ))),
        _ => Ok(()),
    }
}

/// Opens the pool. One that was not closed cleanly is recovered, also for a mount that only reads. `stop`
/// ends the wait for another process that has it.
fn open(options: &MountOptions, stop: &mut dyn FnMut() -> bool) -> Result<Pool, MountError> {
    let wanted = OpenOptions { read_only: options.read_only, direct_reads: true, ..OpenOptions::default() };
    let attempt = || match Pool::open_directory(&options.pool, &wanted) {
        Err(Error::NeedsRecovery { .. }) => {
            Pool::open_directory(&options.pool, &OpenOptions::default())?.close()?;
            Pool::open_directory(&options.pool, &wanted)
        }
        opened => opened,
    };
    let deadline = Instant::now() + PATIENCE;
    let mut opened = attempt();
    while matches!(opened, Err(Error::PoolInUse { .. })) && Instant::now() < deadline {
        if stop() {
            return Err(MountError::Refused("stopped while another process has the pool".to_owned()));
        }
        thread::sleep(RETRY_INTERVAL);
        opened = attempt();
    }
    opened.map_err(|error| match error {
        Error::PoolInUse { path, owner, .. } => MountError::Refused(format!(
            "pool {path} is in use by {owner}, and a mount has to own its pool: end that process; to have \
             several datasets mounted, mount the pool itself"
        )),
        Error::Io { ref source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            let pool = options.pool.display();
            MountError::Refused(format!(
                "{error} in pool {pool}: mount it as the user who owns it, or as root"
            ))
        }
        error => error.into(),
    })
}

fn serve_pool(
    options: &MountOptions,
    point: &Path,
    pool: &Pool,
    ready: impl FnOnce(),
    stop: &mut dyn FnMut() -> bool,
) -> Result<(), MountError> {
    let version = options.version.as_deref();
    let read_only = options.read_only || version.is_some_and(|name| name.contains('@'));
    let shown = mounting::shown(point);
    let filesystem = StoreFileSystem::new(pool.clone(), version, &shown, read_only, options.xattrs)?;
    let folder = std::fs::canonicalize(&options.pool);
    let folder = folder.map_err(|error| MountError::io("find", &options.pool, error))?;
    let how = How {
        source: version.map_or_else(|| folder.clone(), |version| folder.join(version)),
        any_user: options.any_user,
        read_only,
        suid: options.suid,
        dev: options.dev,
        exec: options.exec,
    };
    let device = mounting::mount(point, &how)?;
    let started =
        transport::start(filesystem.clone(), device, options.any_user, |cache| filesystem.attach(cache));
    let session = match started {
        Ok(session) => session,
        Err(error) => {
            let _ = mounting::detach(point);
            return Err(MountError::io("serve", point, error));
        }
    };
    // The kernel takes its default when it has its answer to FUSE_INIT: it has, now that the session has
    // begun.
    readahead::extend(point);
    let (ended, end) = channel();
    let waiter = thread::Builder::new().name("icecore-mount".to_owned()).spawn(move || {
        let outcome = session.join().or_else(gone_is_ended);
        // The other end is gone only when it does not wait any more.
        let _ = ended.send(outcome);
    });
    if let Err(error) = waiter {
        let _ = mounting::detach(point);
        return Err(MountError::io("serve", point, error));
    }
    ready();
    let mut detached: Option<Instant> = None;
    let outcome = loop {
        match end.recv_timeout(STOP_INTERVAL) {
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) if detached.is_some_and(|since| since.elapsed() > GRACE) => {
                crate::log("files are still open; they cannot be used any more");
                break Ok(());
            }
            Err(RecvTimeoutError::Timeout) if detached.is_none() && stop() => {
                detached = Some(Instant::now());
                end_mount(pool, point);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    filesystem.detach();
    if outcome.is_err() || mounting::is_stale(point) {
        // Without a process behind it the mount would be stale.
        let _ = mounting::detach(point);
    }
    outcome.map_err(|error| MountError::io("serve", point, error))
}

/// The kernel aborts a connection when its mount goes. A thread that is about to receive a request then, such
/// as that for a file closed right before, gets ECONNABORTED instead of ENODEV: `fuse_dev_do_read` in
/// `fs/fuse/dev.c`.
fn gone_is_ended(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::ConnectionAborted { Ok(()) } else { Err(error) }
}

/// Ends the mount from this side: everything is durable first, and what is in use is taken out of sight.
fn end_mount(pool: &Pool, point: &Path) {
    if let Err(error) = pool.sync() {
        crate::log(&format!("what was written last may be lost: {error}"));
    }
    if let Err(busy) = mounting::unmount(point) {
        crate::log(&format!("{busy}; it goes away when the last file on it is closed"));
        if let Err(error) = mounting::detach(point) {
            crate::log(&error.to_string());
        }
    }
}

//! Opening a database file.

use crate::arrival;
use crate::bindings::{code, open};
use crate::database::{Database, Modes, Pin, Source};
use crate::doors::Door;
use crate::errors::{Fault, Result};
use crate::locks::{FileVersion, HandleId, Level, Pinned};
use crate::path::{self, JOURNAL_SUFFIX, Place, WAL_SUFFIX};
use crate::recent::Names;
use crate::registry::{self, PATIENCE, PoolUse};
use crate::store::{self, HeadFile, Wish};
use crate::transaction::Transaction;
use crate::turns::Refusals;
use crate::vfs::NAME;
use icecore::units::InodeNumber;
use rustix::io::Errno;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest time that a pool stays open without use.
const LINGER_SECONDS_MAX: u64 = 3600;

/// What is to be opened, and how: a path, and the parameters of its URI.
pub struct Request {
    path: String,
    snapshot: Option<String>,
    linger: Option<Duration>,
    wish: Wish,
    immutable: bool,
    for_reading: bool,
    create: bool,
}

/// What was found.
pub struct Found {
    pub pool: PoolUse,
    pub source: Source,
    pub inode: InodeNumber,
    pub pin: Option<Pin>,
    read_only: bool,
}

/// Opens a database file. `None` for one that lies in no pool, and need not.
///
/// # Safety
/// `name` must be the pointer that SQLite handed to `xOpen` for a main database, and `path` its text.
pub unsafe fn open(door: &Door, name: *const c_char, path: &str, flags: c_int) -> Result<Option<Database>> {
    let api = door.api;
    // SAFETY: the caller's promise.
    let (vfs, pool_mode, snapshot, linger, immutable, nolock) = unsafe {
        (
            api.uri_parameter(name, c"vfs"),
            api.uri_parameter(name, c"pool"),
            api.uri_parameter(name, c"snapshot"),
            api.uri_parameter(name, c"linger"),
            api.uri_boolean(name, c"immutable"),
            api.uri_boolean(name, c"nolock"),
        )
    };
    if nolock {
        let text = "nolock=1 cannot be used with icecore: a version is pinned by locking it, which is cheap";
        return Err(Fault::new(code::CANTOPEN, text));
    }
    if path::cut(path).is_none() {
        // A plain file that is attached gets the VFS of the connection: without an explicit wish, it stays
        // one.
        if vfs.is_none_or(|vfs| vfs.as_bytes() != NAME.to_bytes()) {
            return Ok(None);
        }
        let fault = Fault::new(code::CANTOPEN, in_no_pool(path));
        return Err(if Path::new(path).is_dir() { fault.with_errno(Errno::ISDIR) } else { fault });
    }
    let for_reading = flags & open::READWRITE == 0;
    let wish = match pool_mode {
        Some(mode) if mode == "ro" => Wish::Read,
        _ if for_reading => Wish::Share,
        _ => Wish::Write,
    };
    let linger = linger.as_deref().map(parse_linger).transpose()?;
    let create = flags & open::CREATE != 0;
    let request = Request { path: path.to_owned(), snapshot, linger, wish, immutable, for_reading, create };
    let Found { pool, source, inode, pin, read_only } = request.find(PATIENCE)?;
    let names = Names {
        database: path.to_owned(),
        journal: format!("{path}{JOURNAL_SUFFIX}"),
        wal: format!("{path}{WAL_SUFFIX}"),
    };
    Ok(Some(Database {
        api,
        names: Arc::new(names),
        inode,
        read_only,
        source,
        id: HandleId::fresh(),
        level: Level::None,
        refusals: Refusals::default(),
        size: pin.as_ref().map_or(0, Pin::size),
        pin,
        seen: None,
        transaction: Transaction::Idle,
        page_cache_differs: false,
        modes: Modes::default(),
        broken: false,
        request,
        pool,
    }))
}

impl Request {
    /// Finds it, in a pool that others are waited for so long to let go of.
    pub fn find(&self, patience: Duration) -> Result<Found> {
        let cut = path::cut(&self.path).ok_or_else(|| Fault::new(code::CANTOPEN, in_no_pool(&self.path)))?;
        let pool = registry::current().use_pool(cut.pool, self.wish, patience, self.linger)?;
        let place = Place::find(&pool.pool, cut, self.snapshot.clone())?;
        if place.snapshot.is_some() || self.immutable { fixed(pool, place) } else { self.head(pool, &place) }
    }

    fn head(&self, pool: PoolUse, place: &Place) -> Result<Found> {
        let create = self.create && !pool.pool.is_read_only();
        let file = HeadFile::open(&pool.pool, &place.dataset, &place.parts(), create)?;
        let file = Arc::new(file.ok_or_else(|| no_file(place, &pool))?);
        let state = pool.file_state(file.key());
        let inode = file.inode();
        let read_only = self.for_reading || pool.pool.is_read_only();
        Ok(Found { pool, source: Source::Head { file, state }, inode, pin: None, read_only })
    }
}

/// How long the pool stays open when nothing uses it.
fn parse_linger(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= LINGER_SECONDS_MAX);
    let refused = || {
        let text = format!("linger={text} is no whole number of seconds from 0 to {LINGER_SECONDS_MAX}");
        Fault::new(code::CANTOPEN, text)
    };
    seconds.map(Duration::from_secs).ok_or_else(refused)
}

/// A snapshot, or the head as it is at this moment and will be for this handle.
fn fixed(pool: PoolUse, place: Place) -> Result<Found> {
    let view = match &place.snapshot {
        Some(snapshot) => store::snapshot_view(&pool.pool, &place.dataset, snapshot)?,
        None => store::head_view(&pool.pool, &place.dataset)?,
    };
    view.read_by(&store::reader_of(&place.parts()));
    let inode = store::find_file(&view, &place.parts())?.ok_or_else(|| no_file(&place, &pool))?;
    let overlay = arrival::overlay(&view, inode, &place.path)?;
    let facts = store::facts(&view, inode)?;
    let pinned = Pinned { view, facts, version: FileVersion::default(), settled: true };
    let pin = Some(Pin { pinned, overlay, hot: None });
    let source = Source::Fixed { dataset: place.dataset };
    Ok(Found { pool, source, inode, pin, read_only: true })
}

/// What to do about a path in no pool. A folder with remains of a pool is not advised to become a new one.
fn in_no_pool(path: &str) -> String {
    match path::lost_pool(path) {
        Some((directory, remains)) => format!("{directory} {}", remains.advice()),
        None => format!(
            "{path} lies in no icecore pool (is its filesystem mounted?): `icecore init DIRECTORY` makes one"
        ),
    }
}

fn no_file(place: &Place, pool: &PoolUse) -> Fault {
    let file = place.path.join("/");
    let hint = match (&place.snapshot, place.path.len()) {
        (Some(_), _) => "it did not exist when the snapshot was taken",
        (None, 1) => "it was to be opened, but not to be made",
        (None, _) => "it, or a directory on the way to it, does not exist",
    };
    Fault::new(
        code::CANTOPEN,
        format!("{} in pool {} has no file {file}: {hint}", place.version(), pool.name),
    )
}

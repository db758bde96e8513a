//! What came along with a database file: a journal of an interrupted transaction, a write-ahead log with
//! transactions in it, or only a header that says WAL mode.
//!
//! All of it is honoured before anything else is read. Where the file may be written, SQLite rolls a journal
//! back, and we write the log's pages into the file; where it may not, both are laid over the file in memory.

use crate::bindings::code;
use crate::database::{Database, Pin};
use crate::errors::Result;
use crate::locks::{FileState, Level};
use crate::overlay::Overlay;
use crate::path::{JOURNAL_SUFFIX, WAL_SUFFIX};
use crate::prepared::{self, Prepared};
use crate::recent::HotJournal;
use crate::registry::OpenPool;
use crate::store::{self, HeadFile, View};
use crate::{rollback, wal};
use icecore::units::InodeNumber;
use std::sync::Arc;

/// What SQLite appends to a database's name for the index of its write-ahead log: worthless without processes
/// that use it.
const WAL_INDEX_SUFFIX: &str = "-shm";
/// Offset of the read and write versions in the header.
const FORMAT_VERSIONS: u64 = 18;

/// Names a file beside a database.
pub fn beside<'path>(path: &'path [String], suffix: &str, storage: &'path mut String) -> Vec<&'path str> {
    let (name, directories) = path.split_last().map_or(("", path), |(name, rest)| (name.as_str(), rest));
    *storage = format!("{name}{suffix}");
    let mut parts: Vec<&str> = directories.iter().map(String::as_str).collect();
    parts.push(storage);
    parts
}

/// A file beside the database that has something in it.
fn find(view: &View, path: &[String], suffix: &str) -> Result<Option<InodeNumber>> {
    let mut storage = String::new();
    let Some(inode) = store::find_file(view, &beside(path, suffix, &mut storage))? else { return Ok(None) };
    let mut first = [0];
    // An empty journal has nothing to say, and one that begins with a zero has been ended.
    let begins = view.read(inode, 0, &mut first)? == 1 && first != [0];
    Ok(begins.then_some(inode))
}

fn has_wal_header(view: &View, database: InodeNumber) -> Result<bool> {
    let mut versions = [0; 2];
    let read = view.read(database, FORMAT_VERSIONS, &mut versions)?;
    Ok(read == 2 && versions.contains(&2))
}

/// What has to be laid over a file that is only read.
pub fn overlay(view: &View, database: InodeNumber, path: &[String]) -> Result<Option<Arc<Overlay>>> {
    if store::facts(view, database)?.size == 0 {
        return Ok(None);
    }
    let overlay = match (find(view, path, JOURNAL_SUFFIX)?, find(view, path, WAL_SUFFIX)?) {
        (Some(journal), _) => rollback::read(view, journal)?,
        (None, Some(log)) => wal::read(view, log)?,
        (None, None) => None,
    };
    Ok(overlay.map(Arc::new))
}

/// Looks after what came along with the version just pinned. Busy if another handle is writing.
pub fn settle(database: &mut Database) -> Result<()> {
    let (file, state) = database.head()?;
    let (file, state) = (Arc::clone(file), Arc::clone(state));
    let pinned = database.pinned()?.clone();
    if database.read_only {
        let overlay = overlay(&pinned.view, database.inode, file.path())?;
        if overlay.is_none() {
            state.settle(pinned.version);
        }
        database.pin = Some(Pin { pinned, overlay, hot: None });
        return Ok(());
    }
    if let Some(inode) = find(&pinned.view, file.path(), JOURNAL_SUFFIX)? {
        let hot = Some(HotJournal { view: pinned.view.clone(), inode });
        database.pin = Some(Pin { pinned, overlay: None, hot });
        return Ok(());
    }
    let log = find(&pinned.view, file.path(), WAL_SUFFIX)?;
    if log.is_some() || has_wal_header(&pinned.view, database.inode)? {
        replay(database, &file, &state, log)?;
    }
    state.settle(database.pinned()?.version);
    Ok(())
}

/// Writes what a log has committed into the database, makes it one that is not in WAL mode, and removes the
/// log.
fn replay(
    database: &mut Database,
    file: &Arc<HeadFile>,
    state: &Arc<FileState>,
    log: Option<InodeNumber>,
) -> Result<()> {
    let version = database.pinned_version();
    // Stale or not, for SQLite, which has read nothing yet, it is only a matter of trying again.
    let reserved = state.reserve(database.id, version, || Ok(file.now()?.1));
    reserved.map_err(
        |fault| if fault.code == code::BUSY_SNAPSHOT { fault.with_code(code::BUSY) } else { fault },
    )?;
    let committed = state
        .exclude(database.id, false, database.modes.counted)
        .and_then(|()| commit_log(database, file, state, log));
    state.release(database.id, Level::Reserved, Level::Shared, false);
    committed?;
    if log.is_some() {
        remove_log(file);
    }
    let pinned = state.pin_again(file)?;
    database.pin = Some(Pin::plain(pinned));
    Ok(())
}

fn commit_log(
    database: &Database,
    file: &Arc<HeadFile>,
    state: &Arc<FileState>,
    log: Option<InodeNumber>,
) -> Result<()> {
    let former = database.pinned()?.clone();
    let view = &former.view;
    let mut group = file.begin(view)?;
    // SQLite does not look into the log of an empty database either.
    if former.facts.size > 0 {
        let overlay = log.map(|log| wal::read(view, log)).transpose()?.flatten();
        if let Some(overlay) = &overlay {
            let mut page = vec![0; overlay.page_bytes() as usize];
            for (index, _) in overlay.pages() {
                let position = index * overlay.page_bytes();
                overlay.read(view, database.inode, position, &mut page)?;
                group.write(database.inode, position, &page)?;
            }
            group.truncate(database.inode, overlay.size())?;
        }
        group.write(database.inode, FORMAT_VERSIONS, &[1, 1])?;
    }
    if let Some(log) = log {
        // In the same record: a crash must not leave both the pages and the log, as later transactions would
        // be overwritten by it.
        group.truncate(log, 0)?;
    }
    let prepared = Prepared { group, head: Arc::clone(file), state: Arc::clone(state), former };
    prepared::commit(&database.pool, vec![prepared], true).map(drop)
}

/// Removes a log that is empty by now; nothing is lost if that fails.
fn remove_log(file: &HeadFile) {
    for suffix in [WAL_SUFFIX, WAL_INDEX_SUFFIX] {
        let mut storage = String::new();
        let _ = file.remove(&beside(file.path(), suffix, &mut storage));
    }
}

/// Ends a journal that SQLite has rolled back: commits what it restored, together with the emptying of the
/// journal, and removes it. False if no connection was rolling back.
pub fn end_journal(database: &HotEnd<'_>) -> Result<bool> {
    let Some(mut prepared) = database.state.take_parked() else { return Ok(false) };
    prepared.group.truncate(database.journal, 0)?;
    let file = Arc::clone(&prepared.head);
    prepared::commit(database.pool, vec![prepared], true)?;
    let mut storage = String::new();
    // Empty, it is no journal any more.
    let _ = file.remove(&beside(file.path(), JOURNAL_SUFFIX, &mut storage));
    Ok(true)
}

/// What ending a journal takes.
pub struct HotEnd<'place> {
    /// The pool.
    pub pool: &'place OpenPool,
    /// The database's entry in the lock table.
    pub state: &'place FileState,
    /// The journal.
    pub journal: InodeNumber,
}

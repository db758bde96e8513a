//! The databases that this thread has locked last.
//!
//! SQLite asks after every lock whether a journal or a write-ahead log exists, by name only. The answer must
//! be that of the version which that very lock has pinned, and it is wanted several times in every
//! transaction. Both SQLite's questions come from the thread that took the lock, right after it.

use crate::store::View;
use icecore::units::InodeNumber;
use std::cell::RefCell;
use std::sync::Arc;

/// The names of a database and of the files that SQLite puts beside it.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// Full path of the database.
    pub database: String,
    /// Full path of its rollback journal.
    pub journal: String,
    /// Full path of its write-ahead log.
    pub wal: String,
}

/// A real journal that SQLite has to roll back, as a pinned version has it.
#[derive(Clone)]
pub struct HotJournal {
    /// The version.
    pub view: View,
    /// The journal.
    pub inode: InodeNumber,
}

struct Recent {
    names: Arc<Names>,
    hot: Option<HotJournal>,
}

/// What is known about a name.
pub enum Known {
    /// It is the journal of a database, and this is the real file of that name.
    HotJournal(HotJournal),
    /// There is no such file.
    Nothing,
}

/// A connection has one database and, unless SQLite was built otherwise, up to ten attached ones. What goes
/// beyond is looked up in the store.
const REMEMBERED: usize = 12;

thread_local! {
    static RECENT: RefCell<Vec<Recent>> = const { RefCell::new(Vec::new()) };
}

/// Remembers a database that was just locked.
pub fn remember(names: &Arc<Names>, hot: Option<HotJournal>) {
    let _ = RECENT.try_with(|recent| {
        let mut recent = recent.borrow_mut();
        if let Some(first) = recent.first_mut()
            && Arc::ptr_eq(&first.names, names)
        {
            first.hot = hot;
            return;
        }
        recent.retain(|known| !Arc::ptr_eq(&known.names, names));
        recent.truncate(REMEMBERED - 1);
        recent.insert(0, Recent { names: Arc::clone(names), hot });
    });
}

/// Forgets a journal: the version that had it is no longer pinned.
pub fn forget_journal(names: &Arc<Names>) {
    let _ = RECENT.try_with(|recent| {
        for known in recent.borrow_mut().iter_mut().filter(|known| Arc::ptr_eq(&known.names, names)) {
            known.hot = None;
        }
    });
}

/// Forgets a database that is being closed.
pub fn forget(names: &Arc<Names>) {
    let _ = RECENT.try_with(|recent| recent.borrow_mut().retain(|known| !Arc::ptr_eq(&known.names, names)));
}

/// What this thread knows about the journal or write-ahead log of that name.
pub fn look_up(path: &str) -> Option<Known> {
    let find = |recent: &RefCell<Vec<Recent>>| {
        recent.borrow().iter().find_map(|known| {
            if known.names.journal == path {
                return Some(known.hot.clone().map_or(Known::Nothing, Known::HotJournal));
            }
            (known.names.wal == path).then_some(Known::Nothing)
        })
    };
    RECENT.try_with(find).ok().flatten()
}

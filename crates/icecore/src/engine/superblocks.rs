//! The two superblock files.

use super::{Engine, Remains};
use crate::copies::{Copies, Mended};
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::segment::{SegmentHeader, from_file_name};
use crate::format::superblock::{NAMES, Superblock};
use crate::storage::{AlignedBuffer, Kind, Storage, StorageFile};
use crate::units::{BLOCK_BYTES, PoolId};

/// Reads the newer of the two superblocks. One that is missing, damaged or of another pool is made up for by
/// its twin.
pub(crate) fn read(storage: &dyn Storage) -> Result<Superblock> {
    match read_twins(storage, NAMES) {
        [Err(error @ Error::NewerFormat { .. }), _] | [_, Err(error @ Error::NewerFormat { .. })] => {
            Err(error)
        }
        [Ok(one), Ok(other)] if one.pool != other.pool => of_the_segments(storage, one, other),
        [Ok(one), Ok(other)] => Ok(if one.generation < other.generation { other } else { one }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(error), Err(_)] => Err(advised(storage, error)),
    }
}

/// Which of two superblocks of different pools is the one of the pool that the segments are of.
fn of_the_segments(storage: &dyn Storage, one: Superblock, other: Superblock) -> Result<Superblock> {
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    let pool_of = |name: &str| {
        let mut block = vec![0; BLOCK_BYTES];
        from_file_name(name)?;
        storage.open(name, false).ok()?.read_at(&mut block, 0).ok()?;
        SegmentHeader::decode(&block).map(|header| header.pool)
    };
    let pools: Vec<PoolId> = files.iter().filter_map(|(name, _)| pool_of(name)).collect();
    let count = |superblock: &Superblock| pools.iter().filter(|pool| **pool == superblock.pool).count();
    match count(&one).cmp(&count(&other)) {
        std::cmp::Ordering::Greater => Ok(one),
        std::cmp::Ordering::Less => Ok(other),
        std::cmp::Ordering::Equal => {
            let detail = format!(
                "they are of different pools, {} and {}, and so are the segments, or there are none",
                one.pool, other.pool
            );
            Err(Error::damaged(NAMES.join(" and "), detail))
        }
    }
}

/// What to do where there is no superblock. Where there are remains of a pool, no new one is advised.
fn advised(storage: &dyn Storage, error: Error) -> Error {
    let Error::NotAPool { path, reason } = error else { return error };
    let files = storage.list().unwrap_or_default();
    let advice = match Remains::of(files.iter().map(|(name, _)| name)) {
        Some(remains) => format!("the folder {}", remains.advice()),
        None => format!("is its filesystem mounted? `icecore init {path}` makes one"),
    };
    Error::NotAPool { reason: format!("{reason} ({advice})"), path }
}

pub(crate) fn read_one(storage: &dyn Storage, name: &str, path: &str) -> Result<Superblock> {
    let not_a_pool = |reason: String| Error::NotAPool { path: path.to_owned(), reason };
    let file = storage.open(name, false).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => not_a_pool(format!("there is no {name} in it")),
        _ => Error::io("open", name, error),
    })?;
    let mut block = vec![0; BLOCK_BYTES];
    file.read_at(&mut block, 0).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::damaged(name, "the superblock is cut short"),
        _ => Error::io("read", name, error),
    })?;
    Superblock::decode(&block, path, name)
}

/// Writes both, one after the other, each durable before the next is touched. The one that is known to be
/// whole comes last: the other may have been torn by a crash, or damaged since it was written. Nothing is
/// lost by that, and it is noted.
pub(super) fn write(storage: &dyn Storage, superblock: &Superblock, files: &SegmentFiles) -> Result<()> {
    let [first, last] = prepare(storage, NAMES, superblock, files.copies());
    write_one(storage, first, superblock)?;
    write_one(storage, last, superblock)
}

/// The names of twins in the order in which they are to be written. Reports one of them that is damaged.
pub(super) fn prepare(
    storage: &dyn Storage,
    twins: [&'static str; 2],
    superblock: &Superblock,
    copies: &Copies,
) -> [&'static str; 2] {
    let own = |found: Result<Superblock>| found.and_then(|found| of_this_pool(found, superblock));
    let found = read_twins(storage, twins).map(own);
    let (first, last) = order(twins, &found);
    if let Some(error) = damaged_twin(twins, found) {
        copies.incidents().note_harmless(&error);
        copies.mended(error.to_string(), Mended::Twin, true);
    }
    [first, last]
}

fn read_twins(storage: &dyn Storage, twins: [&'static str; 2]) -> [Result<Superblock>; 2] {
    let path = storage.describe();
    twins.map(|name| read_one(storage, name, &path))
}

fn of_this_pool(found: Superblock, superblock: &Superblock) -> Result<Superblock> {
    if found.pool == superblock.pool {
        return Ok(found);
    }
    Err(Error::damaged("a superblock", format!("it is of another pool, {}", found.pool)))
}

/// What is wrong with one of the twins, if something is. Where neither is whole they are being made.
fn damaged_twin([one, other]: [&'static str; 2], found: [Result<Superblock>; 2]) -> Option<Error> {
    let (name, error) = match found {
        [Err(error), Ok(_)] => (one, error),
        [Ok(_), Err(error)] => (other, error),
        _ => return None,
    };
    let what = match error {
        Error::NotAPool { reason, .. } | Error::Damaged { detail: reason, .. } => reason,
        other => other.to_string(),
    };
    Some(Error::damaged(name, format!("{what}; it is made again from its twin")))
}

/// The names of twins in the order in which they are written: the newest that is whole comes last.
pub(crate) fn in_order(storage: &dyn Storage, twins: [&'static str; 2]) -> (&'static str, &'static str) {
    order(twins, &read_twins(storage, twins))
}

fn order([one, other]: [&'static str; 2], found: &[Result<Superblock>; 2]) -> (&'static str, &'static str) {
    let [first, second] = found.each_ref().map(|found| found.as_ref().ok().map(|found| found.generation));
    if first > second { (other, one) } else { (one, other) }
}

pub(super) fn write_one(storage: &dyn Storage, name: &str, superblock: &Superblock) -> Result<()> {
    put(storage, name, superblock, |error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Writes one, which is made again if it is cut short, or lost.
pub(crate) fn put(
    storage: &dyn Storage,
    name: &str,
    superblock: &Superblock,
    is_lost: impl Fn(&std::io::Error) -> bool,
) -> Result<()> {
    let aligned = AlignedBuffer::copied(&superblock.encode());
    let there = match storage.open(name, true) {
        // Not every medium makes a file longer.
        Ok(file) if file.length().is_ok_and(|length| length < BLOCK_BYTES as u64) => {
            storage.remove(name).map_err(|error| Error::io("remove", name, error))?;
            None
        }
        Ok(file) => Some(file),
        Err(error) if is_lost(&error) => None,
        Err(error) => return Err(Error::io("open", name, error)),
    };
    let created = there.is_none();
    let make = || storage.create(name, BLOCK_BYTES as u64).map_err(|error| Error::io("create", name, error));
    let file = there.map_or_else(make, Ok)?;
    file.write_at(&[(Kind::Frame, &aligned)], 0).map_err(|error| Error::io("write", name, error))?;
    file.sync().map_err(|error| Error::io("flush", name, error))?;
    if created {
        // Before its twin is touched: a file without a name is none.
        storage.sync_directory().map_err(|error| Error::io("flush", storage.describe(), error))?;
    }
    Ok(())
}

impl Engine {
    /// Lets others write to a pool that is only read here.
    pub(crate) fn disown(&self) {
        // Before the lock is let go of: until then no writer changes a superblock. Without a watch the lock
        // stays.
        let watch = || Watch::begin(&*self.storage, self.superblock.lock().generation);
        if self.disowned.get().is_none()
            && let Some(watch) = watch()
        {
            let _ = self.disowned.set(watch);
            *self.lock.lock() = None;
        }
    }

    /// Whether a writer has opened the pool since it was disowned: a writer writes the superblocks before
    /// anything else. A superblock that cannot be read now says nothing.
    pub(crate) fn is_outdated(&self) -> bool {
        self.options.read_only && self.disowned.get().is_some_and(Watch::has_changed)
    }

    /// Changes the superblock and writes both of them. What was copied so far is durable before, or they say
    /// that it is not.
    pub(super) fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let copies = self.blocks.files().copies();
        // Not under the lock: others ask for the epoch.
        copies.flush(self.options.background);
        let mut superblock = self.superblock.lock();
        let mut next = superblock.clone();
        change(&mut next);
        next.generation += 1;
        next.set_copies(copies.settings());
        let files = self.blocks.files();
        write(&*self.storage, &next, files).inspect_err(|error| files.incidents().note(error))?;
        super::copies::write_superblocks(copies, &next);
        self.counters.frame_bytes.add(2 * BLOCK_BYTES as u64);
        self.counters.flushes.add(2);
        *superblock = next;
        Ok(())
    }
}

/// The superblocks as they were. Reading them is all that is done to find out whether they changed, since
/// each read of a pool that was disowned asks for that.
pub(super) struct Watch(Vec<(Box<dyn StorageFile>, Block)>);

type Block = [u8; BLOCK_BYTES];

impl Watch {
    /// `None` if no superblock of this generation can be read.
    fn begin(storage: &dyn Storage, generation: u64) -> Option<Self> {
        let path = storage.describe();
        let watched = |name: &&str| {
            let file = storage.open(name, false).ok()?;
            let block = read_block(&*file)?;
            let is_known =
                Superblock::decode(&block, &path, name).is_ok_and(|it| it.generation == generation);
            is_known.then_some((file, block))
        };
        let watched: Vec<_> = NAMES.iter().filter_map(watched).collect();
        (!watched.is_empty()).then_some(Self(watched))
    }

    fn has_changed(&self) -> bool {
        let differs = |(file, before): &(Box<dyn StorageFile>, Block)| {
            read_block(&**file).is_some_and(|now| now != *before)
        };
        self.0.iter().any(differs)
    }
}

fn read_block(file: &dyn StorageFile) -> Option<Block> {
    let mut block = [0; BLOCK_BYTES];
    file.read_at(&mut block, 0).ok().map(|()| block)
}

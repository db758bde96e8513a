//! Second copies of an open pool: where they are, what opening reads from them, and how they are made again.

use super::original::Original;
use super::{Engine, absent, superblocks};
use crate::copies::{
    Copies, CopiesReport, Place, SUPERBLOCK_NAMES, Unusable, copy_name, is_copy_name, is_name_of_pool,
};
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::copies::{CopyMode, CopySettings, FOLDER_BYTES_MAX};
use crate::format::segment::{SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::{LedgerPointer, Superblock};
use crate::segments::Segments;
use crate::state::State;
use crate::storage::{AlignedBuffer, Storage};
use crate::units::{BLOCK_BYTES, PoolId, SegmentId, Slot};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// The refusal for a caller that names a folder for copies of nothing.
pub(super) const NOTHING_TO_COPY: &str = "there must be something to copy, metadata or all";

/// Finds the copies that a superblock speaks of; else why they cannot be reached, or do not count.
pub(super) fn find(
    storage: &Arc<dyn Storage>,
    superblock: &Superblock,
    writable: bool,
) -> std::result::Result<Place, Unusable> {
    let Some(folder) = &superblock.copies.folder else { return Ok(Place::here(storage)) };
    let reached = Place::elsewhere(storage, folder, writable);
    let place = reached.map_err(|error| format!("the folder of the copies, {folder}: {error}"))?;
    let found = newest_copy(&*place.storage, Some(superblock.pool))
        .map_err(|why| format!("{folder} is not the folder of the copies of this pool: {why}"))?;
    // The copies were flushed last for the present checkpoint, or for the one before if a crash came between.
    let former = superblock.former.map(|former| former.ledger);
    if found.ledger == superblock.ledger || Some(found.ledger) == former {
        return Ok(place);
    }
    // Once the pool has been written to as often, nothing but the superblock knows.
    if superblock.copies.ahead || found.generation > superblock.generation {
        return Err(Unusable { why: newer(folder), ahead: true });
    }
    Err(format!("the copies in {folder} are older than the pool").into())
}

/// Copies that were written to after the pool was do not lie behind it: it is the pool that went back. They
/// may be all that is left of what came later.
fn newer(folder: &str) -> String {
    format!(
        "the copies in {folder} are newer than the pool, which seems to have been put back from a backup: they are left as they are"
    )
}

/// The newer of the two superblocks in a folder of copies, of this pool if it is known.
pub(super) fn newest_copy(
    storage: &dyn Storage,
    pool: Option<PoolId>,
) -> std::result::Result<Superblock, String> {
    let path = storage.describe();
    let read = |name: &&str| superblocks::read_one(storage, name, &path);
    let (found, errors): (Vec<_>, Vec<_>) = SUPERBLOCK_NAMES.iter().map(read).partition(Result::is_ok);
    let (own, foreign): (Vec<_>, Vec<_>) =
        found.into_iter().flatten().partition(|one| pool.is_none_or(|pool| one.pool == pool));
    own.into_iter().max_by_key(|superblock| superblock.generation).ok_or_else(|| {
        let error = errors.into_iter().find_map(Result::err).map(|error| error.to_string());
        let is_foreign = !foreign.is_empty() || error.is_none();
        if is_foreign { "it has the copies of another pool".to_owned() } else { error.unwrap_or_default() }
    })
}

/// A folder for copies, with nothing in it that belongs to another pool.
///
/// # Errors
/// [`Error::Invalid`] if there is something in it, or it cannot be what it is meant to be; [`Error::Io`].
pub(super) fn prepare(
    storage: &Arc<dyn Storage>,
    folder: Option<&String>,
    pool: Option<PoolId>,
) -> Result<Place> {
    let Some(folder) = folder else { return Ok(Place::here(storage)) };
    if !folder.starts_with('/') || folder.len() > FOLDER_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the folder for copies has to be an absolute path of {FOLDER_BYTES_MAX} bytes at most: {folder}"
        )));
    }
    if is_folder_of(&**storage, folder) {
        return Err(Error::Invalid(format!(
            "{folder} is the folder of the pool itself, or in it: copies lie there unless another folder is named, best one on another disk"
        )));
    }
    let place = Place::elsewhere(storage, folder, true)
        .map_err(|error| Error::io("open", format!("the folder for copies, {folder}"), error))?;
    let files = place.storage.list().map_err(|error| Error::io("list", folder.as_str(), error))?;
    let is_own = pool.is_some() && newest_copy(&*place.storage, pool).is_ok();
    let other = files.iter().find(|(name, _)| is_name_of_pool(name) && !(is_own && is_copy_name(name)));
    match other {
        Some((name, _)) => Err(Error::Invalid(format!(
            "{folder} cannot take copies: it has something of a pool in it ({name})"
        ))),
        None => Ok(place),
    }
}

/// Whether this is where the pool lies, or a folder below it, by whatever path.
fn is_folder_of(storage: &dyn Storage, folder: &str) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let own = storage.directory().and_then(|directory| identity(&directory));
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.into());
    own.is_some() && folder.ancestors().any(|folder| own == identity(folder))
}

/// Writes the superblock to the folder of the copies, after both of the pool's own, in the order in which
/// those are written. Failing is no error.
pub(super) fn write_superblocks(copies: &Copies, superblock: &Superblock) {
    let Some(place) = copies.place_of_superblocks() else { return };
    for name in superblocks::prepare(&*place.storage, SUPERBLOCK_NAMES, superblock, copies) {
        if let Err(error) = superblocks::write_one(&*place.storage, name, superblock) {
            copies.fall_behind(error.to_string());
            return;
        }
        copies.superblock_written();
    }
}

/// Reads a ledger blob, from its copy if need be, and writes it again then.
///
/// # Errors
/// Those of reading; [`Error::Damaged`] if neither is what was written.
pub(super) fn read_blob(files: &SegmentFiles, pointer: &LedgerPointer) -> Result<Vec<u8>> {
    let detail = "a ledger blob does not match its checksum";
    let damaged = || files.geometry().damaged(pointer.segment, pointer.slot, detail);
    // The caller holds the line of the ledger, which keeps the blob's segment.
    files.read_stretch(pointer, damaged, || true)
}

/// The header of a segment without data, from its copy if need be. The segment must not be used for anything
/// else meanwhile.
pub(super) fn read_header(
    files: &SegmentFiles,
    pool: PoolId,
    segment: SegmentId,
    kind: SegmentKind,
) -> Option<SegmentHeader> {
    let decode = |block: &[u8]| SegmentHeader::of(pool, segment, block).filter(|header| header.kind == kind);
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    let read = files.read(segment, Slot(0), &mut block);
    if let Some(header) = read.as_ref().ok().and_then(|()| decode(&block)) {
        return Some(header);
    }
    let header =
        Some(()).filter(|()| files.read_copy(segment, Slot(0), &mut block)).and_then(|()| decode(&block));
    if header.is_some() {
        let damaged = || files.geometry().damaged(segment, Slot(0), "the segment header is not valid");
        let why = read.err().unwrap_or_else(damaged);
        files.heal(segment, Slot(0), &block, &why, || true);
    }
    header
}

/// Makes segments again that are gone, as far as there are copies of them.
pub(super) fn bring_back(
    storage: &dyn Storage,
    files: &SegmentFiles,
    segments: &mut Segments,
    writable: bool,
) -> Result<()> {
    for segment in files.copies().known() {
        if segments.exists(segment) {
            continue;
        }
        let absent = files.what_is_absent(segment);
        let why = absent.unwrap_or_else(|| Error::damaged(file_name(segment), "it was cut short"));
        if writable {
            absent::make_file(storage, files, segment)?;
        }
        segments.add_free(segment, false, true);
        files.incidents().note_healed(&why, writable.then_some(true));
        files.copies().brought_back(segment, why.to_string());
    }
    Ok(())
}

/// What segments in use are used for.
pub(super) fn in_use(segments: &Segments) -> BTreeMap<SegmentId, SegmentKind> {
    let kind = |segment: SegmentId| segments.kind(segment).map(|kind| (segment, kind));
    segments.all().into_iter().filter_map(kind).collect()
}

/// What segments are used for of which the last checkpoint needs something. `loaded`: as of then.
pub(super) fn needed(loaded: &State) -> BTreeMap<SegmentId, SegmentKind> {
    let log = loaded.tail.position().segment;
    let mut needed = in_use(&loaded.segments);
    needed.retain(|segment, _| *segment == log || loaded.segments.live(*segment) > 0);
    needed
}

impl Engine {
    pub(crate) fn copies(&self) -> &Copies {
        self.blocks.files().copies()
    }

    /// Gives up copies of what is not used any more.
    pub(super) fn release_copies(&self) {
        let state = self.state();
        self.copies().release(|segment| state.segments.kind(segment).is_none());
    }

    /// Has everything copied that should be and is not: all of it where copies were left behind.
    ///
    /// # Errors
    /// What prevents that; the pool goes on as before. [`Error::ReadOnly`], [`Error::ReadOnlyAfterFailure`].
    pub(crate) fn restore_copies(&self) -> Result<CopiesReport> {
        self.check_writable()?;
        let _turn = self.copying.lock();
        let CopySettings { mode, behind, folder, .. } = self.copies().settings();
        if mode != CopyMode::None {
            if behind {
                self.begin_anew(mode, folder)?;
            }
            self.miss_copies();
            self.look_at_flawed();
            self.copy_what_lacks(None)?;
        }
        Ok(self.copies().report())
    }

    /// Makes the copies that a recovery gave up. Failing is no error: they are missing, and it is said.
    pub(super) fn copy_again(&self) {
        let _turn = self.copying.lock();
        if !self.copies().settings().behind && self.copies().report().missing > 0 {
            let _ = self.copy_what_lacks(None);
        }
    }

    /// Changes what is copied, and where to; `folder` none for the folder of the pool.
    ///
    /// # Errors
    /// As for [`Engine::restore_copies`], and [`Error::Invalid`] for a folder that cannot take copies:
    /// nothing has changed then.
    pub(crate) fn set_copies(&self, mode: CopyMode, folder: Option<String>) -> Result<CopiesReport> {
        self.check_writable()?;
        if mode == CopyMode::None && folder.is_some() {
            return Err(Error::Invalid(format!("with a folder for copies {NOTHING_TO_COPY}")));
        }
        let _turn = self.copying.lock();
        let now = self.copies().settings();
        let former = self.copies().place();
        if self.blocks.files().has_healed() {
            // What copies were needed for has to be durable before any of them goes.
            self.run_checkpoint()?;
        }
        let moves = mode == CopyMode::None || now.mode == CopyMode::None || folder != now.folder;
        if mode == now.mode && !moves {
            drop(former);
        } else if mode == CopyMode::None {
            self.copies().give_up();
            self.say_of_copies()?;
            clear(former)?;
        } else if moves {
            self.begin_anew(mode, folder)?;
            self.copy_what_lacks(former.as_ref())?;
            if now.mode != CopyMode::None {
                clear(former)?;
            }
        } else {
            drop(former);
            self.copies().set_mode(mode);
            // Before they go: who comes after a crash must not miss them.
            self.say_of_copies()?;
            let in_use = in_use(&self.state().segments);
            self.copies().shrink(&in_use);
            self.copy_what_lacks(None)?;
        }
        Ok(self.copies().report())
    }

    /// Copies are to be made in a place that has none that count.
    fn begin_anew(&self, mode: CopyMode, folder: Option<String>) -> Result<()> {
        if self.copies().settings().folder == folder {
            // The lock on it is this pool's own.
            self.copies().leave_place();
        }
        let place = prepare(&self.storage, folder.as_ref(), Some(self.pool))?;
        self.check_may_replace(&place, folder.as_ref())?;
        let in_use = in_use(&self.state().segments);
        let covered = |segment| in_use.get(&segment).is_some_and(|kind| mode.covers(*kind));
        // What is there may be all that is left of something: it goes where there is something better.
        let cleared = place.set_aside(self.geometry, covered);
        cleared.map_err(|error| Error::io("clear", place.storage.describe(), error))?;
        self.copies().catch_up(place, mode, folder);
        self.say_of_copies()
    }

    /// Refuses to write over copies that are newer than the pool, until they lie somewhere else.
    fn check_may_replace(&self, place: &Place, folder: Option<&String>) -> Result<()> {
        let (Some(folder), Ok(found)) = (folder, newest_copy(&*place.storage, Some(self.pool))) else {
            return Ok(());
        };
        let settings = self.copies().settings();
        let is_own = settings.folder.as_ref() == Some(folder);
        if !(is_own && settings.ahead) && found.generation <= self.superblock.lock().generation {
            return Ok(());
        }
        let why = newer(folder);
        if is_own {
            // It was given up for the moment, for another reason. Copies that lie elsewhere stay as they are.
            self.copies().fall_behind(why.clone());
        }
        Err(Error::Invalid(format!(
            "{why}; to go on with the pool as it is now, move what is in {folder} somewhere else"
        )))
    }

    /// Looks whether the files of copies are still there. If another process has removed one while it is open
    /// here, no reader and no writer would notice.
    fn miss_copies(&self) {
        if self.copies().seems_to_lack() {
            let _state = self.state();
            if let Some(_alone) = self.copies().alone() {
                self.copies().miss();
            }
        }
    }

    /// Looks again at copies that were damaged as their originals were: the original may have gone, or be
    /// whole again.
    fn look_at_flawed(&self) {
        for segment in self.copies().all_flawed() {
            if let Some(kind) = self.hold_copied(segment, |_| true) {
                let mut original = Original::new(self, segment, kind, None);
                original.read_all();
                self.copies().flawed(segment, original.loss());
                self.state().segments.let_go(segment);
            }
        }
    }

    /// `left`: where copies were until now, if that is another place.
    fn copy_what_lacks(&self, left: Option<&Place>) -> Result<()> {
        let lacking = {
            let state = self.state();
            self.copies().lacking(&in_use(&state.segments))
        };
        let mut outcome = Ok(());
        for segment in lacking {
            if let Err(error) = self.copy_one(segment, left, |_| true, || !self.signals.is_stopping()) {
                outcome = Err(Error::io("write", copy_name(segment), error));
                break;
            }
        }
        // Those that were let go of meanwhile.
        self.release_copies();
        self.copies().flush(self.options.background);
        // What could not be copied has no copy; what has one counts.
        self.copies().caught_up();
        self.say_of_copies()?;
        outcome
    }

    /// Keeps a segment from being used for anything else, if it is in use for something of which this holds.
    fn hold_copied(
        &self,
        segment: SegmentId,
        wanted: impl FnOnce(SegmentKind) -> bool,
    ) -> Option<SegmentKind> {
        let mut state = self.state();
        let kind = state.segments.kind(segment).filter(|kind| wanted(*kind))?;
        state.segments.hold(segment);
        Some(kind)
    }

    /// Copies a segment if it is in use for something of which `wanted` holds. What is damaged in it is taken
    /// from its former copy, there or in the place that copies have left, and healed. See [`Copies::fill`].
    pub(super) fn copy_one(
        &self,
        segment: SegmentId,
        left: Option<&Place>,
        wanted: impl FnOnce(SegmentKind) -> bool,
        goes_on: impl FnMut() -> bool,
    ) -> std::io::Result<()> {
        let Some(kind) = self.hold_copied(segment, wanted) else { return Ok(()) };
        let former = self.copies().former(segment, left);
        let mut original = Original::new(self, segment, kind, former);
        let filled = self.copies().fill(segment, |slot, bytes| original.read(Slot(slot), bytes), goes_on);
        if filled.is_ok() {
            original.heal();
            self.copies().flawed(segment, original.loss());
        }
        self.state().segments.let_go(segment);
        filled
    }

    /// Writes superblocks that say how copies stand.
    pub(super) fn say_of_copies(&self) -> Result<()> {
        self.with_line(|_| self.write_superblock(|_| ()))
    }
}

/// Removes the copies that are of no use any more.
fn clear(place: Option<Place>) -> Result<()> {
    let Some(place) = place else { return Ok(()) };
    place.clear(|_| true).map_err(|error| Error::io("clear", place.storage.describe(), error))
}

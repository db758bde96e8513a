//! Making a pool, and opening one.

use super::checkpoint::CheckpointLine;
use super::copies::NOTHING_TO_COPY;
use super::cut::Cut;
use super::line::Line;
use super::recovery::{self, AtDamage, Gone, Recovered};
use super::size_limit::SEGMENTS_MIN;
use super::space::available;
use super::{Engine, absent, background, copies, load, rebuild, size_limit, staging, superblocks};
use crate::blocks::{Blocks, Use};
use crate::copies::{Copies, Place, Unusable, is_name_of_pool};
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::copies::{CopyMode, CopySettings};
use crate::format::drawn::Drawn;
use crate::format::record::RecordView;
use crate::format::segment::{Geometry, SegmentKind};
use crate::format::superblock::{LIVES_MAX, LedgerPointer, Life, Superblock};
use crate::incidents::Incidents;
use crate::liveness::SetLimits;
use crate::location::MapLimits;
use crate::log::tail::Position;
use crate::log::writer::{Chain, Writer};
use crate::nodes::Nodes;
use crate::options::{InitOptions, OpenOptions};
use crate::process::ProcessMark;
use crate::segments::Segments;
use crate::state::State;
use crate::statistics::Counters;
use crate::storage::{AlignedBuffer, Kind, Storage, StorageLock};
use crate::units::{
    BLOCK_BYTES, BlockCount, ByteLength, PoolId, RecordSequence, RecoveryEpoch, Run, SegmentId, Slot, Stream,
    Timestamp,
};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Blocks that are looked at together when a segment of runs is filled further after a crash.
const QUIETED_TOGETHER: u32 = 64;

/// Makes an empty pool.
pub(crate) fn init(storage: &Arc<dyn Storage>, options: &InitOptions) -> Result<()> {
    let refuse = |reason: String| Error::CannotInit { path: storage.describe(), reason };
    if options.mirror.is_some() && options.copies == CopyMode::None {
        return Err(refuse(format!("with a folder for copies (--mirror) {NOTHING_TO_COPY}")));
    }
    let space = storage.space().map_err(|error| Error::io("measure", storage.describe(), error))?;
    let segment_bytes = match options.segment_bytes {
        InitOptions::SEGMENT_BYTES_SUITABLE => {
            size_limit::suitable_segment_bytes(options.size_limit, space.total)
        }
        given => given,
    };
    let beside = if options.mirror.is_some() { CopyMode::None } else { options.copies };
    let least = size_limit::judge(segment_bytes, options.size_limit, beside).map_err(refuse)?;
    let lock = lock(&**storage, true)?;
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    let ours = files.iter().find(|(name, _)| is_name_of_pool(name));
    if let Some((name, _)) = ours {
        return Err(refuse(format!("there is a pool, or part of one, in it already ({name})")));
    }
    if space.free < least {
        return Err(Error::NoSpace {
            detail: format!(
                "a pool takes {} at least and {} has {}",
                ByteLength(least).as_option(),
                storage.describe(),
                ByteLength(space.free).as_option()
            ),
        });
    }
    let place = copies::prepare(storage, options.mirror.as_ref(), None)?;
    let mut superblock = Superblock {
        pool: random_id()?,
        generation: 0,
        features_to_write: 0,
        segment_bytes,
        size_limit: options.size_limit.map_or(0, |limit| limit.0),
        clean: false,
        ledger: LedgerPointer::default(),
        taken: 0,
        former: None,
        drawn: Drawn::from_the_beginning(recovery::first_marks()),
        created: Timestamp::now().0,
        copies: CopySettings::none(),
        lives: vec![Life { epoch: RecoveryEpoch(1), first: RecordSequence(1) }],
    };
    superblock.set_copies(CopySettings {
        mode: options.copies,
        folder: options.mirror.clone(),
        ..CopySettings::default()
    });
    let outcome = fill(storage, superblock, lock, place.clone());
    if outcome.is_err() {
        // Best effort: what was made would be in the way of another try.
        for storage in [storage, &place.storage] {
            for (name, _) in storage.list().unwrap_or_default() {
                if is_name_of_pool(&name) {
                    let _ = storage.remove(&name);
                }
            }
        }
    }
    outcome
}

fn fill(
    storage: &Arc<dyn Storage>,
    superblock: Superblock,
    lock: Box<dyn StorageLock>,
    place: Place,
) -> Result<()> {
    let geometry = Geometry { bytes: superblock.segment_bytes };
    let mut segments = Segments::new(geometry, superblock.size_limit, superblock.epoch());
    let log = SegmentId(0);
    let parts = Parts::new(
        storage,
        &superblock,
        &OpenOptions { background: false, ..OpenOptions::default() },
        true,
        Ok(place),
    );
    segments.share(parts.blocks.files().copies().aside());
    parts.blocks.files().create(log)?;
    segments.add_free(log, false, true);
    segments.use_as(log, SegmentKind::Log);
    segments.hold(log);
    let incarnation = segments.next_incarnation();
    let marks = recovery::first_marks();
    let start = Position {
        segment: log,
        incarnation,
        slot: Slot(1),
        address: marks.of(Stream::Data),
        sequence: RecordSequence(1),
    };
    let mapped = Run {
        stream: Stream::Data,
        start: start.address,
        length: BlockCount(u64::from(geometry.end(SegmentKind::Log).0 - 1)),
    };
    parts.blocks.map().write().insert(mapped, log, Slot(1));
    let state = State::new(start, marks, mapped, segments);
    let line = CheckpointLine::default();
    let recovered = Recovered { state, line, previous: [0; 16], replayed: 0, cut: None };
    let engine = parts.assemble(superblock, recovered, lock);
    engine.write_log_start(start)?;
    engine.write_ahead(log)?;
    engine.write_log_start(start)?;
    engine.blocks.files().sync(log)?;
    {
        let mut state = engine.state();
        state.segments.mark_written(log);
        // The reserve is there from the beginning.
        while state.segments.free() < 3 {
            engine.make_segment(&mut state)?;
        }
    }
    engine.close()
}

/// Opens a pool, recovering it if need be.
pub(crate) fn open(storage: &Arc<dyn Storage>, options: &OpenOptions) -> Result<Arc<Engine>> {
    let engine = guarded(|| {
        let Opened { engine, replayed, .. } = open_to(storage, options, AtDamage::Refuse)?;
        if !options.read_only {
            engine.finish_opening(replayed)?;
        }
        Ok(engine)
    })?;
    if options.background && !options.read_only {
        background::start(&engine).map_err(|error| Error::io("start", "the background thread", error))?;
        staging::start(&engine).map_err(|error| Error::io("start", "the staging thread", error))?;
    }
    Ok(engine)
}

/// Opens a pool to be looked at: recovered, and with nothing done beyond that.
pub(crate) fn open_to_look(storage: &Arc<dyn Storage>, options: &OpenOptions) -> Result<Arc<Engine>> {
    guarded(|| open_to(storage, options, AtDamage::Refuse)).map(|opened| opened.engine)
}

/// Replay, a check and a repair meet sets that may be wrong in a way that only shows now. What contradicts
/// them ends in an assertion. What `work` leaves behind must be thrown away then.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let contradiction = "what it or the trees say contradicts the sets of the last checkpoint";
    unless_asserted(work).unwrap_or_else(|| Err(Error::damaged("the log", contradiction)))
}

/// Runs something that may meet an assertion; `None` if it did.
pub(crate) fn unless_asserted<T>(work: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Opens a pool of which the log is damaged before its end, as it was before that: the first record that
/// counts no more, and why. `None` if the log is whole. `is_short`: there was more of it, wherever it seems
/// to end. No other process may be at the storage.
///
/// # Errors
/// What keeps the pool from being opened even so.
pub(crate) fn open_cut(
    storage: &Arc<dyn Storage>,
    options: &OpenOptions,
    is_short: bool,
) -> Result<(Arc<Engine>, Option<Cut>)> {
    let segments = make_whole_again(storage)?;
    guarded(|| open_to(storage, options, AtDamage::Cut(Gone::of(segments, is_short))))
        .map(|opened| (opened.engine, opened.cut))
}

/// Gives all segments that are cut short files of full length, with what is left of them; answers which.
fn make_whole_again(storage: &Arc<dyn Storage>) -> Result<BTreeSet<SegmentId>> {
    let superblock = superblocks::read(&**storage)?;
    let place = copies::find(storage, &superblock, true);
    let parts = Parts::new(storage, &superblock, &lock_free_options(), true, place);
    let whole = recovery::segments(&**storage, &superblock, superblock.next_epoch())?;
    let mut made = BTreeSet::new();
    for segment in recovery::all_files(&**storage)?.into_iter().filter(|segment| !whole.exists(*segment)) {
        absent::make_file(&**storage, parts.blocks.files(), segment)?;
        made.insert(segment);
    }
    Ok(made)
}

/// A pool that was opened.
pub(super) struct Opened {
    engine: Arc<Engine>,
    /// Records replayed.
    replayed: u64,
    cut: Option<Cut>,
}

/// Opens a pool.
fn open_to(storage: &Arc<dyn Storage>, options: &OpenOptions, at_damage: AtDamage) -> Result<Opened> {
    // Before the lock: a directory that is no pool must not get a lock file.
    superblocks::read(&**storage)?;
    let lock = lock(&**storage, !options.read_only)?;
    let superblock = superblocks::read(&**storage)?;
    if !options.read_only {
        superblock.check_writable(&storage.describe())?;
    }
    if options.read_only && !superblock.clean {
        return Err(Error::NeedsRecovery { path: storage.describe() });
    }
    if !superblock.clean && matches!(at_damage, AtDamage::Refuse) {
        absent::rehearse(storage, &superblock)?;
    }
    open_locked(storage, options, at_damage, superblock, lock)
}

/// Opens a pool under its lock, once more if the end of its log had to be moved.
pub(super) fn open_locked(
    storage: &Arc<dyn Storage>,
    options: &OpenOptions,
    mut at_damage: AtDamage,
    superblock: Superblock,
    lock: Box<dyn StorageLock>,
) -> Result<Opened> {
    let epoch = if options.read_only { superblock.epoch() } else { superblock.next_epoch() };
    let mut segments = recovery::segments(&**storage, &superblock, epoch)?;
    let place = copies::find(storage, &superblock, !options.read_only);
    let parts = Parts::new(storage, &superblock, options, !options.read_only, place);
    let files = parts.blocks.files();
    copies::bring_back(&**storage, files, &mut segments, !options.read_only)?;
    segments.share(files.copies().aside());
    let cuts = matches!(at_damage, AtDamage::Cut(_));
    let mut loaded = load::load(&parts.blocks, &superblock, segments, superblock.clean || cuts)?;
    let end = loaded.state.tail.position().segment;
    if loaded.state.segments.is_absent(end) && !options.read_only {
        // What is healed is durable then: nothing else knows that it need not be.
        files.sync_healed()?;
        drop((loaded, parts));
        let (moved, new_end) = rebuild::move_log_end(storage, &superblock)?;
        at_damage.made_up(new_end, end);
        return open_locked(storage, options, at_damage, moved, lock);
    }
    loaded.state.history.keep_in(parts.blocks.clone(), memory_limits(options).1);
    loaded.state.doom_hidden()?;
    absent::note(&parts.blocks, &loaded, superblock.clean);
    files.copies().expect(&copies::needed(&loaded.state));
    if options.read_only {
        recovery::check_closed(&loaded, &parts, &superblock)?;
        let load::Loaded { state, line, previous, .. } = loaded;
        files.copies().adopt(&copies::in_use(&state.segments));
        let recovered = Recovered { state, line, previous, replayed: 0, cut: None };
        let engine = Arc::new(parts.assemble(superblock, recovered, lock));
        return Ok(Opened { engine, replayed: 0, cut: None });
    }
    let drawn = skip_drawn(&mut loaded.state, &superblock)?;
    let mut recovered = recovery::replay(loaded, &parts, &superblock, at_damage)?;
    let cut = recovered.cut.take();
    recovery::remove_half_made(&**storage, &superblock, &recovered.state.segments)?;
    files.copies().adopt(&copies::in_use(&recovered.state.segments));
    let first = recovered.state.tail.position().sequence;
    let was_clean = superblock.clean;
    let superblock = Superblock { drawn, ..superblock };
    let superblock = begin_life(&**storage, superblock, epoch, first, files)?;
    if !was_clean {
        leave_or_quiet_runs(&**storage, &parts.blocks, &mut recovered.state)?;
    }
    reopen_runs(&parts.blocks, &recovered.state)?;
    let replayed = recovered.replayed;
    Ok(Opened { engine: Arc::new(parts.assemble(superblock, recovered, lock)), replayed, cut })
}

/// What is drawn from here on is nothing that an earlier life may have drawn and left behind on disk.
fn skip_drawn(state: &mut State, superblock: &Superblock) -> Result<Drawn> {
    let drawn = superblock.drawn.next(&state.marks, superblock.clean)?;
    for stream in [Stream::Merged, Stream::Node] {
        *state.marks.of_mut(stream) = drawn.floor.of(stream);
    }
    Ok(drawn)
}

/// A new life is made known before it writes anything, so that nothing from an earlier one can pass for its
/// own.
fn begin_life(
    storage: &dyn Storage,
    mut superblock: Superblock,
    epoch: RecoveryEpoch,
    first: RecordSequence,
    files: &SegmentFiles,
) -> Result<Superblock> {
    let copies = files.copies();
    // A life that wrote nothing leaves nothing to be distinguished.
    superblock.lives.retain(|life| life.first < first);
    if superblock.lives.len() >= LIVES_MAX {
        return Err(Error::damaged("the superblock", "too many lives without a checkpoint"));
    }
    superblock.lives.push(Life { epoch, first });
    superblock.clean = false;
    superblock.generation += 1;
    superblock.set_copies(copies.flush(false));
    superblocks::write(storage, &superblock, files)?;
    copies::write_superblocks(copies, &superblock);
    Ok(superblock)
}

/// After a crash, the segment of runs that was being filled may have some behind the last one that counts: of
/// groups that were never committed, or of a checkpoint that was not finished. Filled further, it could have
/// holes between new runs in which headers of old ones stand, of this very use of it. So another one is
/// begun; where there are few, those headers are wiped instead: one crash after the other must not use up a
/// pool that is full.
fn leave_or_quiet_runs(storage: &dyn Storage, blocks: &Blocks, state: &mut State) -> Result<()> {
    let Some(cursor) = state.run_cursor else { return Ok(()) };
    let segment_bytes = blocks.files().geometry().bytes;
    let fit = storage.space().map_or(0, |space| space.free / segment_bytes);
    let is_short = available(state).min(state.segments.free() as u64 + fit) < SEGMENTS_MIN;
    if !is_short {
        state.run_cursor = None;
        state.segments.let_go(cursor.segment);
        return Ok(());
    }
    let zeros = AlignedBuffer::zeroed(BLOCK_BYTES);
    let end = blocks.files().geometry().end(SegmentKind::Run).0;
    let mut window = vec![0; QUIETED_TOGETHER as usize * BLOCK_BYTES];
    for first in (cursor.slot.0..end).step_by(QUIETED_TOGETHER as usize) {
        let count = QUIETED_TOGETHER.min(end - first);
        let window = &mut window[..count as usize * BLOCK_BYTES];
        blocks.files().read(cursor.segment, Slot(first), window)?;
        for (slot, block) in (first..).zip(window.chunks_exact(BLOCK_BYTES)) {
            if RecordView::decode(block).is_some_and(|view| view.header.incarnation == cursor.incarnation) {
                blocks.files().write(cursor.segment, Slot(slot), &[(Kind::Frame, &zeros)])?;
            }
        }
    }
    blocks.files().sync(cursor.segment)
}

/// The segment of runs that was being filled goes on being filled: its checksums so far are in its record
/// headers.
fn reopen_runs(blocks: &Blocks, state: &State) -> Result<()> {
    let Some(cursor) = state.run_cursor else { return Ok(()) };
    let use_ = Use { kind: SegmentKind::Run, incarnation: cursor.incarnation };
    blocks.sums().reopen(cursor.segment, use_, cursor.slot, blocks.files())
}

/// How a pool is opened of which only a picture is wanted.
pub(crate) fn lock_free_options() -> OpenOptions {
    OpenOptions { background: false, control_socket: false, ..OpenOptions::default() }
}

pub(crate) fn lock(storage: &dyn Storage, exclusive: bool) -> Result<Box<dyn StorageLock>> {
    storage.lock(exclusive).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::PoolInUse {
            path: storage.describe(),
            owner: storage.lock_owner().unwrap_or_else(|| "another process".to_owned()),
            way_out: "use the icecore command, which reaches the owner, open the file on its mount if it has one, or close \
                      the pool there"
                .to_owned(),
        },
        _ => Error::io("lock", storage.describe(), error),
    })
}

fn random_id() -> Result<PoolId> {
    let mut id = [0; 16];
    let got = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => Ok(PoolId(id)),
        Ok(_) => Err(Error::Invalid("the system gave too little randomness".to_owned())),
        Err(error) => Err(Error::io("get", "random bytes", error.into())),
    }
}

/// How much of the location map and of sets is kept in memory: three quarters of what is allowed are for the
/// map.
pub(super) fn memory_limits(options: &OpenOptions) -> (MapLimits, SetLimits) {
    let sets = options.map_memory_bytes / 4;
    (MapLimits::of(options.map_memory_bytes - sets), SetLimits::of(sets))
}

/// What an engine is put together from.
pub(super) struct Parts {
    options: OpenOptions,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) blocks: Arc<Blocks>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) counters: Arc<Counters>,
}

impl Parts {
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        superblock: &Superblock,
        options: &OpenOptions,
        writable: bool,
        place: std::result::Result<Place, Unusable>,
    ) -> Self {
        let counters = Arc::new(Counters::default());
        let geometry = Geometry { bytes: superblock.segment_bytes };
        let incidents = Arc::new(Incidents::new(storage.directory().filter(|_| writable)));
        let copies =
            Copies::new(geometry, writable, Arc::clone(&incidents), superblock.copies.clone(), place);
        let files = SegmentFiles::new(Arc::clone(storage), geometry, writable, incidents, copies);
        let (map, sets) = memory_limits(options);
        let blocks = Arc::new(Blocks::new(
            files,
            superblock.pool,
            options,
            map,
            sets.chunk_bytes,
            Arc::clone(&counters),
        ));
        let nodes = Nodes::new(Arc::clone(&blocks), options.node_cache_bytes, Arc::clone(&counters));
        let options = options.clone();
        Self { options, storage: Arc::clone(storage), blocks, nodes: Arc::new(nodes), counters }
    }

    fn assemble(self, superblock: Superblock, recovered: Recovered, lock: Box<dyn StorageLock>) -> Engine {
        let Recovered { state, line, previous, .. } = recovered;
        let chain = Chain { previous, unsynced: BTreeSet::new(), written: state.tail.last_sequence() };
        Engine {
            options: self.options,
            pool: superblock.pool,
            geometry: Geometry { bytes: superblock.segment_bytes },
            storage: self.storage,
            blocks: self.blocks,
            nodes: self.nodes,
            pins: Arc::clone(state.graveyard.pins()),
            counters: self.counters,
            writer: Writer::new(superblock.pool, superblock.epoch(), chain),
            state: Mutex::new(state),
            way: super::way::Way::default(),
            superblock: Mutex::new(superblock),
            checkpoint: Line::new(line),
            copying: Mutex::default(),
            collector: super::collect::Collector::default(),
            signals: background::Signals::default(),
            staging: Arc::default(),
            users: Mutex::new(HashMap::new()),
            open_files: super::OpenFiles::default(),
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            checkpoint_writing: AtomicBool::new(false),
            tight: AtomicBool::new(false),
            owner: ProcessMark::current(),
            lock: Mutex::new(Some(lock)),
            disowned: OnceLock::new(),
            scrubbing: Mutex::new(None),
        }
    }
}

impl Engine {
    /// Writes the header of the segment that the log begins in.
    fn write_log_start(&self, start: Position) -> Result<()> {
        self.blocks.sums().open(start.segment, start.incarnation, self.geometry);
        let piece = crate::log::tail::Piece::Start {
            segment: start.segment,
            incarnation: start.incarnation,
            address: start.address,
            sequence: start.sequence,
        };
        self.writer.write(&self.blocks, &self.counters, || crate::log::writer::Batch {
            pieces: vec![piece],
            last: RecordSequence(start.sequence.0 - 1),
            runs: BTreeSet::new(),
            operations: 0,
        })
    }

    /// What is left to do once everything is in place.
    fn finish_opening(&self, replayed: u64) -> Result<()> {
        if !self.options.background || !self.state().usage.is_empty() {
            self.finish_freeing()?;
        }
        // Lives without a checkpoint are kept apart in the superblock, which has room for so many.
        let many_lives = self.superblock.lock().lives.len() > LIVES_MAX / 2;
        if replayed > 0 && (many_lives || !self.options.background) {
            self.run_checkpoint()?;
        }
        self.bury(&mut self.state());
        self.release_orphans_if_room()?;
        // Of what the log was replayed from, copies were given up.
        if self.blocks.files().copies().settings().mode == CopyMode::All && self.check_writable().is_ok() {
            self.copy_again();
        }
        Ok(())
    }
}

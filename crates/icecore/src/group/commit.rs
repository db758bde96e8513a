//! From groups to the log: all of them as one atomic step.

use super::balance::{Balance, balance_of};
use super::changes::{FileChanges, Place};
use super::patch::{Patched, patches_of};
use super::{CommitPoint, Group};
use crate::blocks::Block;
use crate::engine::{Allowed, Engine, Making, Most, Purpose, StagedRun};
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::segment::SegmentKind;
use crate::log::tail::Payload;
use crate::namespace::{Read, TreeReader};
use crate::operation::{Operation, Part, Patch, Scatter};
use crate::pool::Pool;
use crate::state::State;
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, BlockCount, FileBlock, InodeNumber, LogAddress, Stream, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

/// Nodes that one step makes, usually fewer.
const NODES_PER_STEP: usize = 8;
/// Nodes that all of them may make beyond what is reckoned with, where segments are taken.
const NODES_IN_DOUBT: u64 = 512;

/// A step of a commit, ready before the state is locked.
pub(super) enum Step {
    Log(Operation, Option<Payload>),
    Staged {
        scatter: Scatter,
        run: Arc<StagedRun>,
        buffer: Option<Arc<AlignedBuffer>>,
    },
    /// Blocks that change in part, as long as the tree still has the root in which that was found out; and
    /// the same as whole blocks.
    Patched {
        root: LogAddress,
        patch: Operation,
        /// What the blocks of the patch come to.
        contents: Vec<Arc<Block>>,
        whole: Scatter,
        buffer: Arc<AlignedBuffer>,
    },
}

/// See [`Pool::commit`].
pub(crate) fn commit(pool: &Pool, mut groups: Vec<Group>) -> Result<CommitPoint> {
    let time = pool.engine().now();
    let mut steps = Vec::new();
    for group in &mut groups {
        group.write_back_all()?;
        steps_of(group, time, &mut steps)?;
    }
    // No reader may find in the log what is not in its place.
    groups.iter().flat_map(|group| group.files.values()).try_for_each(FileChanges::wait)?;
    groups.iter().try_for_each(Group::seal)?;
    loop {
        if let Some(point) = commit_with_room(pool, &groups, &steps)? {
            return Ok(point);
        }
        steps = steps.into_iter().map(Step::without_patches).collect();
    }
}

/// Commits, and makes room for it if need be. Where there is none, a commit that takes no more than it frees
/// may use what is kept for such: with nothing but SQL, deleting is the only way out.
fn commit_with_room(pool: &Pool, groups: &[Group], steps: &[Step]) -> Result<Option<CommitPoint>> {
    let engine = pool.engine();
    let commit = |purpose| engine.with_room(|| commit_steps(pool, groups, steps, purpose));
    let outcome = commit(Purpose::Data);
    if !matches!(outcome, Err(Error::NoSpace { .. })) {
        return outcome;
    }
    match balance_of(engine, steps)? {
        Balance::Grows => outcome,
        Balance::Replaces => commit(Purpose::Replacing),
        Balance::Shrinks => commit(Purpose::Shrinking),
    }
}

/// `None`: another writer has changed what the patches are for.
fn commit_steps(
    pool: &Pool,
    groups: &[Group],
    steps: &[Step],
    purpose: Purpose,
) -> Result<Option<CommitPoint>> {
    let engine = pool.engine();
    engine.admit()?;
    let mut state = engine.state();
    for group in groups {
        check_generation(&state, group)?;
        check_files(engine, &state, group)?;
    }
    if steps.is_empty() {
        return Ok(Some(CommitPoint(state.tail.last_sequence())));
    }
    for step in steps {
        if !step.is_current(&state)? {
            return Ok(None);
        }
    }
    let allowed = judge(engine, &state, steps)?;
    make_room(engine, &mut state, steps, purpose)?;
    if steps.len() > 1 {
        state.tail.begin_chain();
    }
    let mut addresses = engine.addresses_of_staged(&mut state, steps);
    for step in steps {
        if let Err(error) = append_step(engine, &mut state, step, purpose, &mut addresses) {
            if steps.len() > 1 {
                // Half of the step is in memory, and the log will never hold all of it.
                state.tail.abandon();
                engine.writer.fail(&format!("a commit was cut off in the middle: {error}"));
            }
            return Err(error);
        }
    }
    if steps.len() > 1 {
        state.tail.end_chain();
    }
    allowed.came_true(&state);
    let point = CommitPoint(state.tail.last_sequence());
    let pressure = engine.pressure(&state);
    drop(state);
    engine.after_append(pressure)?;
    Ok(Some(point))
}

fn check_generation(state: &State, group: &Group) -> Result<()> {
    let row = state.catalogue.existing(group.dataset.id())?;
    if row.generation != group.generation {
        return Err(Error::StaleHandle { dataset: row.name.clone() });
    }
    Ok(())
}

/// Every file that a group writes is still there, and blocks of which a part is cut off can be read: nothing
/// may come in between the steps of a commit.
fn check_files(engine: &Engine, state: &State, group: &Group) -> Result<()> {
    let head = state.head(group.dataset.id())?;
    let reader = TreeReader::new(&state.trees[&head], &*engine.nodes);
    group.files.iter().try_for_each(|(inode, file)| {
        let size = reader.inode(*inode)?.of_file()?.size;
        let cut = file.cut.filter(|cut| *cut < size && cut % BLOCK_BYTES as u64 != 0);
        let Some(cut) = cut else { return Ok(()) };
        match reader.run_at(*inode, FileBlock::containing(cut))? {
            Some(run) => engine.blocks.read(run.stream, run.start).map(drop),
            None => Ok(()),
        }
    })
}

/// Refuses what limits do not allow. Steps that only cut files are not asked.
fn judge(engine: &Engine, state: &State, steps: &[Step]) -> Result<Allowed> {
    if state.usage.is_empty() || steps.iter().all(|step| step.only_frees(engine, state)) {
        return Ok(Allowed::default());
    }
    let most: Vec<Most> = steps.iter().filter_map(|step| step.most(engine, state)).collect();
    engine.judge(state, &most, &*engine.nodes, |trial| {
        if steps.len() > 1 {
            trial.begin_chain();
        }
        let mut next = trial.take_addresses(staged_blocks(steps));
        steps.iter().try_for_each(|step| {
            let (operation, payload, patched) = step.logged(&mut next);
            let (encoded, _) = engine.encoded(&operation, payload)?;
            trial.step(&operation, &encoded, payload, patched)
        })
    })
}

/// Blocks that lie outside the log and get their addresses with the commit.
fn staged_blocks(steps: &[Step]) -> BlockCount {
    let blocks = steps.iter().map(|step| match step {
        Step::Staged { run, .. } => u64::from(run.blocks()),
        Step::Log(..) | Step::Patched { .. } => 0,
    });
    BlockCount(blocks.sum())
}

/// Sees to it that all the steps find room, before the first of them is taken.
fn make_room(engine: &Engine, state: &mut State, steps: &[Step], purpose: Purpose) -> Result<()> {
    let segments = segments_of_log(engine, state, steps);
    let merged: u64 = steps.iter().map(Step::patched_blocks).sum();
    // A part of a scattered write may change leaves that no other part does.
    let nodes = NODES_PER_STEP * steps.len() + steps.iter().map(Step::parts).sum::<usize>();
    if segments == 0 {
        return engine.ensure_reserve(state, purpose, nodes);
    }
    // The reserve grows with what the steps make. Once they have begun it is too late to find that it was
    // more.
    let nodes = nodes as u64;
    let making = Making { nodes: nodes + (2 * nodes).min(NODES_IN_DOUBT), merged };
    engine.ensure_free_with(state, segments, purpose, making)
}

/// Segments that the log goes on in until it has all the steps: one ends where the next step does not fit any
/// more.
fn segments_of_log(engine: &Engine, state: &State, steps: &[Step]) -> usize {
    // Its header, and the record that names the next one.
    let whole = u64::from(engine.geometry.end(SegmentKind::Log).0) - 2;
    let (mut room, mut segments) = (state.tail.room(), 0);
    for blocks in steps.iter().map(Step::log_blocks) {
        if blocks > room {
            (room, segments) = (whole, segments + 1);
        }
        room = room.saturating_sub(blocks);
    }
    segments
}

impl Step {
    fn most(&self, engine: &Engine, state: &State) -> Option<Most> {
        match self {
            Self::Log(operation, _) => engine.most_of(state, operation),
            Self::Staged { scatter, .. } => Some(Most::of_staged(scatter)),
            Self::Patched { whole, .. } => Some(Most::of_scatter(whole)),
        }
    }

    fn only_frees(&self, engine: &Engine, state: &State) -> bool {
        matches!(self, Self::Log(operation, _) if engine.only_frees(state, operation))
    }

    /// What it is in the log, the blocks with it, and what the blocks of a patch come to. `next`: the next
    /// address for what lies outside the log.
    fn logged(&self, next: &mut LogAddress) -> (Cow<'_, Operation>, Option<&Payload>, &[Arc<Block>]) {
        match self {
            Self::Log(operation, payload) => (Cow::Borrowed(operation), payload.as_ref(), &[]),
            Self::Patched { patch, contents, .. } => (Cow::Borrowed(patch), None, contents),
            Self::Staged { scatter, run, .. } => {
                let address = *next;
                *next = next.plus(BlockCount(run.blocks().into()));
                let (segment, slot) = (run.segment(), run.slot());
                let operation = Operation::MapScattered { scatter: scatter.clone(), address, segment, slot };
                (Cow::Owned(operation), None, &[])
            }
        }
    }

    /// Blocks of log that it takes at most: a header, an operation that may not fit it, and what they are
    /// about.
    fn log_blocks(&self) -> u64 {
        let payload = match self {
            Self::Log(_, payload) => payload.as_ref().map_or(0, Payload::blocks),
            Self::Staged { .. } | Self::Patched { .. } => 0,
        };
        2 + payload as u64
    }

    /// Blocks of it that a checkpoint has to write.
    fn patched_blocks(&self) -> u64 {
        match self {
            Self::Patched { whole, .. } => whole.blocks.into(),
            Self::Log(..) | Self::Staged { .. } => 0,
        }
    }

    /// Whether it means what it meant when it was made.
    fn is_current(&self, state: &State) -> Result<bool> {
        let Self::Patched { root, whole, .. } = self else { return Ok(true) };
        let head = state.head(whole.dataset)?;
        // The group that made the patch holds the tree, so a changed one has another root.
        Ok(state.trees[&head].root_address() == *root)
    }

    /// The same with whole blocks.
    fn without_patches(self) -> Self {
        let Self::Patched { whole, buffer, .. } = self else { return self };
        Self::of_blocks(whole, buffer)
    }

    fn of_blocks(scatter: Scatter, buffer: Arc<AlignedBuffer>) -> Self {
        let sums = buffer.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
        Self::Log(Operation::WriteScattered(scatter), Some(Payload { buffer, first: 0, sums }))
    }

    fn parts(&self) -> usize {
        match self {
            Self::Log(Operation::WriteScattered(scatter), _) | Self::Staged { scatter, .. } => {
                scatter.parts.len()
            }
            // And the blocks themselves are for a checkpoint to write.
            Self::Patched { whole, .. } => 2 * whole.blocks as usize,
            Self::Log(..) => 0,
        }
    }
}

fn append_step(
    engine: &Engine,
    state: &mut State,
    step: &Step,
    purpose: Purpose,
    next: &mut LogAddress,
) -> Result<()> {
    let address = *next;
    let (operation, payload, patched) = step.logged(next);
    engine.append_allowed(state, &operation, payload.cloned(), purpose, patched)?;
    if let Step::Staged { run, buffer: Some(buffer), .. } = step {
        engine.blocks.recent().add_staged(address, buffer, run.first, run.blocks());
    }
    Ok(())
}

/// What a group comes to, in the order in which it is to happen.
fn steps_of(group: &mut Group, time: Timestamp, steps: &mut Vec<Step>) -> Result<()> {
    let dataset = group.dataset.id();
    for (inode, file) in &mut group.files {
        let inode = *inode;
        let truncate = |size| Step::Log(Operation::Truncate { dataset, inode, size, time }, None);
        steps.extend(file.cut.map(truncate));
        let size = file.size.unwrap_or(u64::MAX);
        let mut written = file.cut.unwrap_or(0);
        let placed = by_piece(file);
        let scatter = |first: u32, blocks: u32, parts: Vec<Part>| {
            let last = parts.last().map_or(0, |part| part.block.0 + u64::from(part.blocks));
            let end = (last * BLOCK_BYTES as u64).min(size);
            Scatter { dataset, inode, blocks, end, time, parts: counted_from(first, parts) }
        };
        for (piece, places) in file.staged.iter().zip(&placed) {
            for run in &piece.runs {
                let own = places.iter().filter(|(_, index)| run.holds(*index));
                let parts = parts_of(own.copied());
                if !parts.is_empty() {
                    let scatter = scatter(run.first, run.blocks(), parts);
                    written = written.max(scatter.end);
                    let buffer = piece.buffer.clone();
                    steps.push(Step::Staged { scatter, run: Arc::clone(run), buffer });
                }
            }
        }
        let places = placed.last().map_or(&[][..], Vec::as_slice);
        let patches = patches_of(&group.base, inode, file)?;
        if let Some(filling) = file.filling.take().filter(|_| !places.is_empty()) {
            let whole = scatter(0, (filling.len() / BLOCK_BYTES) as u32, parts_of(places.iter().copied()));
            written = written.max(whole.end);
            let is_patched = |block: FileBlock| patches.iter().any(|patched| patched.patch.block == block);
            let rest: Vec<_> = places.iter().filter(|(block, _)| !is_patched(*block)).copied().collect();
            if patches.is_empty() {
                steps.push(Step::of_blocks(whole, Arc::new(filling)));
            } else {
                if !rest.is_empty() {
                    let mut blocks = AlignedBuffer::with_capacity(rest.len() * BLOCK_BYTES);
                    for (_, at) in &rest {
                        blocks.extend(&filling[*at as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
                    }
                    let packed = rest.iter().enumerate().map(|(at, (block, _))| (*block, at as u32));
                    let scatter = scatter(0, rest.len() as u32, parts_of(packed));
                    steps.push(Step::of_blocks(scatter, Arc::new(blocks)));
                }
                let (blocks, contents) =
                    patches.into_iter().map(|Patched { patch, content }| (patch, content)).unzip();
                let patch = Operation::Patch(Patch { dataset, inode, end: whole.end, time, blocks });
                let root = group.base.tree().root_address();
                steps.push(Step::Patched { root, patch, contents, whole, buffer: Arc::new(filling) });
            }
        }
        steps.extend(last_size(&group.base, inode, file, written).map(truncate));
    }
    Ok(())
}

/// The size that a file still has to be set to when its blocks are in place.
fn last_size(base: &crate::View, inode: InodeNumber, file: &FileChanges, written: u64) -> Option<u64> {
    let ends = match file.cut {
        Some(_) => written,
        None => written.max(base.attributes(inode).map_or(0, |attributes| attributes.size)),
    };
    file.size.filter(|size| *size != ends)
}

/// File block and place in the piece of everything that each piece holds, in the order of the file. The piece
/// that is being filled is the last one.
fn by_piece(file: &FileChanges) -> Vec<Vec<(FileBlock, u32)>> {
    let mut placed = vec![Vec::new(); file.staged.len() + 1];
    for (block, Place { piece, index }) in &file.blocks {
        placed[*piece as usize].push((FileBlock(*block), *index));
    }
    placed
}

/// Blocks in the order of the file, neighbours joined.
fn parts_of(blocks: impl Iterator<Item = (FileBlock, u32)>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (block, at) in blocks {
        match parts.last_mut() {
            Some(last) if last.block.0 + u64::from(last.blocks) == block.0 && last.at + last.blocks == at => {
                last.blocks += 1;
            }
            _ => parts.push(Part { at, block, blocks: 1 }),
        }
    }
    parts
}

fn counted_from(first: u32, mut parts: Vec<Part>) -> Vec<Part> {
    parts.iter_mut().for_each(|part| part.at -= first);
    parts
}

impl Engine {
    /// Gives the next addresses of the data stream to all the runs that lie outside the log; answers the
    /// first.
    fn addresses_of_staged(&self, state: &mut State, steps: &[Step]) -> LogAddress {
        let count = staged_blocks(steps);
        if count.0 == 0 {
            return LogAddress(0);
        }
        state.tail.seal();
        let address = state.tail.take_addresses(count);
        let next = state.tail.position();
        state.map_tail(&self.blocks, next.address, next.segment, next.slot, address);
        debug_assert_eq!(state.tail_mapped.stream, Stream::Data);
        address
    }
}

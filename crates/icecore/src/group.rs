//! Atomic groups of writes: invisible to everybody else, and absent from the log, until they are committed.

use crate::blocks::Block;
use crate::dataset::Dataset;
use crate::engine::{Addition, Engine, Purpose};
use crate::error::{Error, FileFault, Result};
use crate::format::crc32c;
use crate::format::segment::SegmentKind;
use crate::log::tail::Payload;
use crate::namespace::{InodeItem, InodeKind, Read, TreeReader};
use crate::operation::{Operation, Write};
use crate::pool::Pool;
use crate::state::State;
use crate::storage::AlignedBuffer;
use crate::units::{
    BLOCK_BYTES, BlockCount, FILE_BYTES_MAX, FileBlock, InodeNumber, RecordSequence, SegmentId, Slot, Stream,
    Timestamp,
};
use crate::view::View;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

/// Pieces written ahead that stay in memory too.
const RECENT_PIECES_MAX: usize = 16;
/// Nodes that one step makes, usually fewer.
const NODES_PER_STEP: usize = 8;
/// Blocks written together.
const PIECE_BLOCKS: usize = 256;

/// A moment in the log, for [`Pool::make_durable`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CommitPoint(pub(crate) RecordSequence);

/// Writes that will become visible and durable together, or not at all. Dropping it discards them, which needs
/// no space and no I/O.
pub struct Group {
    dataset: Dataset,
    generation: u64,
    /// What partial blocks are completed from.
    base: View,
    files: BTreeMap<InodeNumber, FileChanges>,
    in_memory: usize,
    /// Segments with staged runs of this group, kept from being reused.
    held: Vec<SegmentId>,
    /// What was written ahead last: a transaction comes back to it.
    recent: VecDeque<Arc<AlignedBuffer>>,
}

#[derive(Default)]
struct FileChanges {
    blocks: BTreeMap<u64, Content>,
    /// The size that the file will have, once anything changed it.
    size: Option<u64>,
    /// The file was cut here: nothing of the base is visible from this byte on.
    cut: Option<u64>,
}

#[derive(Clone)]
enum Content {
    Memory(Arc<Block>),
    /// Written ahead. The memory it was written from is there as long as it is among the last.
    Staged {
        segment: SegmentId,
        slot: Slot,
        memory: Weak<AlignedBuffer>,
        index: u32,
    },
}

impl Group {
    pub(crate) fn new(dataset: Dataset) -> Result<Self> {
        let base = dataset.view()?;
        let generation = dataset.generation()?;
        Ok(Self {
            dataset,
            generation,
            base,
            files: BTreeMap::new(),
            in_memory: 0,
            held: Vec::new(),
            recent: VecDeque::new(),
        })
    }

    fn engine(&self) -> &Engine {
        self.dataset.pool().engine()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The size of a file as the group sees it. Only files can be written.
    fn own_size(&self, inode: InodeNumber) -> Result<u64> {
        match self.files.get(&inode).and_then(|file| file.size) {
            Some(size) => Ok(size),
            None => regular_file(&self.base.attributes(inode)?).map(|item| item.size),
        }
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when what has to be written ahead finds no room: the group is as it was before.
    pub fn write(&mut self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FileFault::TooLarge)?;
        let former = self.own_size(inode)?;
        if data.is_empty() {
            return Ok(());
        }
        let memory_blocks_max = self.engine().options.group_memory_bytes as usize / BLOCK_BYTES;
        if self.in_memory + data.len() / BLOCK_BYTES + 2 > memory_blocks_max {
            self.spill()?;
        }
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let block = FileBlock::containing(at);
            let within = (at - block.offset()) as usize;
            let (part, after) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
            let content = if part.len() == BLOCK_BYTES {
                Arc::new(<Block>::try_from(part).expect("a whole block"))
            } else {
                let mut content = self.current(inode, block)?;
                Arc::make_mut(&mut content)[within..within + part.len()].copy_from_slice(part);
                content
            };
            self.put(inode, block, content);
            at += part.len() as u64;
            rest = after;
        }
        self.files.entry(inode).or_default().size = Some(former.max(end));
        Ok(())
    }

    fn put(&mut self, inode: InodeNumber, block: FileBlock, content: Arc<Block>) {
        let former = self.files.entry(inode).or_default().blocks.insert(block.0, Content::Memory(content));
        if !matches!(former, Some(Content::Memory(_))) {
            self.in_memory += 1;
        }
    }

    /// What a block holds, with the group's own writes.
    fn current(&self, inode: InodeNumber, block: FileBlock) -> Result<Arc<Block>> {
        let file = self.files.get(&inode);
        if let Some(content) = file.and_then(|file| file.blocks.get(&block.0)) {
            return self.load(content);
        }
        let mut content = Arc::new([0; BLOCK_BYTES]);
        let visible = file.and_then(|file| file.cut).unwrap_or(u64::MAX);
        if block.offset() < visible {
            let bytes = Arc::make_mut(&mut content);
            self.base.read(inode, block.offset(), bytes)?;
            let keep = (visible - block.offset()).min(BLOCK_BYTES as u64) as usize;
            bytes[keep..].fill(0);
        }
        Ok(content)
    }

    fn load(&self, content: &Content) -> Result<Arc<Block>> {
        match content {
            Content::Memory(block) => Ok(Arc::clone(block)),
            Content::Staged { segment, slot, memory, index } => {
                let mut block = Arc::new([0; BLOCK_BYTES]);
                if let Some(buffer) = memory.upgrade() {
                    let at = *index as usize * BLOCK_BYTES;
                    Arc::make_mut(&mut block).copy_from_slice(&buffer[at..at + BLOCK_BYTES]);
                    return Ok(block);
                }
                self.engine().blocks.read_verified(*segment, *slot, &mut Arc::make_mut(&mut block)[..])?;
                Ok(block)
            }
        }
    }

    /// Sets the size of a file.
    ///
    /// # Errors
    /// [`FileFault::TooLarge`]; reading the last block may fail.
    pub fn truncate(&mut self, inode: InodeNumber, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(FileFault::TooLarge.into());
        }
        let former = self.own_size(inode)?;
        let last = FileBlock::containing(size);
        let within = (size - last.offset()) as usize;
        let own = self.files.get(&inode).and_then(|file| file.blocks.get(&last.0)).cloned();
        if let (Some(own), true) = (own, size < former && within > 0) {
            let mut content = self.load(&own)?;
            Arc::make_mut(&mut content)[within..].fill(0);
            self.put(inode, last, content);
        }
        let file = self.files.entry(inode).or_default();
        if size < former {
            let gone = file.blocks.split_off(&size.div_ceil(BLOCK_BYTES as u64));
            let in_memory = gone.values().filter(|content| matches!(content, Content::Memory(_))).count();
            self.in_memory -= in_memory;
            file.cut = Some(file.cut.map_or(size, |cut| cut.min(size)));
        }
        file.size = Some(size);
        Ok(())
    }

    /// The size of a file, with the group's own changes. `view`: the version that the caller sees otherwise.
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn size(&self, view: &View, inode: InodeNumber) -> Result<u64> {
        match self.files.get(&inode).and_then(|file| file.size) {
            Some(size) => Ok(size),
            None => Ok(view.attributes(inode)?.size),
        }
    }

    /// Reads with the group's own writes on top of `view`; answers how much.
    ///
    /// # Errors
    /// As for [`View::read`].
    pub fn read(&self, view: &View, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let Some(file) = self.files.get(&inode) else { return view.read(inode, offset, buffer) };
        let size = self.size(view, inode)?;
        let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut rest = &mut buffer[..length];
        let mut at = offset;
        while !rest.is_empty() {
            let block = FileBlock::containing(at);
            let within = (at - block.offset()) as usize;
            let count = rest.len().min(BLOCK_BYTES - within);
            let (part, after) = rest.split_at_mut(count);
            match file.blocks.get(&block.0) {
                Some(Content::Memory(content)) => part.copy_from_slice(&content[within..within + count]),
                Some(content) => part.copy_from_slice(&self.load(content)?[within..within + count]),
                None => {
                    let visible = file.cut.unwrap_or(u64::MAX).saturating_sub(at).min(count as u64) as usize;
                    let (seen, hidden) = part.split_at_mut(visible);
                    let read = if seen.is_empty() { 0 } else { view.read(inode, at, seen)? };
                    seen[read..].fill(0);
                    hidden.fill(0);
                }
            }
            at += count as u64;
            rest = after;
        }
        Ok(length)
    }

    /// Writes everything that is in memory ahead, outside the log.
    fn spill(&mut self) -> Result<()> {
        let mut waiting: Vec<(InodeNumber, u64, Arc<Block>)> = Vec::new();
        for (inode, file) in &self.files {
            for (block, content) in &file.blocks {
                if let Content::Memory(content) = content {
                    waiting.push((*inode, *block, Arc::clone(content)));
                }
            }
        }
        let mut rest = &waiting[..];
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(PIECE_BLOCKS)];
            let payload = pack(piece.iter().map(|(_, _, content)| &**content), piece.len());
            let (segment, slot, written) = {
                let engine = self.engine();
                engine.with_room(|| engine.write_run(&payload, Purpose::Data))?
            };
            // The run came with a hold on its segment; one for each segment is enough.
            if self.held.last() == Some(&segment) {
                self.engine().state().segments.let_go(segment);
            } else {
                self.held.push(segment);
            }
            for (index, (inode, block, _)) in rest[..written].iter().enumerate() {
                let file = self.files.get_mut(inode).expect("listed from it");
                let (memory, index) = (Arc::downgrade(&payload.buffer), index as u32);
                let staged = Content::Staged { segment, slot: Slot(slot.0 + index), memory, index };
                file.blocks.insert(*block, staged);
                self.in_memory -= 1;
            }
            rest = &rest[written..];
            self.recent.push_back(payload.buffer);
            if self.recent.len() > RECENT_PIECES_MAX {
                self.recent.pop_front();
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.held.is_empty() || !self.engine().is_owner() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let mut state = self.engine().state();
        for segment in held {
            state.segments.let_go(segment);
        }
    }
}

fn pack<'a>(contents: impl Iterator<Item = &'a Block>, count: usize) -> Payload {
    let mut buffer = AlignedBuffer::zeroed(count * BLOCK_BYTES);
    let mut sums = Vec::with_capacity(count);
    for (target, content) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(contents) {
        target.copy_from_slice(content);
        sums.push(crc32c(content));
    }
    Payload { buffer: Arc::new(buffer), first: 0, sums }
}

/// A step of a commit, ready before the state is locked.
enum Step {
    Log(Operation, Option<Payload>),
    Staged { write: Write, segment: SegmentId, slot: Slot },
}

impl Step {
    fn addition(&self) -> Option<Addition> {
        match self {
            Self::Log(operation, _) => Addition::of(operation),
            Self::Staged { write, .. } => Some(Addition::of_write(write)),
        }
    }
}

/// See [`Pool::commit`].
pub(crate) fn commit(pool: &Pool, groups: Vec<Group>) -> Result<CommitPoint> {
    let time = Timestamp::now();
    let steps: Vec<Step> = groups.iter().flat_map(|group| steps_of(group, time)).collect();
    pool.engine().with_room(|| commit_steps(pool, &groups, &steps))
}

fn commit_steps(pool: &Pool, groups: &[Group], steps: &[Step]) -> Result<CommitPoint> {
    let engine = pool.engine();
    engine.admit()?;
    let mut state = engine.state();
    for group in groups {
        check_generation(&state, group)?;
        check_files(engine, &state, group)?;
    }
    if steps.is_empty() {
        return Ok(CommitPoint(state.tail.last_sequence()));
    }
    if !state.usage.is_empty() {
        let additions: Vec<Addition> = steps.iter().filter_map(Step::addition).collect();
        engine.check_limits(&state, &additions)?;
    }
    make_room(engine, &mut state, steps)?;
    if steps.len() > 1 {
        state.tail.begin_chain();
    }
    for step in steps {
        if let Err(error) = append_step(engine, &mut state, step) {
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
    let point = CommitPoint(state.tail.last_sequence());
    let pressure = engine.pressure(&state);
    drop(state);
    engine.after_append(pressure)?;
    Ok(point)
}

fn check_generation(state: &State, group: &Group) -> Result<()> {
    let row = state.catalogue.dataset(group.dataset.id());
    let row = row.ok_or_else(|| Error::NotFound { what: "the dataset (it was destroyed)".to_owned() })?;
    if row.generation != group.generation {
        return Err(Error::StaleHandle { dataset: row.name.clone() });
    }
    Ok(())
}

/// Every file that a group writes is still there: nothing may come in between the steps of a commit.
fn check_files(engine: &Engine, state: &State, group: &Group) -> Result<()> {
    let head = state.head(group.dataset.id())?;
    let reader = TreeReader::new(&state.trees[&head], &*engine.nodes);
    group.files.keys().try_for_each(|inode| regular_file(&reader.inode(*inode)?).map(drop))
}

fn regular_file(item: &InodeItem) -> Result<&InodeItem> {
    match item.kind {
        InodeKind::File => Ok(item),
        InodeKind::Directory => Err(FileFault::IsADirectory.into()),
        _ => Err(FileFault::Invalid.into()),
    }
}

/// Sees to it that all the steps find room, before the first of them is taken.
fn make_room(engine: &Engine, state: &mut State, steps: &[Step]) -> Result<()> {
    let blocks: u64 = steps
        .iter()
        .map(|step| match step {
            Step::Log(_, payload) => 2 + payload.as_ref().map_or(0, Payload::blocks) as u64,
            Step::Staged { .. } => 1,
        })
        .sum();
    // A segment may end with a piece that does not fit any more.
    let per_segment = u64::from(engine.geometry.end(SegmentKind::Log).0) - PIECE_BLOCKS as u64 - 2;
    let beyond = blocks.saturating_sub(state.tail.room());
    let segments = beyond.div_ceil(per_segment) as usize + usize::from(beyond > 0);
    if segments == 0 {
        return engine.ensure_reserve(state, Purpose::Data, steps.len() * NODES_PER_STEP);
    }
    // The reserve grows with the nodes that the steps make.
    let nodes = (steps.len() * NODES_PER_STEP).div_ceil(engine.geometry.slots() as usize);
    engine.ensure_free(state, segments + nodes, Purpose::Data)
}

fn append_step(engine: &Engine, state: &mut State, step: &Step) -> Result<()> {
    match step {
        Step::Log(operation, payload) => engine.append(state, operation, payload.clone(), Purpose::Data),
        Step::Staged { write, segment, slot } => {
            let count = BlockCount(write.blocks.into());
            let address = engine.take_addresses(state, count)?;
            let operation = Operation::MapStaged { write: *write, address, segment: *segment, slot: *slot };
            engine.append(state, &operation, None, Purpose::Data)
        }
    }
}

/// What a group comes to, in the order in which it is to happen.
fn steps_of(group: &Group, time: Timestamp) -> Vec<Step> {
    let dataset = group.dataset.id();
    let mut steps = Vec::new();
    for (inode, file) in &group.files {
        let truncate = |size| Step::Log(Operation::Truncate { dataset, inode: *inode, size, time }, None);
        if let Some(cut) = file.cut {
            steps.push(truncate(cut));
        }
        let size = file.size.unwrap_or(u64::MAX);
        let mut written = file.cut.unwrap_or(0);
        let blocks: Vec<(u64, &Content)> =
            file.blocks.iter().map(|(block, content)| (*block, content)).collect();
        let mut rest = &blocks[..];
        while let Some((first, _)) = rest.first() {
            let count = together(rest);
            let (now, after) = rest.split_at(count);
            let end = ((first + count as u64) * BLOCK_BYTES as u64).min(size);
            written = written.max(end);
            let write =
                Write { dataset, inode: *inode, block: FileBlock(*first), blocks: count as u32, end, time };
            steps.push(step_of(write, now));
            rest = after;
        }
        let base = group.base.attributes(*inode).map_or(0, |attributes| attributes.size);
        let ends = if file.cut.is_some() { written } else { written.max(base) };
        if file.size.is_some_and(|size| size != ends) {
            steps.push(truncate(size));
        }
    }
    steps
}

/// How many blocks from the first on go out as one: neighbours in the file, and staged side by side or all in memory.
fn together(blocks: &[(u64, &Content)]) -> usize {
    let joins = |(before, after): (&(u64, &Content), &(u64, &Content))| {
        before.0 + 1 == after.0
            && match (before.1, after.1) {
                (Content::Memory(_), Content::Memory(_)) => true,
                (
                    Content::Staged { segment: a, slot: b, .. },
                    Content::Staged { segment: c, slot: d, .. },
                ) => a == c && b.0 + 1 == d.0,
                _ => false,
            }
    };
    1 + blocks.iter().zip(&blocks[1..]).take(PIECE_BLOCKS - 1).take_while(|pair| joins(*pair)).count()
}

fn step_of(write: Write, blocks: &[(u64, &Content)]) -> Step {
    match blocks[0].1 {
        Content::Staged { segment, slot, .. } => Step::Staged { write, segment: *segment, slot: *slot },
        Content::Memory(_) => {
            let contents = blocks.iter().map(|(_, content)| match content {
                Content::Memory(block) => &**block,
                Content::Staged { .. } => unreachable!("runs are all of one sort"),
            });
            Step::Log(Operation::Write(write), Some(pack(contents, blocks.len())))
        }
    }
}

impl Engine {
    /// Gives the next addresses of the data stream to a run that lies outside the log.
    fn take_addresses(&self, state: &mut State, count: BlockCount) -> Result<crate::units::LogAddress> {
        state.tail.seal();
        let address = state.tail.take_addresses(count);
        let next = state.tail.position();
        state.map_tail(&self.blocks, next.address, next.segment, next.slot, address);
        debug_assert_eq!(state.tail_mapped.stream, Stream::Data);
        Ok(address)
    }
}

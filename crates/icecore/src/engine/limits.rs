//! Refusing what a quota or somebody else's reservation forbids, before it is logged. Replay never comes here.

use super::{Engine, Purpose};
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::limits::{DatasetLimits, Limit};
use crate::namespace::{Read as _, TreeReader};
use crate::operation::{BlockPatch, NamespaceOperation, Operation, Scatter, Write};
use crate::state::State;
use crate::units::{BLOCK_BYTES, BlockCount, ByteLength, DatasetId, FileBlock, InodeNumber};

/// Nodes that a change may add to a tree that it makes larger, beside those of each of its steps.
const NODES_OF_GROWTH: u64 = 16;
/// Nodes that each step of it may add: a leaf of its own, and one that it splits off.
const NODES_OF_STEP: u64 = 2;
/// What is left for a change that only replaces: so it goes on where nothing more can be added.
const NODES_OF_REPLACEMENT: u64 = 4;
/// Of so many blocks of log, one is a header.
const BLOCKS_PER_HEADER: u64 = 16;

/// Something that makes a dataset larger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition {
    pub dataset: DatasetId,
    /// Blocks of a file that are going to be new, if any.
    file: Option<(InodeNumber, FileBlock)>,
    blocks: u64,
}

/// What a change asks of one dataset: by how much that grows which it uses, and which its head refers to.
#[derive(Clone, Copy)]
struct Demand {
    used: u64,
    referenced: u64,
}

/// Sums up steps.
#[derive(Clone, Copy, Default)]
struct Growth {
    blocks: u64,
    steps: u64,
}

impl Growth {
    fn step(&mut self, addition: &Addition, overwritten: u64) {
        let grows = addition.blocks - overwritten;
        self.blocks += grows;
        // Names and attributes are nodes and nothing else.
        self.steps += u64::from(grows > 0 || addition.file.is_none());
    }

    const fn with_nodes(self) -> u64 {
        match self.steps {
            0 => NODES_OF_REPLACEMENT,
            steps => self.blocks + NODES_OF_GROWTH + NODES_OF_STEP * steps,
        }
    }
}

impl Addition {
    /// Names, attributes, and the datasets themselves: nodes alone.
    pub(crate) const fn of_nodes(dataset: DatasetId) -> Self {
        Self { dataset, file: None, blocks: 0 }
    }

    /// What an operation adds: nothing if it is not one that adds.
    pub(crate) fn all_of(operation: &Operation) -> Vec<Self> {
        match operation {
            Operation::Write(Write { dataset, inode, block, blocks, .. })
            | Operation::MapStaged { write: Write { dataset, inode, block, blocks, .. }, .. } => {
                vec![Self { dataset: *dataset, file: Some((*inode, *block)), blocks: (*blocks).into() }]
            }
            Operation::WriteScattered(scatter) | Operation::MapScattered { scatter, .. } => {
                Self::of_scatter(scatter).collect()
            }
            Operation::WriteInline { dataset, inode, offset, bytes, .. } => {
                let first = FileBlock::containing(*offset);
                let end = offset.saturating_add(bytes.len() as u64).div_ceil(BLOCK_BYTES as u64);
                let blocks = end.saturating_sub(first.0);
                vec![Self { dataset: *dataset, file: Some((*inode, first)), blocks }]
            }
            Operation::Patch(patch) => {
                let of_block = |one: &BlockPatch| Self {
                    dataset: patch.dataset,
                    file: Some((patch.inode, one.block)),
                    blocks: 1,
                };
                patch.blocks.iter().map(of_block).collect()
            }
            Operation::Namespace { dataset, operation } => {
                let bytes = match operation {
                    NamespaceOperation::SetXattr { value, .. } => value.len(),
                    NamespaceOperation::CreateSymlink { target, .. } => target.len(),
                    _ => 0,
                };
                vec![Self { dataset: *dataset, file: None, blocks: bytes.div_ceil(BLOCK_BYTES) as u64 }]
            }
            _ => Vec::new(),
        }
    }

    /// What blocks in several places add, place by place.
    pub(crate) fn of_scatter(scatter: &Scatter) -> impl Iterator<Item = Self> {
        let (dataset, inode) = (scatter.dataset, scatter.inode);
        scatter.parts.iter().map(move |part| Self {
            dataset,
            file: Some((inode, part.block)),
            blocks: part.blocks.into(),
        })
    }
}

impl Engine {
    /// Refuses a change that a quota or a reservation does not allow. All additions of the change together.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; [`Error::NoSpace`] where others have reserved what is left.
    pub(crate) fn check_limits(&self, state: &State, additions: &[Addition]) -> Result<()> {
        if state.usage.is_empty() {
            return Ok(());
        }
        let mut datasets: Vec<DatasetId> = additions.iter().map(|one| one.dataset).collect();
        datasets.sort_unstable();
        datasets.dedup();
        for dataset in datasets {
            let own = || additions.iter().filter(|one| one.dataset == dataset);
            let blocks: u64 = own().map(|one| one.blocks).sum();
            let most = blocks + NODES_OF_GROWTH + NODES_OF_STEP * own().count() as u64;
            if exceeded(state, dataset, &Demand { used: most, referenced: most }).is_some() {
                // What is overwritten makes room: worth a look only where it matters.
                let exact = self.exact_demand(state, own())?;
                if let Some(error) = exceeded(state, dataset, &exact) {
                    return Err(error);
                }
            }
            self.check_reserved(state, Some(dataset), BlockCount(most))?;
        }
        Ok(())
    }

    /// What additions to one dataset come to, with what they overwrite.
    fn exact_demand<'a>(
        &self,
        state: &State,
        additions: impl Iterator<Item = &'a Addition>,
    ) -> Result<Demand> {
        let (mut used, mut referenced) = (Growth::default(), Growth::default());
        for addition in additions {
            let (own, mapped) = self.overwritten(state, addition)?;
            used.step(addition, own);
            referenced.step(addition, mapped);
        }
        Ok(Demand { used: used.with_nodes(), referenced: referenced.with_nodes() })
    }

    /// Blocks that an addition overwrites: those that only the head has, and all of them.
    fn overwritten(&self, state: &State, addition: &Addition) -> Result<(u64, u64)> {
        let Some((inode, first)) = addition.file else { return Ok((0, 0)) };
        let head = state.head(addition.dataset)?;
        let edge = state.edge(head);
        let reader = TreeReader::new(&state.trees[&head], &*self.nodes);
        let end = FileBlock(first.0 + addition.blocks);
        let (mut own, mut mapped) = (0, 0);
        reader.extents(inode, first, end, &mut |_, run| {
            own += run.end().0.saturating_sub(run.start.max(edge.of(run.stream)).0).min(run.length.0);
            mapped += run.length.0;
            Ok(true)
        })?;
        Ok((own, mapped))
    }

    /// Refuses to take what is reserved for others.
    fn check_reserved(&self, state: &State, writer: Option<DatasetId>, wanted: BlockCount) -> Result<()> {
        if !state.usage.has_reservations() {
            return Ok(());
        }
        let reserved = state.reserved_from(writer);
        let with_headers = |blocks: u64| blocks + blocks.div_ceil(BLOCKS_PER_HEADER);
        if reserved.0 == 0 || with_headers(wanted.0 + reserved.0) <= self.spare(state)?.0 {
            return Ok(());
        }
        let what = writer.and_then(|id| state.catalogue.dataset(id)).map_or("the pool", |row| &row.name);
        Err(Error::NoSpace {
            detail: format!(
                "{what} may not take what is left: {} are reserved for other datasets (`icecore get reservation,refreservation` shows them)",
                reserved.bytes().as_option()
            ),
        })
    }

    /// Blocks that can still be written by whoever adds something.
    fn spare(&self, state: &State) -> Result<BlockCount> {
        let mut creatable = state.segments.creatable();
        if creatable > 0 {
            let space = self.storage.space();
            let space = space.map_err(|error| Error::io("measure", self.storage.describe(), error))?;
            creatable = creatable.min(space.free / self.geometry.bytes);
        }
        let free = state.segments.free().saturating_sub(self.reserve(state, Purpose::Data)) as u64;
        let slots = u64::from(self.geometry.end(SegmentKind::Log).0) - 2;
        Ok(BlockCount(free.saturating_add(creatable).saturating_mul(slots).saturating_add(state.tail.room())))
    }

    /// Refuses a snapshot after which there would be less than what is reserved.
    pub(crate) fn check_snapshot(
        &self,
        state: &State,
        datasets: impl Iterator<Item = DatasetId>,
    ) -> Result<()> {
        if !state.usage.has_reservations() {
            return Ok(());
        }
        match state.reserved_anew(datasets) {
            BlockCount(0) => Ok(()),
            more => self.check_reserved(state, None, more),
        }
    }

    /// Refuses limits that contradict themselves or reserve what is not there.
    pub(crate) fn check_new_limit(
        &self,
        state: &State,
        dataset: DatasetId,
        limit: Limit,
        value: Option<ByteLength>,
    ) -> Result<()> {
        let row = state.catalogue.dataset(dataset).expect("found");
        let mut limits = DatasetLimits::of_properties(&row.properties);
        let former = limits.get(limit).unwrap_or_default();
        *limits.get_mut(limit) = value;
        limits.check()?;
        let (Limit::Reservation | Limit::RefReservation, Some(value)) = (limit, value) else { return Ok(()) };
        let used = match limit {
            Limit::Reservation => {
                let subtree = state.catalogue.subtree(&row.name);
                subtree.into_iter().map(|inner| state.owned_by(inner)).sum()
            }
            _ => state.history.version(row.head)?.owned().len().0,
        };
        let unused = |bytes: ByteLength| BlockCount::holding(bytes).0.saturating_sub(used);
        self.check_reservable(state, &row.name, BlockCount(unused(value).saturating_sub(unused(former))))
    }

    /// Refuses to reserve so much more if it is not there.
    pub(crate) fn check_reservable(&self, state: &State, dataset: &str, more: BlockCount) -> Result<()> {
        let wanted = more.0.saturating_add(state.reserved_from(None).0);
        let spare = self.spare(state)?;
        if wanted.saturating_add(wanted.div_ceil(BLOCKS_PER_HEADER)) <= spare.0 {
            return Ok(());
        }
        Err(Error::NoSpace {
            detail: format!(
                "{} more cannot be reserved for {dataset}: {} are left, with what is reserved already",
                more.bytes().as_option(),
                spare.bytes().as_option()
            ),
        })
    }

    /// Refuses to move so many blocks below `above`, which may be too small for them. `from`: where they are now.
    pub(crate) fn check_moved(
        &self,
        state: &State,
        from: DatasetId,
        above: Option<DatasetId>,
        blocks: BlockCount,
    ) -> Result<()> {
        let Some(above) = above else { return Ok(()) };
        let now: Vec<DatasetId> = state.usage.above(from).map(|one| one.dataset).collect();
        let new = state.usage.above(above).filter(|one| !now.contains(&one.dataset));
        let mut full = new.filter_map(|one| one.limits.quota.map(|quota| (one, quota)));
        full.find(|(one, quota)| one.used.0 + blocks.0 > quota.0 / BLOCK_BYTES as u64)
            .map_or(Ok(()), |(one, quota)| {
                Err(error(state, one.dataset, Limit::Quota, quota, one.used, blocks))
            })
    }
}

/// The first quota that a demand exceeds.
fn exceeded(state: &State, dataset: DatasetId, demand: &Demand) -> Option<Error> {
    let within =
        |quota: ByteLength, used: BlockCount, more: u64| used.0 + more <= quota.0 / BLOCK_BYTES as u64;
    for one in state.usage.above(dataset) {
        if let Some(quota) = one.limits.quota.filter(|quota| !within(*quota, one.used, demand.used)) {
            let asked = BlockCount(demand.used);
            return Some(error(state, one.dataset, Limit::Quota, quota, one.used, asked));
        }
    }
    let refquota = state.usage.of(dataset)?.limits.refquota?;
    let head = state.head(dataset).ok()?;
    let referenced = state.history.referenced(head).ok()?;
    if within(refquota, referenced, demand.referenced) {
        return None;
    }
    let asked = BlockCount(demand.referenced);
    Some(error(state, dataset, Limit::RefQuota, refquota, referenced, asked))
}

fn error(
    state: &State,
    dataset: DatasetId,
    limit: Limit,
    bytes: ByteLength,
    used: BlockCount,
    asked: BlockCount,
) -> Error {
    let dataset = state.catalogue.dataset(dataset).map_or_else(String::new, |row| row.name.clone());
    let way_out = match limit {
        Limit::RefQuota => "delete files",
        _ => "destroy snapshots or delete files",
    };
    let limit = limit.name();
    Error::QuotaExceeded {
        way_out: format!("{way_out}, or raise it with `icecore set {limit}=SIZE {dataset}`"),
        dataset,
        limit,
        bytes,
        used: used.bytes(),
        asked: asked.bytes(),
    }
}

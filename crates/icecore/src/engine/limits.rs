//! Refusing what a quota or the reservation of another dataset forbids, before it is logged. Replay never
//! comes here.
//!
//! A change is refused if and only if a figure that it makes larger would be beyond its limit. Far from
//! limits, the most that the change can come to is enough to see that. Where that would be too much, the
//! change is tried first: see [`Trial`].

use super::growth::Most;
use super::{Engine, Purpose};
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::limits::{DatasetLimits, Limit};
use crate::state::{Change, Growth, State, Trial, Tried};
use crate::tree::{NodeSource, Tree};
use crate::units::{BLOCK_BYTES, BlockCount, ByteLength, DatasetId, VersionId};

/// Of so many blocks of log, one is a header.
const BLOCKS_PER_HEADER: u64 = 16;
/// Segments that are kept beside what is reserved. A writer of one block at a time takes two blocks of log
/// for each. What is dead of that is gained back in whole segments. Until one can be, there has to be room
/// for as much again, and for the reserve to grow by one.
const SEGMENTS_BESIDE_RESERVED: u64 = 2;

/// What allows a change. The caller keeps it until the change is made, with the state locked: then the change
/// comes to what was found out.
#[must_use]
#[derive(Default)]
pub(crate) struct Allowed {
    _pins: Vec<Tree>,
    /// What heads own and refer to afterwards.
    figures: Vec<(VersionId, u64, u64)>,
}

impl Allowed {
    /// The change was made.
    pub(crate) fn came_true(self, state: &State) {
        for (head, owned, referenced) in &self.figures {
            let is_true = state.history.version(*head).is_ok_and(|node| node.owned().len().0 == *owned)
                && state.history.referenced(*head).is_ok_and(|blocks| blocks.0 == *referenced);
            debug_assert!(is_true, "{head:?} came to something else than what was tried");
        }
    }
}

impl Engine {
    /// Refuses a change that a quota or a reservation does not allow. `most`: what its operations come to at
    /// most. `try_out` makes all of them in a trial, where that has to be known.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; [`Error::NoSpace`] where others have reserved what is left; those that the
    /// change would meet.
    pub(crate) fn judge(
        &self,
        state: &State,
        most: &[Most],
        nodes: &dyn NodeSource,
        try_out: impl FnOnce(&mut Trial<'_>) -> Result<()>,
    ) -> Result<Allowed> {
        if state.usage.is_empty() || most.is_empty() {
            return Ok(Allowed::default());
        }
        let growths = self.at_most(state, most)?;
        // That something is not more than so much says nothing of how much of what is reserved it uses.
        let fits = self.check_growths(state, &growths, &Change::default()).is_ok();
        if fits && !cfg!(debug_assertions) {
            return Ok(Allowed::default());
        }
        let mut trial = Trial::new(state, &self.blocks, nodes);
        let outcome = try_out(&mut trial);
        let tried = trial.finish();
        if fits {
            debug_assert!(outcome.is_err() || is_within(&tried, &growths), "{most:?} comes to more");
            return Ok(Allowed::default());
        }
        outcome?;
        let growths: Vec<_> = tried.growths().collect();
        let grown = growths.iter().map(|(dataset, growth)| (*dataset, growth.used.max(0) as u64));
        let freed = tried.freed(state);
        self.check_growths(state, &growths, &Change { grown: grown.collect(), freed, ..Change::default() })?;
        Ok(Allowed { figures: tried.figures(state), _pins: tried.into_pins() })
    }

    /// Refuses to make so many datasets below one: each begins with one node.
    pub(crate) fn check_new_datasets(&self, state: &State, above: DatasetId, count: usize) -> Result<()> {
        let born = count as u64;
        let growth = Growth { used: born as i64, referenced: 0, born };
        self.check_growths(state, &[(above, growth)], &Change::default())
    }

    /// `change`: what is known of it for certain.
    fn check_growths(&self, state: &State, growths: &[(DatasetId, Growth)], change: &Change) -> Result<()> {
        exceeded(state, growths, change).map_or(Ok(()), Err)?;
        if !state.usage.has_reservations() {
            return Ok(());
        }
        // Datasets that change together take room together.
        let born = growths.iter().fold(0_u64, |sum, (_, growth)| sum.saturating_add(growth.born));
        let mut writers = growths.iter().filter(|(_, growth)| growth.born > 0);
        writers.try_for_each(|(writer, growth)| {
            self.check_reserved(state, *writer, growth, BlockCount(born), change)
        })
    }

    /// Refuses to take what is reserved for others. What is kept beside that is for all owners together.
    fn check_reserved(
        &self,
        state: &State,
        writer: DatasetId,
        growth: &Growth,
        wanted: BlockCount,
        change: &Change,
    ) -> Result<()> {
        let reserved = state.reserved_after(Some(writer), change);
        let is_its_own = growth.used <= state.reserved_for(writer).0 as i64;
        let kept = if is_its_own { with_headers(reserved) } else { self.kept_for(reserved) };
        let needed = with_headers(wanted).0.saturating_add(kept.0);
        if reserved.0 == 0 || needed <= self.spare(state)?.0 {
            return Ok(());
        }
        let writer = state.catalogue.dataset(writer).map_or("a new dataset", |row| &row.name);
        Err(Error::NoSpace {
            detail: format!(
                "{writer} may not take what is left: {} are reserved for other datasets (`icecore get reservation,refreservation` shows them)",
                reserved.bytes().as_option()
            ),
        })
    }

    /// Blocks that no other dataset may take, so that so many can be written.
    fn kept_for(&self, reserved: BlockCount) -> BlockCount {
        match reserved {
            BlockCount(0) => reserved,
            _ => BlockCount(
                with_headers(reserved).0.saturating_add(SEGMENTS_BESIDE_RESERVED * self.log_slots()),
            ),
        }
    }

    /// Segments that all reserved blocks take: for a caller that does not know which dataset will write.
    pub(super) fn segments_kept(&self, state: &State) -> u64 {
        self.kept_for(state.reserved_from(None)).0.div_ceil(self.log_slots())
    }

    /// Segments that must be free or to be made, beside the reserve, so that all that is reserved can be had.
    pub(super) fn segments_promised(&self, state: &State) -> u64 {
        let kept = self.kept_for(state.reserved_from(None));
        kept.0.saturating_sub(state.tail.room()).div_ceil(self.log_slots())
    }

    /// Bytes that `dataset` may still use, of those that the pool has available.
    pub(crate) fn available_to(
        &self,
        state: &State,
        dataset: DatasetId,
        available: ByteLength,
    ) -> ByteLength {
        let others = state.reserved_from(Some(dataset));
        let left = |kept: BlockCount| available.0.saturating_sub(kept.bytes().0);
        let own = left(with_headers(others)).min(state.reserved_for(dataset).bytes().0);
        state.within_quotas(dataset, ByteLength(left(self.kept_for(others)).max(own)))
    }

    /// Blocks of a segment that records can have.
    fn log_slots(&self) -> u64 {
        u64::from(self.geometry.end(SegmentKind::Log).0) - 2
    }

    /// Blocks that operations which add something can still write.
    fn spare(&self, state: &State) -> Result<BlockCount> {
        let mut creatable = state.segments.creatable();
        if creatable > 0 {
            let space = self.storage.space();
            let space = space.map_err(|error| Error::io("measure", self.storage.describe(), error))?;
            creatable = creatable.min(space.free / self.geometry.bytes);
        }
        let free = state.segments.free().saturating_sub(self.reserve(state, Purpose::Data)) as u64;
        let segments = free.saturating_add(creatable);
        Ok(BlockCount(segments.saturating_mul(self.log_slots()).saturating_add(state.tail.room())))
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
            more => self.lacking(state, more)?.map_or(Ok(()), |spare| {
                Err(Error::NoSpace {
                    detail: format!(
                        "a snapshot keeps what may have to be written anew beside it: {} more would be reserved, and {} are left, with what is reserved already (`icecore get refreservation` shows what for)",
                        more.bytes().as_option(),
                        spare.bytes().as_option()
                    ),
                })
            }),
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
        let Some(spare) = self.lacking(state, more)? else { return Ok(()) };
        Err(Error::NoSpace {
            detail: format!(
                "{} more cannot be reserved for {dataset}: {} are left, with what is reserved already",
                more.bytes().as_option(),
                spare.bytes().as_option()
            ),
        })
    }

    /// What is left, if so much more cannot be reserved.
    fn lacking(&self, state: &State, more: BlockCount) -> Result<Option<BlockCount>> {
        let wanted = BlockCount(more.0.saturating_add(state.reserved_from(None).0));
        let spare = self.spare(state)?;
        Ok((more.0 > 0 && self.kept_for(wanted) > spare).then_some(spare))
    }

    /// Refuses to move so many blocks below `above` if that is too small for them. `from`: where they are
    /// now.
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

/// Blocks of log that so many take if they are written together.
const fn with_headers(blocks: BlockCount) -> BlockCount {
    BlockCount(blocks.0.saturating_add(blocks.0.div_ceil(BLOCKS_PER_HEADER)))
}

/// The first quota that datasets exceed when they grow so, and because they do.
fn exceeded(state: &State, growths: &[(DatasetId, Growth)], change: &Change) -> Option<Error> {
    let within = |quota: ByteLength, used: BlockCount, more: i64| {
        more <= 0 || used.0.saturating_add(more as u64) <= quota.0 / BLOCK_BYTES as u64
    };
    let grown = growths.iter().map(|(dataset, growth)| (*dataset, growth.used));
    let freed = change.freed.iter().map(|(dataset, blocks)| (*dataset, -(*blocks as i64)));
    for (one, more) in state.usage.totals(grown.chain(freed)) {
        if let Some(quota) = one.limits.quota.filter(|quota| !within(*quota, one.used, more)) {
            let asked = BlockCount(more.unsigned_abs());
            return Some(error(state, one.dataset, Limit::Quota, quota, one.used, asked));
        }
    }
    growths.iter().find_map(|(dataset, growth)| {
        let refquota = state.usage.of(*dataset)?.limits.refquota?;
        let referenced = state.history.referenced(state.head(*dataset).ok()?).ok()?;
        let asked = BlockCount(growth.referenced.unsigned_abs());
        (!within(refquota, referenced, growth.referenced))
            .then(|| error(state, *dataset, Limit::RefQuota, refquota, referenced, asked))
    })
}

/// Whether a change that was tried comes to what it can come to.
fn is_within(tried: &Tried, most: &[(DatasetId, Growth)]) -> bool {
    tried.growths().all(|(dataset, growth)| {
        most.iter().any(|(one, most)| {
            *one == dataset
                && growth.used <= most.used
                && growth.referenced <= most.referenced
                && growth.born <= most.born
        })
    })
}

/// Whether a dataset is this one or below it.
pub(super) fn is_at_or_below(name: &str, dataset: &str) -> bool {
    name.strip_prefix(dataset).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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
    let limit = limit.name();
    Error::QuotaExceeded {
        way_out: format!("delete files, or raise it with `icecore set {limit}=SIZE {dataset}`"),
        dataset,
        limit,
        bytes,
        used: used.bytes(),
        asked: asked.bytes(),
    }
}

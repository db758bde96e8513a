//! The algebra against brute force: a model keeps, for every version, the explicit set of blocks that it
//! references, and every figure is counted from those.

mod model;

use self::model::{Model, ModelVersion};
use super::rule_tests::{delete_into, reached};
use super::{
    DecodeLimits, FreedSink, History, HistoryChanges, HistoryFault, Pace, Part, PartRow, PartSource,
    PartStore, SetChunk, SetLimits, StoredHistory,
};
use crate::format::superblock::LedgerPointer;
use crate::units::{
    BLOCK_BYTES, BlockCount, LogAddress, Marks, PoolId, Run, SegmentId, Slot, Stream, VersionId,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Block = (u8, u64);

/// Cases of a property test: few by default, more with `ICECORE_TEST_CASES`.
pub(super) fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("ICECORE_TEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(cases.unwrap_or(default))
}

/// Chunks of sets in memory, none of which is at hand before it is read.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<Vec<Arc<SetChunk>>>>);

impl PartSource for Shelf {
    fn resident(&self, _: &PartRow) -> Option<Part> {
        None
    }

    fn read(&self, row: &PartRow) -> crate::Result<Part> {
        Part::of(&self.0.lock()[row.place.slot.0 as usize], row)
    }
}

impl PartStore for Shelf {
    fn load(&mut self, row: &PartRow) -> crate::Result<Part> {
        self.read(row)
    }

    fn write(&mut self, parts: &[Vec<u8>]) -> crate::Result<LedgerPointer> {
        let bytes = SetChunk::encode(PoolId([7; 16]), parts);
        let mut chunks = self.0.lock();
        chunks.push(Arc::new(SetChunk::decode(&bytes, PoolId([7; 16]))?));
        let slot = Slot(chunks.len() as u32 - 1);
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        Ok(LedgerPointer { segment: SegmentId(slot.0 / 8), slot, blocks, crc: slot.0 })
    }

    fn is_thin(&self, segment: SegmentId) -> bool {
        segment.0 % 5 == 1
    }
}

/// One random step; numbers choose among what is possible.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    which: u32,
    amount: u32,
    stream: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..40, any::<u32>(), any::<u32>(), 0u8..3);
    prop::collection::vec(
        step.prop_map(|(kind, which, amount, stream)| Step { kind, which, amount, stream }),
        1..70,
    )
}

struct Trial {
    history: History,
    model: Model,
    positions: [u64; 3],
    ever_freed: BTreeSet<Block>,
    /// Every checkpoint since the beginning.
    deltas: Vec<Vec<u8>>,
    /// A full image, and how many of the deltas it contains.
    base: Option<(Vec<u8>, usize)>,
    /// Versions that are destroyed and still there.
    doomed: BTreeSet<VersionId>,
    /// What was stored so far, and where parts of it lie; nowhere: all of it is in memory.
    stored: StoredHistory,
    shelf: Option<Shelf>,
}

fn pick<T: Copy>(from: &[T], which: u32) -> Option<T> {
    if from.is_empty() { None } else { Some(from[which as usize % from.len()]) }
}

impl Trial {
    fn new(on_disk: bool) -> Self {
        let mut history = History::new();
        let shelf = on_disk.then(Shelf::default);
        if let Some(shelf) = &shelf {
            history.keep_in(Arc::new(shelf.clone()), SetLimits::of(0));
        }
        Self {
            history,
            stored: StoredHistory::new(),
            shelf,
            model: Model::default(),
            positions: [0; 3],
            ever_freed: BTreeSet::new(),
            deltas: Vec::new(),
            base: None,
            doomed: BTreeSet::new(),
        }
    }

    fn heads(&self) -> Vec<VersionId> {
        self.model.0.iter().filter(|(_, version)| version.mark.is_none()).map(|(&id, _)| id).collect()
    }

    fn snapshots(&self) -> Vec<VersionId> {
        self.model.0.iter().filter(|(_, version)| version.mark.is_some()).map(|(&id, _)| id).collect()
    }

    fn take(&mut self, step: &Step) {
        match step.kind {
            0..=7 => self.bear(step),
            8..=17 => self.drop_some(step),
            18..=20 => self.seal(step),
            21 if step.amount.is_multiple_of(4) => self.start_head(None),
            21..=23 => self.start_head(pick(&self.snapshots(), step.which)),
            24 => self.roll_back(step),
            25..=28 => self.delete(pick(&self.model.0.keys().copied().collect::<Vec<_>>(), step.which)),
            29 => self.delete(pick(&self.heads(), step.which)),
            32..=33 => self.doom(step),
            34..=36 => self.delete_doomed(),
            37..=39 => self.delete_piece(step),
            _ => self.checkpoint(),
        }
    }

    fn bear(&mut self, step: &Step) {
        let Some(head) = pick(&self.heads(), step.which) else { return self.start_head(None) };
        let stream = Stream::from_number(step.stream).unwrap();
        // Gaps that end just before the borders of chunks and of 32 bits, so that runs lie across them.
        let position = &mut self.positions[step.stream as usize];
        match step.amount % 40 {
            0 => *position = position.next_multiple_of(1 << 16) + (1 << 16) - 3,
            1 => *position = position.next_multiple_of(1 << 32) + (1 << 32) - 3,
            gap => *position += u64::from(gap % 3),
        }
        let length = u64::from(step.amount / 64 % 12) + 1;
        let run = Run { stream, start: LogAddress(*position), length: BlockCount(length) };
        self.history.born(head, run).unwrap();
        let blocks = (*position..*position + length).map(|address| (step.stream, address));
        self.model.0.get_mut(&head).unwrap().blocks.extend(blocks);
        *position += length;
    }

    fn drop_some(&mut self, step: &Step) {
        let Some(head) = pick(&self.heads(), step.which) else { return };
        let blocks: Vec<Block> = self.model.0[&head].blocks.iter().copied().collect();
        let Some((number, start)) = pick(&blocks, step.amount) else { return };
        let length_max = u64::from(step.amount >> 24) % 16 + 1;
        let have = &self.model.0[&head].blocks;
        let length =
            (1..length_max).find(|&more| !have.contains(&(number, start + more))).unwrap_or(length_max);
        let stream = Stream::from_number(number).unwrap();
        let run = Run { stream, start: LogAddress(start), length: BlockCount(length) };

        let before = self.model.all_blocks();
        let blocks = &mut self.model.0.get_mut(&head).unwrap().blocks;
        for address in start..start + length {
            blocks.remove(&(number, address));
        }
        let mut freed = FreedSink::new();
        self.history.dropped(head, run, &mut freed).unwrap();
        self.compare_freed(&before, &freed);
    }

    fn marks(&self) -> Marks {
        Marks(self.positions.map(LogAddress))
    }

    fn seal(&mut self, step: &Step) {
        let Some(head) = pick(&self.heads(), step.which) else { return };
        self.seal_head(head);
    }

    fn seal_head(&mut self, head: VersionId) -> VersionId {
        let snapshot = self.history.seal(head, self.marks()).unwrap();
        let mut version = self.model.0[&head].clone();
        version.mark = Some(self.positions);
        self.model.0.insert(snapshot, version);
        self.model.0.get_mut(&head).unwrap().parent = Some(snapshot);
        snapshot
    }

    fn start_head(&mut self, parent: Option<VersionId>) {
        let head = self.history.new_head(parent).unwrap();
        let blocks = parent.map(|parent| self.model.0[&parent].blocks.clone()).unwrap_or_default();
        self.model.0.insert(head, ModelVersion { parent, mark: None, blocks });
    }

    /// The former head becomes a snapshot of its own; a new head starts below an older snapshot.
    fn roll_back(&mut self, step: &Step) {
        let Some(head) = pick(&self.heads(), step.which) else { return };
        let above: Vec<VersionId> =
            self.snapshots().into_iter().filter(|&snapshot| self.model.is_ancestor(snapshot, head)).collect();
        let Some(target) = pick(&above, step.amount) else { return };
        self.seal_head(head);
        self.delete(Some(head));
        self.start_head(Some(target));
    }

    fn delete(&mut self, version: Option<VersionId>) {
        let Some(version) = version else { return };
        let before = self.model.all_blocks();
        let mut children = self.model.children(version);
        let mut freed = FreedSink::new();
        let used = self.history.used(version).unwrap();
        let connected = self.model.with_doomed(&[version], &self.doomed).len() > 1;
        let outcome = delete_into(&mut self.history, version, &mut freed);
        if self.model.delete(version) {
            self.doomed.remove(&version);
            assert_eq!(outcome, Ok(()));
            assert!(freed.len() == used || connected);
        } else {
            let Err(HistoryFault::HasBranches { version: named, children: mut found }) = outcome else {
                panic!("deleted a version with several children: {outcome:?}")
            };
            found.sort_unstable();
            children.sort_unstable();
            assert_eq!((named, found), (version, children));
        }
        self.compare_freed(&before, &freed);
    }

    /// Frees some of what goes with a version: it reaches no more than what is left.
    fn delete_piece(&mut self, step: &Step) {
        let thinnable =
            self.waiting().filter(|version| self.history.is_thinnable(*version)).collect::<Vec<_>>();
        if step.amount.is_multiple_of(2)
            && let Some(version) = pick(&thinnable, step.which)
        {
            return self.thin(version, step.amount as usize / 2 % 3 + 1, true);
        }
        let Some(version) = pick(&self.deletable(), step.which) else { return };
        let before = self.model.all_blocks();
        let mut freed = FreedSink::new();
        let runs = step.amount as usize % 3 + 1;
        let gone = self.in_parts(&mut freed, runs, true, |history, freed, pace| {
            history.delete_some(version, freed, pace)
        });
        if gone {
            self.model.delete(version);
            self.doomed.remove(&version);
        }
        assert!(freed.runs().count() <= runs.max(SetLimits::of(0).part_runs));
        if let Some(left) = self.model.0.get_mut(&version) {
            blocks_of(freed.runs()).iter().for_each(|block| assert!(left.blocks.remove(block)));
        }
        self.compare_freed(&before, &freed);
    }

    /// Frees what a doomed version with several branches owns and no reader reads, or some of it. No reader
    /// reaches what is free.
    fn thin(&mut self, version: VersionId, runs: usize, some: bool) {
        let before = self.model.all_blocks();
        let mut freed = FreedSink::new();
        let thin = self
            .in_parts(&mut freed, runs, some, |history, freed, pace| history.thin_some(version, freed, pace));
        let low = self.model.low_mark(version);
        for block in blocks_of(freed.runs()) {
            assert!(block.1 >= low[block.0 as usize] && self.model.0[&version].blocks.contains(&block));
            for (id, other) in &mut self.model.0 {
                assert!(
                    !other.blocks.remove(&block) || self.doomed.contains(id),
                    "{block:?} is read in {id}"
                );
            }
        }
        if thin {
            assert!(!self.history.is_thinnable(version));
            // What only doomed leaves reach goes with them.
            assert!(!self.deletable().is_empty() || self.model.is_thin(version, &self.doomed));
        }
        self.compare_freed(&before, &freed);
    }

    /// Does something with the parts that it asks for.
    fn in_parts(
        &mut self,
        freed: &mut FreedSink,
        runs: usize,
        some: bool,
        mut body: impl FnMut(&mut History, &mut FreedSink, &mut Pace<'_>) -> Result<bool, HistoryFault>,
    ) -> bool {
        let mut enough = || some;
        let mut held = Vec::new();
        loop {
            let mut pace = Pace { runs, held: Some(&held), enough: &mut enough };
            match body(&mut self.history, freed, &mut pace) {
                Err(HistoryFault::Absent(row)) => {
                    let part = self.shelf.as_ref().unwrap().read(&row).unwrap();
                    held.push((*row, part));
                }
                done => return done.unwrap(),
            }
        }
    }

    /// Destroys some snapshots at once, without deleting any.
    fn doom(&mut self, step: &Step) {
        for (index, snapshot) in self.snapshots().into_iter().enumerate() {
            if step.which >> (index % 32) & 1 == 1 {
                self.history.doom(snapshot).unwrap();
                self.doomed.insert(snapshot);
            }
        }
    }

    /// Doomed versions that can be deleted now.
    fn deletable(&self) -> Vec<VersionId> {
        self.doomed.iter().copied().filter(|&version| self.model.children(version).len() <= 1).collect()
    }

    /// Doomed versions that cannot be deleted now.
    fn waiting(&self) -> impl Iterator<Item = VersionId> {
        self.doomed.iter().copied().filter(|&version| self.model.children(version).len() > 1)
    }

    /// Deletes or thins the next doomed version, if there is one.
    fn delete_doomed(&mut self) {
        let next = self.history.next_doomed();
        if let Some(version) = next.filter(|version| self.history.is_thinnable(*version)) {
            assert!(self.deletable().is_empty());
            return self.thin(version, 2, false);
        }
        assert_eq!(next, self.deletable().last().copied());
        self.delete(next);
    }

    /// Freed is exactly what nothing references any more, and nothing is freed twice.
    fn compare_freed(&mut self, before: &BTreeSet<Block>, freed: &FreedSink) {
        let after = self.model.all_blocks();
        let expected: BTreeSet<Block> = before.difference(&after).copied().collect();
        let found = blocks_of(freed.runs());
        assert_eq!(found, expected);
        for block in found {
            assert!(self.ever_freed.insert(block), "freed twice: {block:?}");
        }
    }

    fn compare_freed_by_deleting(&self, step: &Step) {
        let versions: Vec<VersionId> = self.model.0.keys().copied().collect();
        let mut doomed: Vec<VersionId> = (0..versions.len())
            .filter(|index| step.which >> (index % 32) & 1 == 1 || step.amount.is_multiple_of(7))
            .map(|index| versions[index])
            .collect();
        if step.amount & 1 == 1 {
            doomed.reverse();
        }
        let chosen: BTreeSet<VersionId> = doomed.iter().copied().collect();
        assert_eq!(self.history.freed_by_deleting_set(&doomed).unwrap().0, self.model.only_in(&chosen));
        let going: BTreeSet<VersionId> = self.history.going(&doomed).into_iter().collect();
        assert_eq!(going, self.model.with_doomed(&doomed, &self.doomed));
        let freed = self.history.freed_by_deleting_set(&self.history.going(&doomed)).unwrap().0;
        assert_eq!(freed, self.model.only_in(&going));
        if self.history.next_doomed().is_none() {
            let gone: BTreeSet<VersionId> = chosen.union(&self.doomed).copied().collect();
            assert_eq!(
                freed,
                self.model.only_in(&gone),
                "those that have nothing to do with it do not matter"
            );
        }
        self.compare_freed_by_range(step, &versions);
    }

    fn compare_freed_by_range(&self, step: &Step, versions: &[VersionId]) {
        let (Some(first), Some(last)) = (pick(versions, step.which), pick(versions, step.amount)) else {
            return;
        };
        let within =
            |&&id: &&VersionId| self.model.is_ancestor(first, id) && self.model.is_ancestor(id, last);
        let range: Vec<VersionId> = versions.iter().filter(within).copied().collect();
        let freed = self.history.freed_by_deleting_set(&range).unwrap().0;
        assert_eq!(freed, self.model.only_in(&range.into_iter().collect()));
    }

    fn checkpoint(&mut self) {
        if self.deltas.len() % 3 == 2 && self.shelf.is_none() {
            self.base = Some((self.history.full_changes().encode(), self.deltas.len() + 1));
        }
        let changes = self.history.take_changes();
        let bytes = changes.encode();
        assert_eq!(HistoryChanges::decode(&bytes, &mut DecodeLimits::new(self.marks())).unwrap(), changes);
        self.deltas.push(bytes);
        self.stored.apply_changes(changes).unwrap();
    }

    /// A picture of everything, after which some time may have passed.
    fn consolidate(&mut self, meanwhile: &[Step]) {
        self.checkpoint();
        let Some(mut shelf) = self.shelf.clone() else { return };
        let mut stored = self.stored.clone();
        let changed = stored.consolidate(&SetLimits::of(0), &mut shelf, &mut Vec::new()).unwrap();
        let full = stored.clone().into_full_changes();
        let parts: Vec<Vec<u8>> = full.split(40).iter().map(HistoryChanges::encode).collect();
        let mut again = StoredHistory::new();
        for bytes in &parts {
            let changes = HistoryChanges::decode(bytes, &mut DecodeLimits::new(self.marks())).unwrap();
            again.apply_changes(changes).unwrap();
        }
        assert!(again.bases() == stored.bases(), "in parts it is the same");
        let bytes = stored.clone().into_full_changes().encode();
        for step in meanwhile {
            self.take(step);
        }
        self.history.go_on_with(&stored.bases(), &changed);
        // What came meanwhile goes on from it, as a list of changes.
        self.base = Some((bytes, self.deltas.len()));
        self.stored = stored;
    }

    /// The full image, all deltas from nothing, and a base with the deltas since give the same history.
    fn compare_stored(&mut self) {
        self.checkpoint();
        let full = self.history.full_changes().encode();
        let mut chains = vec![vec![&full], self.deltas.iter().collect()];
        if let Some((base, contained)) = &self.base {
            chains.push(std::iter::once(base).chain(&self.deltas[*contained..]).collect());
        }
        for chain in chains {
            let mut stored = StoredHistory::new();
            for bytes in chain {
                let changes = HistoryChanges::decode(bytes, &mut DecodeLimits::new(self.marks())).unwrap();
                stored.apply_changes(changes).unwrap();
            }
            let mut loaded = stored.verify().unwrap();
            if let Some(shelf) = &self.shelf {
                loaded.keep_in(Arc::new(shelf.clone()), SetLimits::of(0));
            }
            assert_same(&loaded, &self.history);
        }
    }

    fn compare_all(&self) {
        let (history, model) = (&self.history, &self.model);
        history.check().unwrap();
        let thinnable = self.waiting().filter(|version| history.is_thinnable(*version)).count();
        assert_eq!(history.doomed_count(), self.deletable().len() + thinnable);
        assert_eq!(history.freeing().unwrap().0, model.only_in(&self.doomed), "what is being freed");
        assert_eq!(history.versions().len(), model.0.len());
        let mut owners: BTreeMap<Block, u32> = BTreeMap::new();
        let mut references: BTreeMap<Block, u32> = BTreeMap::new();
        for (id, version) in &model.0 {
            let node = history.version(*id).unwrap();
            assert_eq!((node.parent(), node.is_head()), (version.parent, version.mark.is_none()));
            for stream in Stream::ALL {
                for span in history.owned_of(*id, stream).unwrap().runs() {
                    for address in span.start.0..span.end.0 {
                        *owners.entry((stream as u8, address)).or_default() += 1;
                    }
                }
            }
            for &block in &version.blocks {
                *references.entry(block).or_default() += 1;
            }
        }
        assert!(owners.values().all(|&count| count == 1), "owned by two");
        assert!(owners.keys().eq(references.keys()), "owned sets are not what is referenced");
        assert!(self.ever_freed.iter().all(|block| !references.contains_key(block)), "freed and referenced");

        for (&id, version) in &model.0 {
            let used = model.only_in(&model.with_doomed(&[id], &self.doomed));
            assert_eq!(history.used(id).unwrap().0, used, "USED of {id}");
            if history.next_doomed().is_none() && !self.doomed.contains(&id) {
                let gone: BTreeSet<VersionId> = self.doomed.iter().copied().chain([id]).collect();
                assert_eq!(used, model.only_in(&gone), "USED of {id}, as if nothing doomed were there");
            }
            assert_eq!(history.referenced(id).unwrap().0, version.blocks.len() as u64, "REFER of {id}");
            let low = model.low_mark(id);
            let written =
                version.blocks.iter().filter(|block| block.1 >= low[block.0 as usize]).count() as u64;
            assert_eq!(history.written(id).unwrap().0, written, "WRITTEN of {id}");
            let runs = Stream::ALL.into_iter().flat_map(|stream| {
                let blocks = reached(history, id, stream);
                blocks.runs().map(|span| Run::of(stream, &span)).collect::<Vec<_>>()
            });
            assert_eq!(blocks_of(runs), version.blocks, "what {id} reaches");
        }
        let alive = blocks_of(
            Stream::ALL.into_iter().flat_map(|stream| history.live_runs(stream)).map(Result::unwrap),
        );
        assert!(alive.iter().eq(references.keys()));
        assert_eq!(history.live_in_all().0, references.len() as u64);
    }
}

fn blocks_of(runs: impl Iterator<Item = Run>) -> BTreeSet<Block> {
    runs.flat_map(|run| (run.start.0..run.end().0).map(move |address| (run.stream as u8, address))).collect()
}

/// Everything but journals, caches and the order of children.
pub(super) fn assert_same(one: &History, other: &History) {
    assert_eq!((one.next, one.live), (other.next, other.live));
    assert!(one.versions.keys().eq(other.versions.keys()));
    for (left, right) in one.versions().zip(other.versions()) {
        assert_eq!((left.id, left.parent, left.mark), (right.id, right.parent, right.mark));
        assert_eq!(left.referenced, right.referenced);
        for stream in Stream::ALL {
            let sets = |history: &History| {
                let owned = history.owned_of(left.id, stream).unwrap().into_owned();
                (owned, history.dead_of(left.id, stream).unwrap().into_owned())
            };
            assert_eq!(sets(one), sets(other));
        }
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn every_history_agrees_with_brute_force(steps in steps()) {
        live_through(&steps, Trial::new(false));
    }

    /// The same with nearly all of the sets on disk, and nothing of that in memory.
    #[test]
    fn every_history_on_disk_agrees_with_brute_force(steps in steps()) {
        live_through(&steps, Trial::new(true));
    }
}

fn live_through(steps: &[Step], mut trial: Trial) {
    let mut rest = steps;
    while let Some((step, after)) = rest.split_first() {
        rest = after;
        if trial.shelf.is_some() && step.kind % 6 == 5 {
            let (meanwhile, after) = rest.split_at(rest.len().min(step.amount as usize % 4));
            rest = after;
            // No picture is taken while one is on its way.
            let meanwhile: Vec<Step> =
                meanwhile.iter().filter(|step| !matches!(step.kind, 30 | 31)).cloned().collect();
            trial.consolidate(&meanwhile);
        }
        trial.take(step);
        trial.compare_all();
        trial.compare_freed_by_deleting(step);
    }
    trial.compare_stored();
    while trial.history.next_doomed().is_some() {
        trial.delete_doomed();
        trial.compare_all();
    }
    assert_eq!(trial.model.only_in(&trial.doomed), 0, "all that is left is read by somebody");
}

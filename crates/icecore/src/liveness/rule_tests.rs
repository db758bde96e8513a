//! Each rule of the algebra, and each trap in it, by name.

use super::{BlockSet, FreedSink, History, HistoryFault, Pace};
use crate::units::{BlockCount, LogAddress, Marks, Run, Stream, VersionId};

pub(super) fn data(start: u64, length: u64) -> Run {
    Run { stream: Stream::Data, start: LogAddress(start), length: BlockCount(length) }
}

fn node(start: u64, length: u64) -> Run {
    Run { stream: Stream::Node, ..data(start, length) }
}

pub(super) fn marks(position: u64) -> Marks {
    Marks([LogAddress(position); 3])
}

/// Drops a run and answers what that freed.
fn drop_run(history: &mut History, head: VersionId, run: Run) -> Vec<Run> {
    let mut freed = FreedSink::new();
    history.dropped(head, run, &mut freed).unwrap();
    freed.runs().collect()
}

/// What a version reaches, by the sets: what the one above it reaches and is not dead in it, and what it
/// owns.
pub(crate) fn reached(history: &History, version: VersionId, stream: Stream) -> BlockSet {
    let above = history.version(version).unwrap().parent();
    let mut blocks = above.map(|above| reached(history, above, stream)).unwrap_or_default();
    blocks.subtract(&history.dead_of(version, stream).unwrap());
    blocks.unite(history.owned_of(version, stream).unwrap().into_owned());
    blocks
}

/// Deletes a version in one go.
pub(super) fn delete_into(
    history: &mut History,
    version: VersionId,
    freed: &mut FreedSink,
) -> Result<(), HistoryFault> {
    let mut never = || false;
    let mut pace = Pace { runs: usize::MAX, held: None, enough: &mut never };
    assert!(history.delete_some(version, freed, &mut pace)?, "the pace did not end it");
    Ok(())
}

fn delete(history: &mut History, version: VersionId) -> Vec<Run> {
    let mut freed = FreedSink::new();
    delete_into(history, version, &mut freed).unwrap();
    history.check().unwrap();
    freed.runs().collect()
}

/// A head with blocks 0..100 below a snapshot with mark 100.
fn snapshot_and_head() -> (History, VersionId, VersionId) {
    let mut history = History::new();
    let head = history.new_head(None).unwrap();
    history.born(head, data(0, 100)).unwrap();
    let snapshot = history.seal(head, marks(100)).unwrap();
    (history, snapshot, head)
}

#[test]
fn an_overwrite_below_the_parents_mark_frees_nothing_and_above_it_at_once() {
    let (mut history, snapshot, head) = snapshot_and_head();
    history.born(head, data(100, 10)).unwrap();
    assert_eq!(drop_run(&mut history, head, data(20, 5)), []);
    assert_eq!(drop_run(&mut history, head, data(105, 5)), [data(105, 5)]);
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(5));
    assert_eq!(history.referenced(head).unwrap(), BlockCount(100));
    assert_eq!(history.written(head).unwrap(), BlockCount(5));
}

#[test]
fn a_run_across_the_mark_is_split_at_it() {
    let (mut history, snapshot, head) = snapshot_and_head();
    history.born(head, data(100, 10)).unwrap();
    assert_eq!(drop_run(&mut history, head, data(95, 10)), [data(100, 5)]);
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(5));
    history.check().unwrap();
}

#[test]
fn marks_and_comparisons_are_per_stream() {
    let mut history = History::new();
    let head = history.new_head(None).unwrap();
    history.born(head, data(0, 100)).unwrap();
    history.born(head, node(0, 10)).unwrap();
    let mark = Marks([LogAddress(100), LogAddress(0), LogAddress(10)]);
    let snapshot = history.seal(head, mark).unwrap();
    history.born(head, node(10, 10)).unwrap();
    // Address 15 lies below the mark of the data stream, and above that of the node stream.
    assert_eq!(drop_run(&mut history, head, node(15, 1)), [node(15, 1)]);
    assert_eq!(drop_run(&mut history, head, data(15, 1)), []);
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(1));
}

#[test]
fn deleting_a_snapshot_frees_only_what_was_born_since_its_own_parent() {
    let (mut history, first, head) = snapshot_and_head();
    history.born(head, data(100, 100)).unwrap();
    let second = history.seal(head, marks(200)).unwrap();
    assert_eq!(drop_run(&mut history, head, data(50, 100)), []);
    assert_eq!(history.used(second).unwrap(), BlockCount(50));
    assert_eq!(delete(&mut history, second), [data(100, 50)]);
    // The rest of what died after the second is now held by the first alone.
    assert_eq!(history.used(first).unwrap(), BlockCount(50));
    assert_eq!(delete(&mut history, first), [data(50, 50)]);
    assert_eq!(history.referenced(head).unwrap(), BlockCount(100));
    assert_eq!(history.live[Stream::Data as usize], 100);
}

#[test]
fn when_the_child_is_a_head_its_mark_becomes_that_of_the_snapshot_above() {
    let (mut history, _, head) = snapshot_and_head();
    history.born(head, data(100, 100)).unwrap();
    let second = history.seal(head, marks(200)).unwrap();
    assert_eq!(delete(&mut history, second), []);
    // Seen by no snapshot any more: freed at once. Below the first one's mark: still held.
    assert_eq!(drop_run(&mut history, head, data(90, 20)), [data(100, 10)]);
    history.check().unwrap();
}

#[test]
fn the_predecessor_comes_from_the_tree_and_not_from_the_list_of_names() {
    // s1 - s2 - old head, then a rollback to s1 and s3 on the new branch. In the dataset's list s3 comes
    // after s2; in the tree it hangs below s1. Taking s2 for the predecessor of s3 frees live blocks of s2.
    let (mut history, first, head) = snapshot_and_head();
    history.born(head, data(100, 100)).unwrap();
    let second = history.seal(head, marks(200)).unwrap();
    let branch = history.new_head(Some(first)).unwrap();
    history.born(branch, data(200, 50)).unwrap();
    let third = history.seal(branch, marks(250)).unwrap();

    assert_eq!(drop_run(&mut history, branch, data(0, 10)), []);
    assert_eq!(drop_run(&mut history, branch, data(200, 10)), []);
    assert_eq!(delete(&mut history, third), [data(200, 10)]);
    assert_eq!(history.used(first).unwrap(), BlockCount(0));
    assert!(reached(&history, second, Stream::Data).contains(LogAddress(5)));
    assert_eq!(history.referenced(second).unwrap(), BlockCount(200));
    assert_eq!(history.version(branch).unwrap().parent(), Some(first));
}

#[test]
fn a_rollback_frees_nothing_and_can_be_undone() {
    let (mut history, first, head) = snapshot_and_head();
    history.born(head, data(100, 100)).unwrap();
    drop_run(&mut history, head, data(0, 50));
    let kept = history.seal(head, marks(200)).unwrap();
    assert_eq!(delete(&mut history, head), []);
    let rolled_back = history.new_head(Some(first)).unwrap();
    assert_eq!(history.referenced(rolled_back).unwrap(), BlockCount(100));
    let undone = history.new_head(Some(kept)).unwrap();
    assert_eq!(history.referenced(undone).unwrap(), BlockCount(150));
    assert_eq!(delete(&mut history, rolled_back), []);
}

#[test]
fn dropping_the_left_branch_frees_what_it_owns_leaves_first() {
    let (mut history, first, head) = snapshot_and_head();
    history.born(head, data(100, 100)).unwrap();
    let kept = history.seal(head, marks(200)).unwrap();
    history.born(head, data(200, 7)).unwrap();
    let branch = history.new_head(Some(first)).unwrap();
    assert_eq!(history.freed_by_deleting_set(&[kept, head]).unwrap(), BlockCount(107));
    assert_eq!(delete(&mut history, head), [data(200, 7)]);
    assert_eq!(delete(&mut history, kept), [data(100, 100)]);
    assert_eq!(history.referenced(branch).unwrap(), BlockCount(100));
}

#[test]
fn a_snapshot_with_several_branches_stays_until_one_is_left_and_they_are_named() {
    let (mut history, snapshot, head) = snapshot_and_head();
    let clone = history.new_head(Some(snapshot)).unwrap();
    let mut freed = FreedSink::new();
    let fault = HistoryFault::HasBranches { version: snapshot, children: vec![head, clone] };
    assert_eq!(delete_into(&mut history, snapshot, &mut freed), Err(fault));
    drop_run(&mut history, clone, data(0, 10));
    drop_run(&mut history, head, data(5, 10));
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(5), "dead in every child");
    assert_eq!(history.freed_by_deleting_set(&[snapshot]).unwrap(), BlockCount(5));
    assert_eq!(history.freed_by_deleting_set(&[snapshot, clone]).unwrap(), BlockCount(10));
    assert_eq!(delete(&mut history, clone), []);
    assert_eq!(delete(&mut history, snapshot), [data(5, 10)]);
}

/// Does all that there is to do about doomed versions, piece by piece, and answers what that freed.
fn settle(history: &mut History) -> Vec<Run> {
    let mut freed = FreedSink::new();
    while let Some(version) = history.next_doomed() {
        let mut enough = || true;
        let mut pace = Pace { runs: 1, held: None, enough: &mut enough };
        if history.is_thinnable(version) {
            history.thin_some(version, &mut freed, &mut pace).unwrap();
        } else {
            history.delete_some(version, &mut freed, &mut pace).unwrap();
        }
        history.check().unwrap();
    }
    assert_eq!(history.freeing().unwrap(), BlockCount(0));
    freed.runs().collect()
}

#[test]
fn a_doomed_version_with_several_branches_owns_nothing_that_none_of_them_reaches() {
    let (mut history, snapshot, head) = snapshot_and_head();
    let clone = history.new_head(Some(snapshot)).unwrap();
    drop_run(&mut history, clone, data(0, 20));
    drop_run(&mut history, head, data(10, 20));
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(10));
    history.doom(snapshot).unwrap();
    assert_eq!(history.freeing().unwrap(), BlockCount(10));
    assert_eq!(settle(&mut history), [data(10, 10)]);
    assert!(history.is_doomed(snapshot) && history.version(snapshot).is_ok(), "it stays");
    assert_eq!(history.doomed_count(), 0, "and there is nothing to be done about it");
    // What dies in one branch now, and is dead in the other, goes with the next look.
    assert_eq!(drop_run(&mut history, clone, data(25, 10)), []);
    assert_eq!((history.doomed_count(), history.freeing().unwrap()), (1, BlockCount(5)));
    assert_eq!(settle(&mut history), [data(25, 5)]);
    assert_eq!(history.referenced(clone).unwrap(), BlockCount(70));
    assert_eq!(history.referenced(head).unwrap(), BlockCount(80));
    // A branch that goes gives back what only it reaches beside the one that is doomed.
    assert_eq!(history.used(head).unwrap(), BlockCount(10 + 5));
    assert_eq!(delete(&mut history, head), []);
    assert_eq!(settle(&mut history), [data(0, 10), data(30, 5)]);
    assert!(history.version(snapshot).is_err());
    assert_eq!(history.live[Stream::Data as usize], 70);
}

#[test]
fn what_doomed_forks_above_each_other_own_is_freed_when_no_branch_of_any_reaches_it() {
    let (mut history, first, head) = snapshot_and_head();
    let left = history.new_head(Some(first)).unwrap();
    history.born(head, data(100, 100)).unwrap();
    let second = history.seal(head, marks(200)).unwrap();
    let right = history.new_head(Some(second)).unwrap();
    history.doom(first).unwrap();
    history.doom(second).unwrap();
    assert_eq!(settle(&mut history), []);
    drop_run(&mut history, left, data(0, 50));
    drop_run(&mut history, head, data(20, 100));
    assert_eq!(settle(&mut history), []);
    assert_eq!(history.used(right).unwrap(), BlockCount(30 + 20), "of the first, and of the second");
    drop_run(&mut history, right, data(40, 70));
    assert_eq!(settle(&mut history), [data(40, 10), data(100, 10)]);
    assert_eq!(history.used(right).unwrap(), BlockCount(20 + 10));
    history.doom(right).unwrap();
    assert_eq!(history.freeing().unwrap(), BlockCount(30));
    assert_eq!(settle(&mut history), [data(20, 20), data(110, 10)]);
    assert!(history.is_doomed(first) && history.version(second).is_err());
}

#[test]
fn a_snapshot_above_a_doomed_fork_counts_what_no_branch_of_that_reaches() {
    let (mut history, first, head) = snapshot_and_head();
    history.born(head, data(100, 10)).unwrap();
    let second = history.seal(head, marks(110)).unwrap();
    let other = history.new_head(Some(second)).unwrap();
    history.doom(second).unwrap();
    drop_run(&mut history, head, data(0, 30));
    assert_eq!(history.used(first).unwrap(), BlockCount(0));
    drop_run(&mut history, other, data(20, 30));
    assert_eq!(settle(&mut history), []);
    assert_eq!(history.used(first).unwrap(), BlockCount(10));
    history.doom(first).unwrap();
    assert_eq!(settle(&mut history), [data(20, 10)]);
}

#[test]
fn used_of_one_child_of_several_and_of_none() {
    let (mut history, snapshot, head) = snapshot_and_head();
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(0));
    drop_run(&mut history, head, data(0, 30));
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(30));
    let clone = history.new_head(Some(snapshot)).unwrap();
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(0), "the clone sees it all");
    delete(&mut history, clone);
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(30));
    delete(&mut history, head);
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(100));
}

#[test]
fn nodes_written_after_their_snapshot_use_addresses_reserved_below_its_mark() {
    // Three nodes of the frozen tree are unwritten: they are born before the seal, wherever and whenever
    // a checkpoint writes them. A head that copies one must not take it for its own.
    let (mut history, _, head) = snapshot_and_head();
    history.born(head, node(100, 3)).unwrap();
    let mark = Marks([LogAddress(100), LogAddress(100), LogAddress(103)]);
    let snapshot = history.seal(head, mark).unwrap();
    history.born(head, node(103, 1)).unwrap();
    assert_eq!(drop_run(&mut history, head, node(101, 1)), [], "the snapshot still needs it");
    assert_eq!(history.used(snapshot).unwrap(), BlockCount(1));
    assert_eq!(delete(&mut history, snapshot), [node(101, 1)]);
    assert_eq!(drop_run(&mut history, head, node(100, 1)), [node(100, 1)], "the head owns the others now");
}

#[test]
fn versions_that_go_together_free_what_they_share() {
    let (mut history, first, head) = snapshot_and_head();
    history.born(head, data(100, 10)).unwrap();
    let second = history.seal(head, marks(110)).unwrap();
    drop_run(&mut history, head, data(95, 10));
    assert_eq!(history.freed_by_deleting_set(&[first, second]).unwrap(), BlockCount(10));
    // One by one they would count the blocks of the second only.
    let apart = history.used(first).unwrap().0 + history.used(second).unwrap().0;
    assert_eq!(apart, 5);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let (mut history, snapshot, head) = snapshot_and_head();
    let mut freed = FreedSink::new();
    let unknown = VersionId(99);
    assert_eq!(history.new_head(Some(head)), Err(HistoryFault::NotASnapshot(head)));
    assert_eq!(history.new_head(Some(unknown)), Err(HistoryFault::Unknown(unknown)));
    assert_eq!(history.born(snapshot, data(100, 1)), Err(HistoryFault::NotAHead(snapshot)));
    assert_eq!(history.dropped(snapshot, data(0, 1), &mut freed), Err(HistoryFault::NotAHead(snapshot)));
    assert_eq!(history.seal(snapshot, marks(200)), Err(HistoryFault::NotAHead(snapshot)));
    assert_eq!(history.seal(head, marks(99)), Err(HistoryFault::MarksWentBack(head)));
    assert_eq!(delete_into(&mut history, unknown, &mut freed), Err(HistoryFault::Unknown(unknown)));
    assert!(freed.is_empty());
    history.check().unwrap();
}

#[test]
#[should_panic(expected = "born twice")]
fn a_version_references_a_block_once_only() {
    let (mut history, _, head) = snapshot_and_head();
    history.born(head, data(100, 2)).unwrap();
    history.born(head, data(101, 2)).unwrap();
}

#[test]
#[should_panic(expected = "below the mark")]
fn nothing_is_born_below_the_parents_mark() {
    let (mut history, _, head) = snapshot_and_head();
    history.born(head, data(99, 2)).unwrap();
}

#[test]
#[should_panic(expected = "dropped twice")]
fn a_block_dies_once_in_a_head() {
    let (mut history, _, head) = snapshot_and_head();
    drop_run(&mut history, head, data(0, 2));
    drop_run(&mut history, head, data(1, 2));
}

#[test]
fn ten_thousand_snapshots_are_listed_in_a_blink() {
    let mut history = History::new();
    let head = history.new_head(None).unwrap();
    let mut freed = FreedSink::new();
    for index in 0..10_000u64 {
        history.born(head, data(index * 10, 10)).unwrap();
        if index > 0 {
            history.dropped(head, data(index * 10 - 5, 3), &mut freed).unwrap();
        }
        history.seal(head, marks(index * 10 + 10)).unwrap();
    }
    let ids: Vec<VersionId> = history.versions().map(super::VersionNode::id).collect();
    let started = std::time::Instant::now();
    let used: u64 = ids.iter().map(|&id| history.used(id).unwrap().0).sum();
    let took = started.elapsed();
    assert_eq!(used, 9_999 * 3);
    // Generous: built without optimization, on a busy machine.
    assert!(took.as_millis() < 1_000, "{took:?}");
    let snapshots = &ids[1..];
    assert_eq!(history.freed_by_deleting_set(snapshots).unwrap(), BlockCount(9_999 * 3));
    for &id in snapshots {
        delete_into(&mut history, id, &mut freed).unwrap();
    }
    assert_eq!(freed.len(), BlockCount(9_999 * 3));
    history.check().unwrap();
}

#[test]
fn a_sink_is_emptied_a_few_runs_at_a_time() {
    let mut sink = FreedSink::new();
    for (index, stream) in Stream::ALL.into_iter().enumerate() {
        for number in 0..20 {
            let start = LogAddress(number * 10 + index as u64);
            sink.push(Run { stream, start, length: BlockCount(1 + number % 3) });
        }
    }
    let all: Vec<Run> = sink.runs().collect();
    let mut taken = Vec::new();
    while !sink.is_empty() {
        let some = sink.take_some(7);
        assert!(some.len() == 7 || sink.is_empty());
        taken.extend(some);
    }
    assert_eq!(taken, all);
}

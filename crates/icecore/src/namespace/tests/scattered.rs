//! Many runs mapped in one step: the same as one after the other.

use super::*;
use proptest::prelude::*;

const FILE_BLOCKS: u64 = 200;

/// One batch: gaps in the file and lengths, in its order.
type Batch = Vec<(u64, u64)>;

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    // Gaps are often zero and lengths often one: neighbours, which join or do not, are what it is about.
    let gap = prop_oneof![3 => Just(0_u64), 2 => 1..4_u64, 1 => 4..40_u64];
    let length = prop_oneof![3 => Just(1_u64), 2 => 2..6_u64, 1 => 6..30_u64];
    prop::collection::vec(prop::collection::vec((gap, length), 1..12), 1..12)
}

/// The batch's runs, with addresses from `next` on: sometimes side by side, sometimes not.
fn runs(batch: &Batch, next: &mut u64) -> Vec<(FileBlock, Run)> {
    let mut block = 0;
    batch
        .iter()
        .filter_map(|&(gap, length)| {
            let first = block + gap;
            block = first + length;
            *next += u64::from(gap % 3 == 1);
            let run = Run { stream: Stream::Data, start: LogAddress(*next), length: BlockCount(length) };
            *next += length;
            (block <= FILE_BLOCKS).then_some((FileBlock(first), run))
        })
        .collect()
}

fn version_with_file(store: &Store) -> (Version, InodeNumber) {
    let mut version = Version::new(store, weak_hash);
    let inode =
        version.writer(store).create(InodeNumber::ROOT, b"f", &new_inode(InodeKind::File, 1)).unwrap().inode;
    (version, inode)
}

fn refer(version: &mut Version, run: Run) {
    version.accounts.data.extend((run.start.0..run.end().0).map(|address| (run.stream, address)));
}

/// Where each block of the file is.
fn blocks(version: &Version, store: &Store, inode: InodeNumber) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let visit = &mut |first: FileBlock, run: Run| {
        found.extend((0..run.length.0).map(|index| (first.0 + index, run.start.0 + index)));
        Ok(true)
    };
    version.reader(store).extents(inode, FileBlock(0), FileBlock(u64::MAX), visit).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(128), max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn mapping_many_runs_is_mapping_each(batches in batches()) {
        let store = Store::default();
        let (mut together, inode) = version_with_file(&store);
        let (mut one_by_one, same) = version_with_file(&store);
        assert_eq!(inode, same);
        let mut next = 1000;
        for batch in &batches {
            let runs = runs(batch, &mut next);
            if runs.is_empty() {
                continue;
            }
            let touch = Touch { time: Timestamp(7), size_at_least: 0 };
            for (first, run) in &runs {
                refer(&mut together, *run);
                refer(&mut one_by_one, *run);
                one_by_one.writer(&store).map_run(inode, *first, *run, touch).unwrap();
            }
            together.writer(&store).map_runs(inode, &runs, touch).unwrap();
            prop_assert_eq!(blocks(&together, &store, inode), blocks(&one_by_one, &store, inode));
            prop_assert_eq!(&together.accounts.data, &one_by_one.accounts.data);
            let attributes = |version: &Version| version.reader(&store).inode(inode).unwrap();
            prop_assert_eq!(attributes(&together), attributes(&one_by_one));
            check(&together.reader(&store)).unwrap();
        }
    }
}

//! What operations promise of themselves: they come from the log, and may be anything.

use super::*;
use proptest::prelude::*;

/// At, file block, and blocks of a part.
type Numbers = (u32, u64, u32);

fn scatter(blocks: u32, parts: &[Numbers]) -> Scatter {
    let part = |&(at, block, blocks): &Numbers| Part { at, block: FileBlock(block), blocks };
    Scatter {
        dataset: DatasetId(0),
        inode: InodeNumber(2),
        blocks,
        end: 0,
        time: Timestamp(0),
        parts: parts.iter().map(part).collect(),
    }
}

/// The same, block by block.
fn is_valid_by_blocks(scatter: &Scatter) -> bool {
    let blocks = |first: u64, part: &Part| first..first + u64::from(part.blocks);
    let of_run: Vec<u64> = scatter.parts.iter().flat_map(|part| blocks(part.at.into(), part)).collect();
    let of_file: Vec<u64> = scatter.parts.iter().flat_map(|part| blocks(part.block.0, part)).collect();
    let mut once = of_run.clone();
    once.sort_unstable();
    once.dedup();
    !scatter.parts.is_empty()
        && scatter.parts.iter().all(|part| part.blocks > 0)
        && once.len() == of_run.len()
        && once.last().is_none_or(|last| *last < scatter.blocks.into())
        && of_file.is_sorted_by(|one, next| one < next)
}

#[test]
fn parts_of_a_scatter_lie_within_its_run_each_for_itself() {
    let valid: [(u32, &[Numbers]); 4] = [
        (1, &[(0, 7, 1)]),
        (9, &[(4, 0, 4), (0, 4, 4)]),
        (u32::MAX, &[(0, 0, u32::MAX)]),
        (u32::MAX, &[(u32::MAX - 1, 0, 1), (0, u64::MAX - 1, 1)]),
    ];
    for (blocks, parts) in valid {
        assert!(scatter(blocks, parts).is_valid(), "{blocks} {parts:?}");
    }
    let wrong: [(u32, &[Numbers]); 8] = [
        (1, &[]),
        (1, &[(0, 7, 0)]),
        (1, &[(1, 7, 1)]),
        (1, &[(0, 7, 2)]),
        (u32::MAX, &[(u32::MAX, 7, 1)]),
        (u32::MAX, &[(1, 7, u32::MAX)]),
        (4, &[(0, 7, 2), (1, 9, 2)]),
        (4, &[(0, 7, 2), (2, 8, 2)]),
    ];
    for (blocks, parts) in wrong {
        assert!(!scatter(blocks, parts).is_valid(), "{blocks} {parts:?}");
    }
    assert!(!scatter(4, &[(0, u64::MAX, 1)]).is_valid(), "the file has no block behind this one");
}

proptest! {
    #[test]
    fn a_scatter_is_judged_as_block_by_block(
        blocks in 0..12_u32,
        parts in proptest::collection::vec((0..12_u32, 0..12_u64, 0..4_u32), 0..5),
        in_order in any::<bool>(),
    ) {
        let mut parts = parts;
        if in_order {
            parts.sort_unstable_by_key(|part| part.1);
        }
        let scatter = scatter(blocks, &parts);
        prop_assert_eq!(scatter.is_valid(), is_valid_by_blocks(&scatter));
    }
}

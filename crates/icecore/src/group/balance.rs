//! What a commit takes of a pool, against what it frees.

use super::commit::Step;
use crate::engine::Engine;
use crate::error::Result;
use crate::namespace::{Read, TreeReader};
use crate::operation::{Operation, Scatter};
use crate::state::State;
use crate::units::{BLOCK_BYTES, FileBlock};

/// How the blocks that die by a commit compare with those that it writes, where no snapshot keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Balance {
    /// More is written.
    Grows,
    /// Each block that is written has one in its place.
    Replaces,
    /// So it has, and files become shorter by half as many blocks at least.
    Shrinks,
}

/// The balance of a commit, as its files are now.
pub(super) fn balance_of(engine: &Engine, steps: &[Step]) -> Result<Balance> {
    let state = engine.state();
    let (mut written, mut cut) = (0, 0);
    for step in steps {
        match step {
            Step::Log(Operation::WriteScattered(scatter), _)
            | Step::Staged { scatter, .. }
            | Step::Patched { whole: scatter, .. }
                if is_mapped(engine, &state, scatter)? =>
            {
                written += u64::from(scatter.blocks);
            }
            Step::Log(Operation::Truncate { dataset, inode, size, .. }, _) => {
                let (bytes, blocks) = engine.file_size(&state, *dataset, *inode)?;
                let block_bytes = BLOCK_BYTES as u64;
                cut += bytes.div_ceil(block_bytes).saturating_sub(size.div_ceil(block_bytes)).min(blocks);
            }
            _ => return Ok(Balance::Grows),
        }
    }
    Ok(if 2 * cut >= written { Balance::Shrinks } else { Balance::Replaces })
}

/// Whether a file has all the blocks that are written.
fn is_mapped(engine: &Engine, state: &State, scatter: &Scatter) -> Result<bool> {
    let tree = &state.trees[&state.head(scatter.dataset)?];
    let reader = TreeReader::new(tree, &*engine.nodes);
    for part in &scatter.parts {
        for block in (part.block.0..).map(FileBlock).take(part.blocks as usize) {
            if reader.run_at(scatter.inode, block)?.is_none() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

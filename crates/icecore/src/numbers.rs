//! A hash for tables whose keys are addresses and numbers that the store itself gives out. No user can choose
//! them so that they collide. The standard hash guards against that, and takes longer than the rest of a
//! look-up.

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A table by numbers of the store's own.
pub(crate) type NumberMap<K, V> = HashMap<K, V, NumberHash>;

/// How such tables, and caches, find what they hold. The same in every process: what a cache lets go of
/// follows from what was asked of it, and a simulation repeats itself.
pub(crate) type NumberHash = BuildHasherDefault<NumberHasher>;

/// A cache by numbers of the store's own: of about so many entries, and so much weight at most.
pub(crate) fn number_cache<K: Hash + Eq, V: Clone, W: Weighter<K, V> + Clone>(
    entries: usize,
    weight: u64,
    weighter: W,
) -> Cache<K, V, W, NumberHash> {
    Cache::with(entries, weight, weighter, NumberHash::default(), DefaultLifecycle::default())
}

/// Multiplicative hashing by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section
/// 6.4).
#[derive(Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The upper half of the product depends on all bits of the number, and a table looks at the lower,
        // too.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(GOLDEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::Hash;

    fn hash(key: impl Hash) -> u64 {
        let mut hasher = NumberHasher::default();
        key.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn neighbours_and_multiples_spread_over_a_table() {
        for step in [1_u64, 2, 256, 1 << 14, 1 << 32] {
            let places: BTreeSet<u64> = (0..4096).map(|index| hash(index * step) % 4096).collect();
            assert!(places.len() > 2000, "step {step}: {} places", places.len());
            let tags: BTreeSet<u64> = (0..4096).map(|index| hash(index * step) >> 57).collect();
            assert!(tags.len() > 32, "step {step}: {} tags", tags.len());
        }
    }
}

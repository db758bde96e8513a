//! Encoded nodes: what comes back, and what is refused.

use super::*;
use crc_fast::{CrcAlgorithm, checksum};
use proptest::prelude::*;

fn sample(seed: u64) -> Vec<(LogAddress, [u8; BLOCK_BYTES])> {
    let store = Store::default();
    let mut books = Books::default();
    let mut tree = Tree::new(&mut books);
    let mut random = Random(seed);
    for inode in 1..400 {
        let inode_key = Key::new(InodeNumber(inode), ItemKind::Inode, 0);
        tree.insert(&store, &mut books, inode_key, &Item::Bytes(vec![9; 100])).unwrap();
        for _ in 0..random.below(20) {
            let item = extent(Stream::Data, random.below((1 << 48) - 9), 1 + random.below(9));
            tree.insert(&store, &mut books, extent_key(inode, random.below(100)), &item).unwrap();
        }
    }
    let encode = |slot: &Arc<NodeSlot>| {
        let mut block = [0; BLOCK_BYTES];
        slot.encode(&mut block);
        (slot.address(), block)
    };
    tree.dirty().iter().map(encode).collect()
}

fn seal(block: &mut [u8; BLOCK_BYTES]) {
    block[4..8].fill(0);
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, block) as u32;
    block[4..8].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_node_comes_back_and_encodes_to_the_same_bytes() {
    for (address, block) in sample(1) {
        let node = Node::decode(&block, address).unwrap();
        let mut again = [0; BLOCK_BYTES];
        node.encode(address, &mut again);
        assert_eq!(block, again);
    }
}

/// The example in `docs/format/node.md`.
#[test]
fn the_example_in_the_format_description_holds() {
    let (store, mut books) = (Store::default(), Books::default());
    let mut tree = Tree::new(&mut books);
    tree.insert(&store, &mut books, extent_key(2, 0), &extent(Stream::Data, 16, 4)).unwrap();
    tree.insert(&store, &mut books, extent_key(2, 4), &extent(Stream::Data, 100, 4)).unwrap();
    let mut block = [0; BLOCK_BYTES];
    tree.dirty()[0].encode(&mut block);
    assert_eq!(block[8..16], [1, 0, 2, 0, 8, 0, 0, 0]);
    assert_eq!(block[24..32], [0x08, 0x04, 0x02, 0x00, 0x04, 0x02, 0x0F, 0x0A]);
}

#[test]
fn an_address_that_no_node_can_have_is_refused() {
    let (_, mut block) = sample(1)[0];
    block[16..24].fill(0xff);
    seal(&mut block);
    let error = Node::decode(&block, LogAddress(u64::MAX)).unwrap_err();
    assert!(error.to_string().contains("out of range"), "{error}");
}

#[test]
fn a_node_of_another_address_is_refused() {
    let (address, block) = sample(1)[0];
    let error = Node::decode(&block, LogAddress(address.0 + 1)).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let samples = sample(2);
    for (address, block) in [samples[0], samples[samples.len() - 1]] {
        for bit in 0..BLOCK_BYTES * 8 {
            if bit / 8 > 64 && bit % 37 != 0 {
                continue;
            }
            let mut damaged = block;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Node::decode(&damaged, address), Err(Error::Damaged { .. })), "bit {bit}");
        }
    }
}

#[test]
fn extremes_come_back() {
    let store = Store::default();
    let mut books = Books::default();
    let mut tree = Tree::new(&mut books);
    let last = InodeNumber((1 << 40) - 1);
    let items = [
        (Key::new(InodeNumber(0), ItemKind::Super, 0), Item::Bytes(vec![])),
        (Key::new(InodeNumber(0), ItemKind::Orphan, u64::MAX), Item::Bytes(vec![1; 63])),
        (Key::new(last, ItemKind::Inode, 1), Item::Bytes(vec![1; 64])),
        (Key::new(last, ItemKind::DirectoryEntry, u64::MAX), Item::Bytes(vec![1; ITEM_BYTES_MAX])),
        (Key::new(last, ItemKind::Extent, 0), extent(Stream::Node, 0, 16_383)),
        (Key::new(last, ItemKind::Extent, 16_383), extent(Stream::Data, (1 << 48) - 16_383, 16_383)),
        (Key::new(last, ItemKind::Extent, 40_000), extent(Stream::Merged, (1 << 48) - 1, 1)),
        (Key::new(last, ItemKind::Extent, u64::MAX), extent(Stream::Merged, 0, 1)),
        (Key::new(last, ItemKind::Symlink, u64::MAX), Item::Bytes(vec![2; 1000])),
    ];
    for (key, item) in &items {
        tree.insert(&store, &mut books, *key, item).unwrap();
    }
    store.write_all(&tree);
    for (key, item) in &items {
        assert_eq!(tree.get(&store, *key).unwrap().as_ref(), Some(item));
    }
    verify(&tree, &store, &books);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(256), ..ProptestConfig::default() })]

    /// Nonsense that is sealed with a right checksum is refused or is a node; nothing else.
    #[test]
    fn sealed_nonsense_is_answered(
        seed in any::<u64>(),
        changes in prop::collection::vec((8..BLOCK_BYTES, any::<u8>()), 0..12),
        near in prop::collection::vec((8..80usize, any::<u8>()), 0..6),
    ) {
        let samples = sample(3);
        let (address, mut block) = samples[seed as usize % samples.len()];
        for (at, byte) in changes.into_iter().chain(near) {
            block[at] = byte;
        }
        seal(&mut block);
        if let Ok(node) = Node::decode(&block, address) {
            let mut again = [0; BLOCK_BYTES];
            node.encode(address, &mut again);
            prop_assert!(again == block);
        }
    }

    #[test]
    fn sealed_noise_is_answered(seed in any::<u64>(), level in 0..2u8, count in 0..40u16, used in 0..400u16) {
        let mut random = Random(seed);
        let mut block = [0; BLOCK_BYTES];
        block[24..24 + usize::from(used)].fill_with(|| random.next() as u8 >> (random.next() % 8));
        block[0..4].copy_from_slice(b"IcTn");
        block[8..10].copy_from_slice(&[1, level]);
        block[10..12].copy_from_slice(&count.to_le_bytes());
        block[12..14].copy_from_slice(&used.to_le_bytes());
        seal(&mut block);
        let _ = Node::decode(&block, LogAddress(0));
    }
}

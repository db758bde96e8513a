//! What a second copy is made from: the segment, and where that is not what was written, a former copy.
//!
//! A copy that is made anew from unchecked bytes has their damage, and the copy that was right is gone. So
//! everything of which is known what it should be is compared with that on its way.

use super::Engine;
use crate::blocks::{Block, Use};
use crate::format::crc32c;
use crate::format::segment::{SegmentHeader, SegmentKind, decode_table, file_name};
use crate::format::superblock::LedgerPointer;
use crate::storage::StorageFile;
use crate::tree::Node;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, SegmentId, Slot, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// By what the blocks of a segment are known to be what was written.
enum Proof {
    /// Checksums by slot, 0 where there is none; none from `end` on. `grows`: it is being filled, and not all
    /// of it need be on disk.
    Sums { sums: Vec<u32>, end: usize, use_: Use, grows: bool },
    /// Nodes, which prove themselves where their address is known.
    Nodes(BTreeMap<Slot, LogAddress>),
    /// What is known was looked at as a whole.
    Whole,
}

/// See the module. The segment must not be used for anything else meanwhile.
pub(super) struct Original<'a> {
    engine: &'a Engine,
    segment: SegmentId,
    kind: SegmentKind,
    former: Option<Arc<dyn StorageFile>>,
    proof: Proof,
    /// What was written, in places where the segment has something else.
    instead: BTreeMap<Slot, Box<Block>>,
    /// Blocks of which nothing is left that is what was written.
    lost: BTreeSet<Slot>,
}

impl<'a> Original<'a> {
    /// `former`: a copy of the segment that need not be of this use of it. Nothing is taken from it without
    /// proof.
    pub(super) fn new(
        engine: &'a Engine,
        segment: SegmentId,
        kind: SegmentKind,
        former: Option<Arc<dyn StorageFile>>,
    ) -> Self {
        let (instead, lost) = (BTreeMap::new(), BTreeSet::new());
        let mut original = Self { engine, segment, kind, former, proof: Proof::Whole, instead, lost };
        match kind {
            SegmentKind::Log | SegmentKind::Run => original.know_sums(),
            SegmentKind::Node => original.know_nodes(),
            SegmentKind::Ledger => original.look_at_ledger(),
        }
        original
    }

    /// Reads blocks from a slot on, each as it was written if that is left anywhere. `false` if they cannot
    /// be read: one by one they may be.
    pub(super) fn read(&mut self, slot: Slot, bytes: &mut [u8]) -> bool {
        let readable = self.engine.blocks.files().read(self.segment, slot, bytes).is_ok();
        if !readable && bytes.len() > BLOCK_BYTES {
            return false;
        }
        let mut whole = true;
        for (index, block) in bytes.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            whole &= self.settle(Slot(slot.0 + index as u32), block, readable);
        }
        whole
    }

    /// Looks at every block.
    pub(super) fn read_all(&mut self) {
        let mut block = [0; BLOCK_BYTES];
        for slot in 0..self.engine.geometry.slots() {
            self.read(Slot(slot), &mut block);
        }
    }

    /// Makes a block what was written, if that is left; `false` if nothing is known of it.
    fn settle(&mut self, slot: Slot, block: &mut Block, readable: bool) -> bool {
        if let Some(right) = self.instead.get(&slot) {
            *block = **right;
            return true;
        }
        let verdict = if readable { self.judge(slot, block) } else { Some(false) };
        if verdict == Some(true) || (verdict.is_none() && !self.can_be_proved(slot)) {
            return true;
        }
        let former = self.read_former(slot, 1).and_then(|bytes| Block::try_from(bytes).ok());
        if let Some(right) = former.filter(|right| self.judge(slot, right) == Some(true)) {
            *block = right;
            self.instead.insert(slot, Box::new(right));
            return true;
        }
        // Of what is being written at the moment `loss` looks again.
        if verdict == Some(false) {
            self.lost.insert(slot);
        }
        readable
    }

    /// Whether a block is what was written, where that can be said.
    fn judge(&self, slot: Slot, block: &Block) -> Option<bool> {
        match &self.proof {
            Proof::Sums { sums, use_, .. } => match sums.get(slot.0 as usize) {
                Some(0) | None => {
                    let is_record = self.can_be_proved(slot)
                        && self.engine.blocks.sums().is_record_of(*use_, slot, block);
                    is_record.then_some(true)
                }
                Some(sum) => Some(*sum == crc32c(block)),
            },
            Proof::Nodes(addresses) => {
                addresses.get(&slot).map(|address| Node::decode(block, *address).is_ok())
            }
            Proof::Whole => None,
        }
    }

    /// Whether a block that says nothing of itself may be looked for in the former copy. Such are headers of
    /// records before something that is known to be there. What lies behind the end of a log is no part of
    /// it, whatever a copy says.
    fn can_be_proved(&self, slot: Slot) -> bool {
        match &self.proof {
            Proof::Sums { end, grows, .. } => slot.0 > 0 && (slot.0 as usize) < *end && !grows,
            Proof::Nodes(addresses) => addresses.contains_key(&slot),
            Proof::Whole => false,
        }
    }

    fn read_former(&self, slot: Slot, blocks: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let offset = self.engine.geometry.offset(slot);
        self.former.as_ref()?.read_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    fn read_segment(&self, slot: Slot, blocks: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        self.engine.blocks.files().read(self.segment, slot, &mut bytes).ok()?;
        Some(bytes)
    }

    /// These blocks are what was written, and the segment has something else.
    fn put_instead(&mut self, slot: Slot, bytes: &[u8]) {
        for (index, block) in bytes.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
            self.instead.insert(Slot(slot.0 + index as u32), Box::new(*block));
        }
    }

    /// Looks at the segment header. `incarnation`: the use that it should name, if that is known. Otherwise
    /// `former_is_of_use` says whether the former copy was seen to be of this use.
    fn look_at_header(&mut self, incarnation: Option<u64>, former_is_of_use: bool) {
        let (pool, segment, kind) = (self.engine.pool, self.segment, self.kind);
        let is_own = |bytes: &Vec<u8>| {
            SegmentHeader::of(pool, segment, bytes).is_some_and(|header| {
                header.kind == kind && incarnation.is_none_or(|incarnation| header.incarnation == incarnation)
            })
        };
        if self.read_segment(Slot(0), 1).is_some_and(|bytes| is_own(&bytes)) {
            return;
        }
        let former = self.read_former(Slot(0), 1).filter(is_own);
        match former.filter(|_| incarnation.is_some() || former_is_of_use) {
            Some(bytes) => self.put_instead(Slot(0), &bytes),
            None => drop(self.lost.insert(Slot(0))),
        }
    }

    fn know_sums(&mut self) {
        let blocks = &self.engine.blocks;
        let Ok(use_) = blocks.sums().use_of(self.segment, blocks.files()) else {
            self.lost.insert(Slot(0));
            return;
        };
        self.look_at_header(Some(use_.incarnation), false);
        let geometry = self.engine.geometry;
        let (at, length) = (geometry.end(use_.kind), geometry.table_blocks());
        let owner = blocks.sums().owner(self.segment, use_.incarnation);
        let decode = |bytes: &Vec<u8>| decode_table(geometry, owner, bytes);
        let grows = blocks.sums().is_being_filled(self.segment);
        let own = self.read_segment(at, length).and_then(|bytes| decode(&bytes));
        let former = self.read_former(at, length).filter(|_| own.is_none() && !grows);
        let former = former.and_then(|bytes| decode(&bytes).map(|sums| (bytes, sums)));
        let sums = match (own, former) {
            (Some(sums), _) if !grows => Some(sums),
            (None, Some((bytes, sums))) => {
                self.put_instead(at, &bytes);
                Some(sums)
            }
            _ => blocks.checksums(self.segment).ok(),
        };
        match sums {
            Some(sums) => {
                let end = sums.iter().rposition(|sum| *sum != 0).map_or(0, |last| last + 1);
                self.proof = Proof::Sums { sums, end, use_, grows };
            }
            None => drop(self.lost.insert(at)),
        }
    }

    fn know_nodes(&mut self) {
        let placed = {
            // The map stays as it is.
            let _state = self.engine.state();
            self.engine.blocks.entries_of_segment(self.segment).unwrap_or_default()
        };
        let mut addresses = BTreeMap::new();
        for entry in placed.iter().filter(|entry| entry.run.stream == Stream::Node) {
            for index in 0..entry.run.length.0 {
                let address = entry.run.start.plus(BlockCount(index));
                addresses.insert(Slot(entry.slot.0 + index as u32), address);
            }
        }
        let is_in_former = |(slot, address): (&Slot, &LogAddress)| {
            let block = self.read_former(*slot, 1).and_then(|bytes| Block::try_from(bytes).ok());
            block.is_some_and(|block| Node::decode(&block, *address).is_ok())
        };
        let of_use = addresses.iter().take(LOOKED_AT).any(is_in_former);
        self.proof = Proof::Nodes(addresses);
        self.look_at_header(None, of_use);
    }

    /// Blobs and chunks have their checksum in what points to them.
    fn look_at_ledger(&mut self) {
        let stretches = self.engine.stretches_in(self.segment);
        let mut of_use = false;
        for pointer in stretches {
            let LedgerPointer { slot, blocks, .. } = pointer;
            let is_right = |bytes: &Vec<u8>| pointer.leads_to(bytes);
            let former = self.read_former(slot, blocks).filter(is_right);
            of_use |= former.is_some();
            if self.read_segment(slot, blocks).is_some_and(|bytes| is_right(&bytes)) {
                continue;
            }
            match former {
                Some(bytes) => self.put_instead(slot, &bytes),
                None => drop(self.lost.insert(slot)),
            }
        }
        self.look_at_header(None, of_use);
    }

    /// Writes to the segment what was found in the former copy alone. Failing is no error: the copy has it
    /// now.
    pub(super) fn heal(&self) {
        let files = self.engine.blocks.files();
        for (slot, block) in &self.instead {
            let detail = "it is not what was written, and a former copy is";
            let why = self.engine.geometry.damaged(self.segment, *slot, detail);
            files.heal(self.segment, *slot, &**block, &why, || true);
        }
    }

    /// What is lost of what is needed, in words; none if nothing is.
    pub(super) fn loss(&self) -> Option<String> {
        if !self.lost.is_empty() && matches!(self.proof, Proof::Sums { grows: true, .. }) {
            // What was on its way to the disk looked like it, and is there now; if not, nothing can be said.
            self.engine.sync().ok()?;
        }
        let is_lost = |slot: &Slot| {
            let now = self.read_segment(*slot, 1).and_then(|bytes| Block::try_from(bytes).ok());
            now.is_none_or(|block| self.judge(*slot, &block) != Some(true))
        };
        let lost: Vec<Slot> = self.lost.iter().copied().filter(is_lost).collect();
        let lost = if lost.is_empty() { lost } else { self.needed(lost) };
        let first = self.engine.geometry.offset(*lost.first()?);
        Some(format!(
            "{} blocks of {}, the first at offset {first}, are not what was written, and neither is a copy of them: a scrub says \
             which files are concerned",
            lost.len(),
            file_name(self.segment)
        ))
    }

    /// Those in which something lies that lives.
    fn needed(&self, mut slots: Vec<Slot>) -> Vec<Slot> {
        let state = self.engine.state();
        let placed = self.engine.blocks.entries_of_segment(self.segment).unwrap_or_default();
        let lives = |slot: Slot| {
            placed.iter().any(|entry| {
                let Some(index) = slot.0.checked_sub(entry.slot.0).map(u64::from) else { return false };
                let address = entry.run.start.plus(BlockCount(index));
                // Where that is unknown it is better to report the loss.
                index < entry.run.length.0 && state.history.lives(entry.run.stream, address).unwrap_or(true)
            })
        };
        // The rest can make up for what vouches for blocks, which need not be there yet. A scrub looks at it.
        let is_ledger = self.kind == SegmentKind::Ledger;
        slots.retain(|slot| slot.0 > 0 && (is_ledger || lives(*slot)));
        slots
    }
}

/// Nodes that are looked at in a former copy to learn whether it is of the present use of its segment.
const LOOKED_AT: usize = 64;

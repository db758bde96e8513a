//! One entry of the location map: addresses whose blocks lie one after the other in a segment.

use crate::units::{SegmentId, Slot};
use std::ops::Range;

/// Most addresses that an entry with gaps spans: 2 MiB of them.
pub(super) const RANK_SPAN: u32 = 512;
const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (RANK_SPAN / WORD_BITS) as usize;

/// Which of the addresses of a span have a place, the lowest bit of the first word for the first.
type Bits = [u64; WORDS];

/// Blocks that lie in consecutive slots, in the order of their addresses. Without gaps between the addresses
/// it is a run of any length. With gaps a bit for each says which addresses are meant: the place of one is
/// the first slot plus its *rank*, the number of those before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Addresses from the first to the last, both of which are meant.
    span: u32,
    pub(super) segment: SegmentId,
    /// Of the first block.
    pub(super) slot: Slot,
    /// `None` if all of them are meant. Boxed because most entries of most pools are runs.
    bits: Option<Box<Bits>>,
}

impl Entry {
    /// A run.
    pub(super) fn run(length: u32, segment: SegmentId, slot: Slot) -> Self {
        assert!(length > 0, "an entry has at least one block");
        Self { span: length, segment, slot, bits: None }
    }

    pub(super) const fn span(&self) -> u32 {
        self.span
    }

    /// Whether not all addresses of its span are meant.
    pub(super) const fn has_gaps(&self) -> bool {
        self.bits.is_some()
    }

    /// Number of blocks, and of slots.
    pub(super) fn blocks(&self) -> u32 {
        self.bits.as_ref().map_or(self.span, |bits| bits.iter().map(|word| word.count_ones()).sum())
    }

    /// The slot behind the last block.
    pub(super) fn slots_end(&self) -> u32 {
        self.slot.0 + self.blocks()
    }

    /// Number of blocks before the address that is `offset` from the first.
    fn rank(&self, offset: u32) -> u32 {
        let Some(bits) = &self.bits else { return offset };
        let (word, bit) = split(offset);
        let whole: u32 = bits[..word].iter().map(|word| word.count_ones()).sum();
        whole + bits.get(word).map_or(0, |word| (word & below(bit)).count_ones())
    }

    /// Slot of the address that is `offset` from the first, and how many addresses from it on have a place
    /// here; `None` if it has none.
    pub(super) fn at(&self, offset: u32) -> Option<(Slot, u32)> {
        let end = match &self.bits {
            None => self.span,
            Some(bits) if next(bits, offset, 0) == offset => next(bits, offset, u64::MAX).min(self.span),
            Some(_) => return None,
        };
        (offset < self.span).then(|| (Slot(self.slot.0 + self.rank(offset)), end - offset))
    }

    /// The runs within a range of offsets, ascending: offset, slot and length.
    pub(super) fn runs_within(&self, range: Range<u32>) -> impl Iterator<Item = (u32, Slot, u32)> + '_ {
        let end = range.end.min(self.span);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if let Some(bits) = &self.bits {
                at = next(bits, at, 0);
            }
            if at >= end {
                return None;
            }
            let (slot, length) = self.at(at)?;
            let run = (at, slot, length.min(end - at));
            at += run.2;
            Some(run)
        })
    }

    /// Whether an address of a range of offsets has a place here.
    pub(super) fn meets(&self, range: Range<u32>) -> bool {
        self.runs_within(range).next().is_some()
    }

    /// The part within a range of offsets, and the offset at which it begins; `None` if nothing is in it.
    pub(super) fn part(&self, range: Range<u32>) -> Option<(u32, Self)> {
        let end = range.end.min(self.span);
        let Some(bits) = &self.bits else {
            let length = end.checked_sub(range.start).filter(|length| *length > 0)?;
            let slot = Slot(self.slot.0 + range.start);
            return Some((range.start, Self::run(length, self.segment, slot)));
        };
        let first = next(bits, range.start, 0);
        if first >= end {
            return None;
        }
        let mut part = lowered(bits, first);
        keep_below(&mut part, end - first);
        let slot = Slot(self.slot.0 + self.rank(first));
        Some((first, Self::of_bits(part, self.segment, slot)))
    }

    /// This entry and one that begins `distance` after it, as one, if they are that: the other goes on in the
    /// slot where this ends. Nothing between them may have a place.
    pub(super) fn joined(&self, distance: u32, other: &Self) -> Option<Self> {
        if self.segment != other.segment || self.slots_end() != other.slot.0 {
            return None;
        }
        let span = distance.checked_add(other.span)?;
        if self.bits.is_none() && other.bits.is_none() && distance == self.span {
            return Some(Self { span, ..self.clone() });
        }
        if span > RANK_SPAN {
            return None;
        }
        let mut bits = self.to_bits();
        raise_into(&mut bits, &other.to_bits(), distance);
        Some(Self::of_bits(bits, self.segment, self.slot))
    }

    fn to_bits(&self) -> Bits {
        match &self.bits {
            Some(bits) => **bits,
            None => {
                let mut bits = [u64::MAX; WORDS];
                keep_below(&mut bits, self.span);
                bits
            }
        }
    }

    /// `bits` has its first bit set.
    fn of_bits(bits: Bits, segment: SegmentId, slot: Slot) -> Self {
        debug_assert!(bits[0] & 1 == 1);
        let last = bits.iter().rposition(|word| *word != 0).expect("one is set");
        let span = last as u32 * WORD_BITS + (WORD_BITS - bits[last].leading_zeros());
        let is_run = next(&bits, 0, u64::MAX) >= span;
        Self { span, segment, slot, bits: (!is_run).then(|| Box::new(bits)) }
    }
}

/// The word that a bit is in, and which of its bits it is.
const fn split(offset: u32) -> (usize, u32) {
    ((offset / WORD_BITS) as usize, offset % WORD_BITS)
}

/// The bits of a word below one.
const fn below(bit: u32) -> u64 {
    (1 << bit) - 1
}

/// The first bit from `from` on that is set, with `flip` zero, or that is clear, with `flip` all ones;
/// [`RANK_SPAN`] if there is none.
fn next(bits: &Bits, from: u32, flip: u64) -> u32 {
    let (mut word, bit) = split(from);
    let mut mask = !below(bit);
    while let Some(found) = bits.get(word) {
        let found = (found ^ flip) & mask;
        if found != 0 {
            return word as u32 * WORD_BITS + found.trailing_zeros();
        }
        (word, mask) = (word + 1, u64::MAX);
    }
    RANK_SPAN
}

/// Clears the bits from `end` on.
fn keep_below(bits: &mut Bits, end: u32) {
    let (last, bit) = split(end);
    if let Some(word) = bits.get_mut(last) {
        *word &= below(bit);
        bits[last + 1..].fill(0);
    }
}

/// The bits from `by` on, counted from there.
fn lowered(bits: &Bits, by: u32) -> Bits {
    let (words, shift) = split(by);
    std::array::from_fn(|index| {
        let word = |index: usize| bits.get(index + words).copied().unwrap_or(0);
        match shift {
            0 => word(index),
            _ => word(index) >> shift | word(index + 1) << (WORD_BITS - shift),
        }
    })
}

/// Sets the bits of `other`, moved up by so much. None of them is moved out.
fn raise_into(bits: &mut Bits, other: &Bits, by: u32) {
    let (words, shift) = split(by);
    for index in words..WORDS {
        bits[index] |= other[index - words] << shift;
        if shift > 0 && index > words {
            bits[index] |= other[index - words - 1] >> (WORD_BITS - shift);
        }
    }
}

//! Sets against a plain set of numbers, their journals, and their bytes.

use super::blocks::{BlockSet, Span};
use super::codec::{DecodeLimits, damaged, encode_changes, take_changes};
use super::model_tests::cases;
use super::part::Look;
use super::rule_tests::marks;
use super::set::{AddressSet, SetChanges};
use crate::error::Result;
use crate::format::varint::put_varint;
use crate::units::{LOG_ADDRESS_LIMIT, LogAddress, Stream};
use proptest::prelude::*;
use std::collections::BTreeSet;

impl SetChanges {
    /// Appends these changes to `out`, in whichever form is smaller.
    fn encode(&self, out: &mut Vec<u8>) {
        encode_changes(&self.added, &self.removed, out);
    }

    /// Reads the changes of a set of `stream`, which fill all of `bytes`.
    fn decode(mut bytes: &[u8], stream: Stream, limits: &mut DecodeLimits) -> Result<Self> {
        let changes = take_changes(&mut bytes, stream, limits)?;
        if bytes.is_empty() { Ok(changes) } else { Err(damaged("bytes left over")) }
    }
}

fn span(start: u64, length: u64) -> Span {
    LogAddress(start)..LogAddress(start + length)
}

fn numbers(set: &BlockSet) -> BTreeSet<u64> {
    set.runs().flat_map(|run| run.start.0..run.end.0).collect()
}

fn all(span: &Span) -> BTreeSet<u64> {
    (span.start.0..span.end.0).collect()
}

/// Spans around the borders of chunks and of 32 bits, where the bitmap changes its parts.
fn spans() -> impl Strategy<Value = Span> {
    let base = prop::sample::select(vec![0u64, (1 << 16) - 40, (1 << 32) - 40, (2 << 32) + 7]);
    (base, 0u64..80, 0u64..60).prop_map(|(base, offset, length)| span(base + offset, length))
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Span),
    Remove(Span),
    Extract(Span),
    Unite(Vec<Span>),
    Subtract(Vec<Span>),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let several = || prop::collection::vec(spans(), 0..4);
    let step = prop_oneof![
        4 => spans().prop_map(Step::Insert),
        3 => spans().prop_map(Step::Remove),
        1 => spans().prop_map(Step::Extract),
        1 => several().prop_map(Step::Unite),
        1 => several().prop_map(Step::Subtract),
        1 => Just(Step::Take),
    ];
    prop::collection::vec(step, 1..60)
}

fn union(spans: &[Span]) -> BTreeSet<u64> {
    spans.iter().flat_map(all).collect()
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn sets_agree_with_plain_numbers_and_journals_are_minimal(steps in steps(), probe in spans()) {
        let (mut set, mut model) = (AddressSet::new(), BTreeSet::new());
        let (mut stored, mut before) = (AddressSet::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Insert(span) => {
                    let fresh = all(&span).difference(&model).count() as u64;
                    prop_assert_eq!(set.insert_run(span.clone()).0, fresh);
                    model.extend(all(&span));
                }
                Step::Remove(span) => {
                    let gone = all(&span).intersection(&model).count() as u64;
                    prop_assert_eq!(set.remove_run(&span).0, gone);
                    model.retain(|&number| !span.contains(&LogAddress(number)));
                }
                Step::Extract(span) => {
                    let part: BTreeSet<u64> = all(&span).intersection(&model).copied().collect();
                    prop_assert_eq!(numbers(&set.extract(&span)), part);
                    model.retain(|&number| !span.contains(&LogAddress(number)));
                }
                Step::Unite(spans) => {
                    let fresh = union(&spans).difference(&model).count() as u64;
                    prop_assert_eq!(set.unite(spans.iter().cloned().collect()).0, fresh);
                    model.extend(union(&spans));
                }
                Step::Subtract(spans) => {
                    let gone = union(&spans).intersection(&model).count() as u64;
                    prop_assert_eq!(set.subtract(&spans.iter().cloned().collect()).0, gone);
                    model.retain(|number| !union(&spans).contains(number));
                }
                Step::Take => {
                    let changes = set.take_changes();
                    prop_assert_eq!(numbers(&changes.added), model.difference(&before).copied().collect());
                    prop_assert_eq!(numbers(&changes.removed), before.difference(&model).copied().collect());
                    let mut bytes = Vec::new();
                    changes.encode(&mut bytes);
                    let mut limits = DecodeLimits::new(marks(LOG_ADDRESS_LIMIT));
                    let decoded = SetChanges::decode(&bytes, Stream::Node, &mut limits).unwrap();
                    prop_assert_eq!(&decoded, &changes);
                    stored.apply(decoded).unwrap();
                    prop_assert_eq!(&stored, &set);
                    before = model.clone();
                }
            }
            prop_assert_eq!(set.len().0, model.len() as u64);
            prop_assert_eq!(numbers(set.blocks()), model.clone());
        }
        let inside: BTreeSet<u64> = all(&probe).intersection(&model).copied().collect();
        prop_assert_eq!(set.count(&probe, Look::default()).unwrap().0, inside.len() as u64);
        prop_assert_eq!(&numbers(&set.part(&probe)), &inside);
        let clipped: BTreeSet<u64> =
            set.blocks().runs_within(&probe).flat_map(|run| run.start.0..run.end.0).collect();
        prop_assert_eq!(clipped, inside);
        let runs: Vec<Span> = set.runs().collect();
        prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "runs are not maximal");
        prop_assert!(stored.take_changes().is_empty(), "what was applied is not reported again");
    }

    #[test]
    fn absorbing_joins_the_journals(steps in prop::collection::vec((any::<bool>(), 0u8..5, spans()), 1..40)) {
        // Two sets that can share nothing: even addresses and odd ones.
        let (mut sets, mut before) = ([AddressSet::new(), AddressSet::new()], BTreeSet::new());
        for (odd, kind, run) in steps {
            let of_parity = all(&run).into_iter().filter(|number| number % 2 == u64::from(odd));
            let part: BlockSet = of_parity.map(|number| span(number, 1)).collect();
            match kind {
                0 | 1 => {
                        sets[usize::from(odd)].unite(part);
                    }
                2 | 3 => {
                        sets[usize::from(odd)].subtract(&part);
                    }
                _ => {
                    sets.iter_mut().for_each(|set| drop(set.take_changes()));
                    before = sets.iter().flat_map(|set| numbers(set.blocks())).collect();
                }
            }
        }
        let now: BTreeSet<u64> = sets.iter().flat_map(|set| numbers(set.blocks())).collect();
        let [mut set, other] = sets;
        set.absorb(other);
        prop_assert_eq!(numbers(set.blocks()), now.clone());
        let changes = set.take_changes();
        prop_assert_eq!(numbers(&changes.added), now.difference(&before).copied().collect());
        prop_assert_eq!(numbers(&changes.removed), before.difference(&now).copied().collect());
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut limits = DecodeLimits::new(marks(LOG_ADDRESS_LIMIT));
        let _ = SetChanges::decode(&bytes, Stream::Data, &mut limits);
    }

    #[test]
    fn flipped_bytes_decode_or_are_refused(
        starts in prop::collection::btree_set(0u64..200_000, 1..400),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let added: BlockSet = starts.iter().map(|&start| span(start, start % 3 + 1)).collect();
        let removed = BlockSet::of(span(300_000, 5));
        let mut bytes = Vec::new();
        SetChanges { added, removed }.encode(&mut bytes);
        for (place, value) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= value;
        }
        let mut limits = DecodeLimits { chunks: 1 << 12, ..DecodeLimits::new(marks(1 << 20)) };
        if let Ok(changes) = SetChanges::decode(&bytes, Stream::Data, &mut limits) {
            prop_assert!(changes.added.is_within(&span(0, 1 << 20)));
            prop_assert_eq!(numbers(&changes.added).len() as u64, changes.added.len().0);
        }
    }
}

#[test]
fn the_smaller_form_is_written_and_both_come_back() {
    let sparse: BlockSet = (0..1000).map(|index| span(index * 5000, 4)).collect();
    let dense: BlockSet = (0..30_000).map(|index| span(index * 2, 1)).collect();
    for (set, bytes_max) in [(sparse, 4 * 1000), (dense, 9_000)] {
        let changes = SetChanges { added: set, removed: BlockSet::new() };
        let mut bytes = Vec::new();
        changes.encode(&mut bytes);
        assert!(bytes.len() < bytes_max, "{} bytes", bytes.len());
        let mut limits = DecodeLimits::new(marks(LOG_ADDRESS_LIMIT));
        assert_eq!(SetChanges::decode(&bytes, Stream::Data, &mut limits).unwrap(), changes);
    }
}

#[test]
fn a_few_bytes_cannot_claim_the_whole_address_space() {
    let (mut bytes, mut length) = (vec![1], Vec::new());
    put_varint(&mut length, 0);
    put_varint(&mut length, LOG_ADDRESS_LIMIT - 1);
    put_varint(&mut bytes, (length.len() as u64) << 1);
    bytes.extend(length);
    let mut limits = DecodeLimits::new(marks(LOG_ADDRESS_LIMIT));
    let fault = SetChanges::decode(&bytes, Stream::Data, &mut limits).unwrap_err();
    assert!(fault.to_string().contains("memory"), "{fault}");
    let mut limits = DecodeLimits::new(marks(1 << 20));
    let fault = SetChanges::decode(&bytes, Stream::Data, &mut limits).unwrap_err();
    assert!(fault.to_string().contains("never given out"), "{fault}");
}

#[test]
fn many_small_runs_are_put_into_their_smallest_form() {
    let mut set = AddressSet::new();
    for index in 0..200_000u64 {
        set.insert_run(span(index * 7_919 % 400_000 * 4, 3));
    }
    set.take_changes();
    // 1.6 million addresses are 25 chunks; a bitmap of one takes 8 KiB.
    assert!(set.blocks().bitmap().expect("many runs").serialized_size() < 25 * 8300);
}

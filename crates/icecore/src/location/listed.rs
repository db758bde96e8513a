//! The addresses of the blocks of a run outside the log, as its header lists them. With them, where blocks
//! lie can be found out without the location map. The layout is in `docs/format.md`.

use crate::format::varint::{put_varint, take_varint, unzigzag, zigzag};
use crate::units::{BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Run, Stream};

/// First byte of the encoding.
const FORM: u8 = 1;
/// Bits of a number that say which stream.
const STREAM_BITS: u32 = 2;
/// Bytes of a list beside those of its runs.
pub const LIST_BYTES_MIN: usize = 1;
/// Bytes that a run takes in a list at most. Two are of its length, below 2^12 blocks, and the rest of a step
/// between two addresses of 48 bits.
pub const LISTED_BYTES_MAX: usize = 9;

/// Encodes the addresses of blocks that lie side by side, in the order of their slots.
pub fn encode_list(runs: &[Run]) -> Vec<u8> {
    let mut bytes = vec![FORM];
    let mut ends = [0_u64; 3];
    for run in runs {
        let end = &mut ends[run.stream as usize];
        put_varint(&mut bytes, (run.length.0 - 1) << STREAM_BITS | run.stream as u64);
        // Blocks that were moved need not be in the order of their addresses.
        let step = run.start.0 as i64 - *end as i64;
        put_varint(&mut bytes, zigzag(step));
        *end = run.end().0;
    }
    bytes
}

/// Reads what [`encode_list`] wrote for so many blocks. `None` for any other bytes.
pub fn decode_list(bytes: &[u8], blocks: usize) -> Option<Vec<Run>> {
    let (&FORM, mut rest) = bytes.split_first()? else { return None };
    let mut runs = Vec::new();
    let mut left = blocks as u64;
    let mut ends = [0_u64; 3];
    while !rest.is_empty() {
        let number = take_varint(&mut rest)?;
        let stream = Stream::from_number((number & ((1 << STREAM_BITS) - 1)) as u8)?;
        let length = (number >> STREAM_BITS) + 1;
        let step = unzigzag(take_varint(&mut rest)?);
        let end = &mut ends[stream as usize];
        let start = end.checked_add_signed(step).filter(|start| *start > 0)?;
        left = left.checked_sub(length)?;
        *end = start.checked_add(length).filter(|end| *end <= LOG_ADDRESS_LIMIT)?;
        runs.push(Run { stream, start: LogAddress(start), length: BlockCount(length) });
    }
    (left == 0).then_some(runs)
}

/// Runs of blocks with these addresses, one after the other.
pub fn runs_of_blocks(stream: Stream, addresses: impl Iterator<Item = LogAddress>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for address in addresses {
        match runs.last_mut() {
            Some(last) if last.end() == address => last.length.0 += 1,
            _ => runs.push(Run { stream, start: address, length: BlockCount(1) }),
        }
    }
    runs
}

/// The first so many blocks of runs.
pub fn first_blocks(runs: &[Run], blocks: u64) -> Vec<Run> {
    let mut left = blocks;
    let mut first = Vec::new();
    for run in runs {
        let length = BlockCount(run.length.0.min(left));
        if length.0 == 0 {
            break;
        }
        left -= length.0;
        first.push(Run { length, ..*run });
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::HEADER_ROOM;
    use proptest::prelude::*;

    fn run(stream: Stream, start: u64, length: u64) -> Run {
        Run { stream, start: LogAddress(start), length: BlockCount(length) }
    }

    /// Runs in any order, of as many blocks as they have together.
    fn any_runs() -> impl Strategy<Value = Vec<Run>> {
        let any = (0..3_usize, 1..LOG_ADDRESS_LIMIT - 1000, 1..300_u64);
        let any = any.prop_map(|(stream, start, length)| run(Stream::ALL[stream], start, length));
        proptest::collection::vec(any, 0..20)
    }

    fn blocks(runs: &[Run]) -> usize {
        runs.iter().map(|run| run.length.0 as usize).sum()
    }

    #[test]
    fn bytes_of_a_list_do_not_change() {
        let runs = [
            run(Stream::Data, 5, 3),
            run(Stream::Merged, 1000, 1),
            run(Stream::Data, 9, 2),
            run(Stream::Data, 2, 1),
        ];
        let bytes = encode_list(&runs);
        assert_eq!(bytes, [1, 8, 10, 1, 0xd0, 15, 4, 2, 0, 17]);
        assert_eq!(decode_list(&bytes, 7).unwrap(), runs);
    }

    /// However its addresses are scattered, a run of as many blocks as are written at once has room for them.
    #[test]
    fn the_longest_list_fits_a_header() {
        let far = |index: u64| {
            run(Stream::Data, if index.is_multiple_of(2) { LOG_ADDRESS_LIMIT - 1 } else { 1 }, 1)
        };
        let runs: Vec<Run> = (0..256).map(far).collect();
        let bytes = encode_list(&runs);
        assert!(
            bytes.len() <= LIST_BYTES_MIN + 256 * LISTED_BYTES_MAX && bytes.len() + 256 * 4 <= HEADER_ROOM
        );
        assert_eq!(decode_list(&bytes, 256).unwrap(), runs);
    }

    proptest! {
        #[test]
        fn what_is_listed_is_read(runs in any_runs()) {
            let bytes = encode_list(&runs);
            prop_assert_eq!(decode_list(&bytes, blocks(&runs)), Some(runs.clone()));
            prop_assert_eq!(decode_list(&bytes, blocks(&runs) + 1), None);
            let room = LIST_BYTES_MIN + blocks(&runs) * LISTED_BYTES_MAX;
            prop_assert!(bytes.len() <= room.max(1));
        }

        #[test]
        fn any_bytes_are_a_list_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..60), blocks in 0..400_usize) {
            if let Some(runs) = decode_list(&bytes, blocks) {
                prop_assert!(runs.iter().all(|run| run.start.0 > 0 && run.end().0 <= LOG_ADDRESS_LIMIT));
                prop_assert_eq!(self::blocks(&runs), blocks);
            }
        }

        #[test]
        fn the_first_blocks_of_runs_are_these(runs in any_runs(), part in 0..1000_u64) {
            let one_by_one = |runs: &[Run]| -> Vec<(Stream, u64)> {
                runs.iter().flat_map(|run| (run.start.0..run.end().0).map(|at| (run.stream, at))).collect()
            };
            let mut expected = one_by_one(&runs);
            expected.truncate(part as usize);
            prop_assert_eq!(one_by_one(&first_blocks(&runs, part)), expected);
        }
    }
}

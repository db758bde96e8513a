//! Numbers in seven bits a byte, low bits first, the top bit set on all bytes but the last (LEB128).

/// Appends `number` in one to ten bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes that [`put_varint`] takes for `number`.
pub(crate) const fn varint_bytes(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Takes a number off the front of `bytes`. None when it ends early or does not fit 64 bits.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Small numbers either way as small numbers: 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
pub(crate) const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_lengths_are_as_announced() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                assert_eq!(bytes.len(), varint_bytes(number));
                let mut rest = &bytes[..];
                assert_eq!(take_varint(&mut rest), Some(number));
                assert!(rest.is_empty());
                assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(take_varint(&mut &[0xff; 10][..]), None);
    }
}

//! What changes within a block: stretches of bytes, side by side in one buffer. A small transaction has
//! dozens of them, most of a few bytes.

use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Stretches of a block, in the order in which they were put.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stretches {
    /// Offset of each in the block, and where its bytes end in `bytes`.
    spans: Vec<(u16, u32)>,
    bytes: Vec<u8>,
}

/// Bytes that change. Encoded as the offset and the bytes with their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stretch<'a> {
    /// Offset of the first one in its block.
    pub at: u16,
    /// The bytes.
    #[serde(serialize_with = "at_once")]
    pub bytes: &'a [u8],
}

fn at_once<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl Stretches {
    /// None yet, with room for a few short ones.
    pub fn with_room() -> Self {
        Self { spans: Vec::with_capacity(8), bytes: Vec::with_capacity(128) }
    }

    /// Puts bytes at an offset of the block. Those that go on where the last stretch ends make it longer.
    pub fn put(&mut self, at: u16, bytes: &[u8]) {
        let begin = self.spans.iter().rev().nth(1).map_or(0, |(_, end)| *end);
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len() as u32;
        match self.spans.last_mut() {
            Some((first, last)) if u32::from(*first) + (*last - begin) == u32::from(at) => *last = end,
            _ => self.spans.push((at, end)),
        }
    }

    /// In order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Stretch<'_>> {
        let mut begin = 0;
        self.spans.iter().map(move |(at, end)| {
            let bytes = &self.bytes[begin..*end as usize];
            begin = *end as usize;
            Stretch { at: *at, bytes }
        })
    }

    /// Number of stretches.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Number of bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> FromIterator<Stretch<'a>> for Stretches {
    /// Each as it is: none is joined with the one before.
    fn from_iter<I: IntoIterator<Item = Stretch<'a>>>(stretches: I) -> Self {
        let mut all = Self::default();
        for stretch in stretches {
            all.bytes.extend_from_slice(stretch.bytes);
            all.spans.push((stretch.at, all.bytes.len() as u32));
        }
        all
    }
}

impl Serialize for Stretches {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.len()))?;
        for stretch in self.iter() {
            sequence.serialize_element(&stretch)?;
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for Stretches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Sequence)
    }
}

struct Sequence;

impl<'de> Visitor<'de> for Sequence {
    type Value = Stretches;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("stretches of bytes")
    }

    /// Grows with what there is: the number that the bytes promise is not believed.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Stretches, A::Error> {
        let mut all = Stretches::default();
        while let Some(Stretch { at, bytes }) = sequence.next_element::<Stretch<'de>>()? {
            all.bytes.extend_from_slice(bytes);
            let end = u32::try_from(all.bytes.len());
            let end = end.map_err(|_| serde::de::Error::custom("longer than any operation"))?;
            all.spans.push((at, end));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_where_the_last_one_ends_joins_it() {
        let mut stretches = Stretches::with_room();
        stretches.put(8, &[1, 2]);
        stretches.put(10, &[3]);
        stretches.put(12, &[4, 5]);
        stretches.put(14, &[6]);
        let all: Vec<_> = stretches.iter().map(|stretch| (stretch.at, stretch.bytes.to_vec())).collect();
        assert_eq!(all, [(8, vec![1, 2, 3]), (12, vec![4, 5, 6])]);
        assert_eq!((stretches.len(), stretches.bytes()), (2, 6));
    }

    #[test]
    fn they_are_encoded_as_a_list_of_offsets_and_bytes() {
        let listed: Vec<(u16, Vec<u8>)> = vec![(0, vec![7]), (300, vec![]), (4000, vec![1, 2, 3])];
        let bytes = postcard::to_allocvec(&listed).expect("encoded");
        let stretches = listed.iter().map(|(at, bytes)| Stretch { at: *at, bytes }).collect::<Stretches>();
        assert_eq!(postcard::to_allocvec(&stretches).expect("encoded"), bytes);
        assert_eq!(postcard::from_bytes::<Stretches>(&bytes).expect("decoded"), stretches);
        for cut in 0..bytes.len() {
            assert!(postcard::from_bytes::<Stretches>(&bytes[..cut]).is_err());
        }
    }
}

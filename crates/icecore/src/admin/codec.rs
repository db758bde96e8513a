//! Frames on the control socket.
//!
//! ```text
//! 0      4         6       8        12
//! | ICEA | version | flags | length | length bytes of body ...
//! ```
//!
//! Numbers are little-endian. A message is the bodies of one or more frames, one after the other, encoded
//! with postcard; flag bit 0 says that another frame of the same message follows. A frame is 8 MiB at most,
//! so that a length can be judged before anything is allocated, and memory grows only as bytes arrive.

use super::protocol::PROTOCOL_VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"ICEA";
/// Bytes before the body.
pub const HEADER_BYTES: usize = 12;
/// Longest body of one frame.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Longest request in bytes: one frame.
pub const REQUEST_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Longest reply in bytes: a list of some millions of snapshots.
pub const REPLY_BYTES_MAX: usize = 1 << 30;

const MORE: u16 = 1;

/// Why no message could be read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The system said so; `WouldBlock` and `TimedOut` when the other end stalled.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other end went away in the middle of a frame.
    #[error("the connection ended in the middle of a message")]
    Truncated,
    /// The bytes are not a frame.
    #[error("these are not frames of icecore's control protocol")]
    NotAFrame,
    /// The other end speaks another version.
    #[error(
        "the other end speaks version {0} of the control protocol, and this program version {PROTOCOL_VERSION}: use the same icecore on both sides"
    )]
    OtherVersion(u16),
    /// A frame or message is longer than allowed.
    #[error("a message of {length} bytes is too long: {limit} at most")]
    TooLong {
        /// Length that was announced.
        length: u64,
        /// Length that is allowed.
        limit: usize,
    },
    /// The body is not what it should be.
    #[error("the message makes no sense: {0}")]
    Malformed(postcard::Error),
}

/// Sends one message.
pub fn write_message<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let body =
        postcard::to_stdvec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut rest = body.as_slice();
    loop {
        let (part, remainder) = rest.split_at(rest.len().min(FRAME_BYTES_MAX));
        rest = remainder;
        let flags = if rest.is_empty() { 0 } else { MORE };
        stream.write_all(&header(flags, part.len()))?;
        stream.write_all(part)?;
        if rest.is_empty() {
            return stream.flush();
        }
    }
}

/// Reads one message of at most `limit` bytes. `None` when the other end closed the connection between
/// messages.
pub fn read_message<T: DeserializeOwned>(
    stream: &mut impl Read,
    limit: usize,
) -> Result<Option<T>, CodecError> {
    let mut body = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        if !fill(stream, &mut header)? {
            return if body.is_empty() { Ok(None) } else { Err(CodecError::Truncated) };
        }
        let (flags, length) = check_header(header)?;
        let total = body.len() + length;
        if total > limit {
            return Err(CodecError::TooLong { length: total as u64, limit });
        }
        if stream.take(length as u64).read_to_end(&mut body)? < length {
            return Err(CodecError::Truncated);
        }
        if flags & MORE == 0 {
            return postcard::from_bytes(&body).map(Some).map_err(CodecError::Malformed);
        }
        if length == 0 {
            return Err(CodecError::NotAFrame);
        }
    }
}

fn header(flags: u16, length: usize) -> [u8; HEADER_BYTES] {
    let length = u32::try_from(length).expect("a frame is at most FRAME_BYTES_MAX long");
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    header[6..8].copy_from_slice(&flags.to_le_bytes());
    header[8..].copy_from_slice(&length.to_le_bytes());
    header
}

/// Flags and length. The version is judged first: nothing is known about what another one puts behind it.
fn check_header(header: [u8; HEADER_BYTES]) -> Result<(u16, usize), CodecError> {
    let [m0, m1, m2, m3, v0, v1, f0, f1, l0, l1, l2, l3] = header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(CodecError::NotAFrame);
    }
    let version = u16::from_le_bytes([v0, v1]);
    if version != PROTOCOL_VERSION {
        return Err(CodecError::OtherVersion(version));
    }
    let flags = u16::from_le_bytes([f0, f1]);
    if flags & !MORE != 0 {
        return Err(CodecError::NotAFrame);
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if length as usize > FRAME_BYTES_MAX {
        return Err(CodecError::TooLong { length: u64::from(length), limit: FRAME_BYTES_MAX });
    }
    Ok((flags, length as usize))
}

/// Fills `buffer`; false if the stream ended before its first byte.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> Result<bool, CodecError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(CodecError::Truncated),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(message: &Vec<u8>) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_message(&mut bytes, message).unwrap();
        bytes
    }

    #[test]
    fn messages_longer_than_a_frame_come_in_parts() {
        let message = vec![7u8; FRAME_BYTES_MAX * 2 + 5];
        let bytes = encoded(&message);
        let read: Vec<u8> = read_message(&mut bytes.as_slice(), REPLY_BYTES_MAX).unwrap().unwrap();
        assert!(read == message);
        let error = read_message::<Vec<u8>>(&mut bytes.as_slice(), REQUEST_BYTES_MAX).unwrap_err();
        assert!(matches!(error, CodecError::TooLong { .. }), "{error}");
    }

    #[test]
    fn an_end_between_messages_is_an_end_and_one_within_is_damage() {
        assert!(read_message::<u8>(&mut [].as_slice(), 100).unwrap().is_none());
        let bytes = encoded(&vec![1, 2, 3]);
        for length in 1..bytes.len() {
            let error = read_message::<Vec<u8>>(&mut &bytes[..length], 100).unwrap_err();
            assert!(matches!(error, CodecError::Truncated), "{length}: {error}");
        }
    }

    #[test]
    fn other_versions_and_nonsense_are_distinguished() {
        let mut bytes = encoded(&vec![1]);
        let other = PROTOCOL_VERSION + 1;
        bytes[4..6].copy_from_slice(&other.to_le_bytes());
        let error = read_message::<Vec<u8>>(&mut bytes.as_slice(), 100).unwrap_err();
        assert!(matches!(error, CodecError::OtherVersion(found) if found == other), "{error}");
        let error = read_message::<Vec<u8>>(&mut b"GET / HTTP/1.1\r\n".as_slice(), 100).unwrap_err();
        assert!(matches!(error, CodecError::NotAFrame), "{error}");
        let mut huge = header(0, 0);
        huge[8..].fill(0xff);
        let error = read_message::<Vec<u8>>(&mut huge.as_slice(), 100).unwrap_err();
        assert!(matches!(error, CodecError::TooLong { .. }), "{error}");
    }

    #[test]
    fn empty_frames_without_end_are_refused() {
        let bytes = header(MORE, 0).repeat(3);
        let error = read_message::<Vec<u8>>(&mut bytes.as_slice(), 100).unwrap_err();
        assert!(matches!(error, CodecError::NotAFrame), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damaged_frames_never_panic(message in proptest::collection::vec(any::<u8>(), 0..64), place in 0usize..80, flip in 1u8..) {
            let mut bytes = encoded(&message);
            let place = place % bytes.len();
            bytes[place] ^= flip;
            let _ = read_message::<crate::admin::protocol::Request>(&mut bytes.as_slice(), 4096);
            let _ = read_message::<crate::admin::protocol::Reply>(&mut bytes.as_slice(), 4096);
        }
    }
}

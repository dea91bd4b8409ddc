//! [`Frame`]: a message as a version, a kind, and four numbers. It has a fixed size, so that a guardian
//! needs no memory to read one.

/// One message in transit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) words: [u64; 4],
}

/// Rises whenever a message changes its meaning. Both ends must be the same binary.
const VERSION: u8 = 3;

impl Frame {
    /// Eight for version and kind, eight for each word.
    pub(super) const BYTES: usize = 40;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = self.kind;
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(self.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns `None` for another version.
    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        if bytes[0] != VERSION {
            return None;
        }
        let mut words = [0; 4];
        for (word, place) in words.iter_mut().zip(bytes[8..].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
        Some(Self { kind: bytes[1], words })
    }
}

/// Returns a frame of this kind, with zeros behind `content`.
pub(crate) fn frame<const N: usize>(kind: u8, content: [u64; N]) -> Frame {
    let mut words = [0; 4];
    for (word, value) in words.iter_mut().zip(content) {
        *word = value;
    }
    Frame { kind, words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_survives_its_bytes_and_another_version_is_refused() {
        let frame = Frame { kind: 7, words: [1, u64::MAX, 0, 1 << 40] };
        let mut bytes = frame.to_bytes();
        assert_eq!(Frame::from_bytes(&bytes), Some(frame));
        bytes[0] += 1;
        assert_eq!(Frame::from_bytes(&bytes), None);
    }
}

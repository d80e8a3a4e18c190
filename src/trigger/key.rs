//! The idempotency key: (device, fence, state, second). Its parts are compared each for itself and stored
//! length-prefixed, never joined by a separator: `a:b`+`c` and `a`+`b:c` are different keys.

use super::State;
use super::rules::ID_BYTES;
use std::fmt;
use std::hash::{BuildHasher, Hasher};

/// The most bytes [`Key::write_to`] takes: two ids of the longest kind, their lengths, the state and the second.
pub const KEY_BYTES_MAX: usize = 2 + *ID_BYTES.end() + 2 + *ID_BYTES.end() + 1 + 8;

/// What makes two triggers "the same".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The device's bytes.
    pub device_id: &'a [u8],
    /// The fence's bytes.
    pub fence_id: &'a [u8],
    /// Enter, exit and dwell of one second are three keys.
    pub state: State,
    /// Event time in whole seconds since 1970.
    pub event_second: i64,
}

impl<'a> Key<'a> {
    /// A key from its stored form; `None` if the bytes are none, whole.
    #[must_use]
    pub fn read_from(stored: &'a [u8]) -> Option<Key<'a>> {
        fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
            let (len, rest) = bytes.split_first_chunk::<2>()?;
            rest.split_at_checked(u16::from_le_bytes(*len).into())
        }
        let (device_id, rest) = text(stored)?;
        let (fence_id, rest) = text(rest)?;
        let (&[state, ref second @ ..], rest) = rest.split_first_chunk::<9>()?;
        let state = State::from_number(state).filter(|_| rest.is_empty())?;
        Some(Key { device_id, fence_id, state, event_second: i64::from_le_bytes(*second) })
    }
}

impl Key<'_> {
    /// The 64-bit hash of the key, unambiguous over its parts. The hasher is seeded once per process.
    #[must_use]
    pub fn hash_with<B: BuildHasher>(&self, hasher: &B) -> u64 {
        let mut state = hasher.build_hasher();
        // The length of the device and the state go into one word with the second: any two different keys differ in
        // the words or in the bytes at the same place.
        state.write_u64(
            (self.event_second as u64) ^ ((self.device_id.len() as u64) << 48) ^ ((self.state as u64) << 60),
        );
        state.write(self.device_id);
        state.write(self.fence_id);
        state.finish()
    }

    /// How many bytes the stored form takes.
    #[must_use]
    pub const fn stored_len(&self) -> usize {
        2 + self.device_id.len() + 2 + self.fence_id.len() + 1 + 8
    }

    /// Writes the stored form: u16 length and bytes of the device, the same of the fence, the state, the second.
    /// Integers are little-endian.
    ///
    /// # Panics
    /// If `place` is shorter than [`Key::stored_len`], or an id is longer than 65,535 bytes (submit refuses it at 257).
    pub fn write_to(&self, place: &mut [u8]) -> usize {
        let (device, fence) = (self.device_id, self.fence_id);
        let device_len = u16::try_from(device.len()).expect("an id is at most 256 bytes");
        let fence_len = u16::try_from(fence.len()).expect("an id is at most 256 bytes");
        let (head, rest) = place.split_at_mut(2 + device.len());
        head[..2].copy_from_slice(&device_len.to_le_bytes());
        head[2..].copy_from_slice(device);
        let (head, rest) = rest.split_at_mut(2 + fence.len());
        head[..2].copy_from_slice(&fence_len.to_le_bytes());
        head[2..].copy_from_slice(fence);
        rest[0] = self.state as u8;
        rest[1..9].copy_from_slice(&self.event_second.to_le_bytes());
        self.stored_len()
    }

    /// Whether `stored` is this key's stored form, byte for byte.
    #[must_use]
    pub fn is_stored_as(&self, stored: &[u8]) -> bool {
        let (device, fence) = (self.device_id, self.fence_id);
        if stored.len() != self.stored_len() {
            return false;
        }
        let (head, rest) = stored.split_at(2 + device.len());
        if head[..2] != (device.len() as u16).to_le_bytes() || head[2..] != *device {
            return false;
        }
        let (head, rest) = rest.split_at(2 + fence.len());
        head[2..] == *fence && rest[0] == self.state as u8 && rest[1..9] == self.event_second.to_le_bytes()
    }
}

impl fmt::Display for Key<'_> {
    /// `device/fence/state/second` for people; what is not a plain letter, digit, `-`, `.`, `_`, `~` or `:` is
    /// percent-escaped, so the parts can be told apart and the line stays one line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(out, self.device_id)?;
        out.write_str("/")?;
        escape(out, self.fence_id)?;
        write!(out, "/{}/{}", self.state.name(), self.event_second)
    }
}

fn escape(out: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            write!(out, "{}", byte as char)?;
        } else {
            write!(out, "%{byte:02X}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::fast::FixedState;
    use proptest::prelude::*;

    fn key<'a>(device: &'a str, fence: &'a str, state: State, event_second: i64) -> Key<'a> {
        Key { device_id: device.as_bytes(), fence_id: fence.as_bytes(), state, event_second }
    }

    fn stored(key: &Key<'_>) -> Vec<u8> {
        let mut place = vec![0xee; KEY_BYTES_MAX];
        let len = key.write_to(&mut place);
        assert!(place[len..].iter().all(|&byte| byte == 0xee), "wrote past its own length");
        place.truncate(len);
        place
    }

    #[test]
    fn the_stored_form_byte_for_byte() {
        let key = key("d:1", "f", State::Exit, 0x0102_0304);
        assert_eq!(stored(&key), b"\x03\0d:1\x01\0f\x02\x04\x03\x02\x01\0\0\0\0");
        assert_eq!(key.stored_len(), 17);
    }

    #[test]
    fn a_stored_form_that_is_cut_longer_or_of_no_state_is_no_key() {
        let whole = stored(&key("d:1", "f", State::Exit, 7));
        assert_eq!(Key::read_from(&whole), Some(key("d:1", "f", State::Exit, 7)));
        for len in 0..whole.len() {
            assert_eq!(Key::read_from(&whole[..len]), None, "cut at {len}");
        }
        assert_eq!(Key::read_from(&[&whole[..], b"x"].concat()), None);
        for state in [0, 4, 255] {
            let mut other = whole.clone();
            other[8] = state;
            assert_eq!(Key::read_from(&other), None);
        }
    }

    #[test]
    fn the_longest_key_fills_the_limit() {
        let id = "x".repeat(256);
        assert_eq!(KEY_BYTES_MAX, 525);
        assert_eq!(key(&id, &id, State::Dwell, i64::MAX).stored_len(), KEY_BYTES_MAX);
    }

    #[test]
    fn where_one_id_ends_matters() {
        let hasher = FixedState::with_seed(1);
        for ((device, fence), (other_device, other_fence)) in [
            (("a:b", "c"), ("a", "b:c")),
            (("ab", ""), ("a", "b")),
            (("", "ab"), ("ab", "")),
            (("a\0", "b"), ("a", "\0b")),
            // The right fence looks like the left one with its length in front.
            (("aXY", "c"), ("a", "\x01\0c")),
            (("a", "b"), ("b", "a")),
        ] {
            let left = key(device, fence, State::Enter, 7);
            let right = key(other_device, other_fence, State::Enter, 7);
            assert_ne!(left, right);
            assert_ne!(stored(&left), stored(&right));
            assert!(!left.is_stored_as(&stored(&right)));
            assert!(!right.is_stored_as(&stored(&left)));
            assert_ne!(left.hash_with(&hasher), right.hash_with(&hasher), "{left:?} {right:?}");
        }
    }

    #[test]
    fn printed_for_people_so_that_the_parts_stay_apart() {
        assert_eq!(key("bus-7", "zone:a", State::Enter, 12).to_string(), "bus-7/zone:a/enter/12");
        assert_eq!(key("a/b", "50%", State::Exit, -1).to_string(), "a%2Fb/50%25/exit/-1");
        assert_eq!(key("\0\n", "車", State::Dwell, 0).to_string(), "%00%0A/%E8%BB%8A/dwell/0");
        assert_eq!(key("#1", "~._-", State::Dwell, 0).to_string(), "%231/~._-/dwell/0");
    }

    fn any_key() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, State, i64)> {
        // Few letters and short ids, so that near misses are common.
        let id = prop_oneof![
            prop::collection::vec(prop::sample::select(b"ab:".to_vec()), 0..5),
            prop::collection::vec(any::<u8>(), 250..257)
        ];
        let state = prop::sample::select(vec![State::Enter, State::Exit, State::Dwell]);
        (id.clone(), id, state, prop_oneof![0_i64..3, any::<i64>()])
    }

    proptest! {
        #[test]
        fn stored_forms_are_equal_exactly_when_the_keys_are(left in any_key(), right in any_key()) {
            let [left, right] = [&left, &right]
                .map(|(device, fence, state, second)| Key { device_id: device, fence_id: fence, state: *state, event_second: *second });
            prop_assert!(left.is_stored_as(&stored(&left)));
            let form = stored(&left);
            prop_assert_eq!(Key::read_from(&form), Some(left));
            prop_assert_eq!(left == right, stored(&left) == stored(&right));
            prop_assert_eq!(left == right, left.is_stored_as(&stored(&right)));
            if left == right {
                let hasher = FixedState::with_seed(1);
                prop_assert_eq!(left.hash_with(&hasher), right.hash_with(&hasher));
            }
        }

        #[test]
        fn no_bytes_are_taken_for_a_key_they_do_not_hold(bytes in prop::collection::vec(any::<u8>(), 0..40), key in any_key()) {
            let key = Key { device_id: &key.0, fence_id: &key.1, state: key.2, event_second: key.3 };
            prop_assert_eq!(key.is_stored_as(&bytes), stored(&key) == bytes);
            if let Some(read) = Key::read_from(&bytes) {
                prop_assert_eq!(stored(&read), bytes);
            }
        }
    }
}

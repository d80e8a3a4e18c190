//! The idempotency key: (device, fence, state, second). Its parts are compared each for itself and stored
//! length-prefixed, never joined by a separator: `a:b`+`c` and `a`+`b:c` are different keys.

use super::State;
use std::fmt;
use std::hash::{BuildHasher, Hasher};

/// The most bytes [`Key::write_to`] takes: two ids of 256 bytes, their lengths, the state and the second.
pub const KEY_BYTES_MAX: usize = 2 + 256 + 2 + 256 + 1 + 8;

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

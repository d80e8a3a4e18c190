//! What makes two triggers the same, computed for the checkers alone: (device, fence, state, second) as 64 bits.
//!
//! Two different keys share a fingerprint with a chance of one in 2^64: among 20 million keys about 1 in 90,000 that
//! any two do, and then one record is called a repeat that is none. A checker that stored the keys would need ten times the memory.

use crate::trigger::State;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hasher};

/// The fingerprint of a trigger. The same within one process; not for keeping.
pub(super) fn fingerprint(device_id: &str, fence_id: &str, state: State, event_time_ms: i64) -> u64 {
    let state = match state {
        State::Enter => 1,
        State::Exit => 2,
        State::Dwell => 3,
    };
    let mut hasher = DefaultHasher::new();
    for id in [device_id, fence_id] {
        // The length in front keeps `a` + `bc` and `ab` + `c` apart.
        hasher.write_u64(id.len() as u64);
        hasher.write(id.as_bytes());
    }
    hasher.write_u8(state);
    hasher.write_i64(event_time_ms.div_euclid(1_000));
    hasher.finish()
}

/// For tables whose keys are fingerprints: they are hashes already.
#[derive(Clone, Copy, Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are keys of these tables");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

/// A map from fingerprints.
pub(super) type ByFingerprint<T> = std::collections::HashMap<u64, T, BuildHasherDefault<AsItIs>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_key_tells_and_nothing_else_does() {
        let base = fingerprint("a", "b:c", State::Enter, 1_999);
        assert_eq!(base, fingerprint("a", "b:c", State::Enter, 1_000), "the second counts, not the millisecond");
        assert_ne!(base, fingerprint("a", "b:c", State::Enter, 2_000));
        assert_ne!(base, fingerprint("a", "b:c", State::Exit, 1_999));
        assert_ne!(base, fingerprint("a:b", "c", State::Enter, 1_999));
        assert_ne!(fingerprint("a", "bc", State::Enter, 0), fingerprint("ab", "c", State::Enter, 0));
        assert_eq!(fingerprint("a", "b", State::Enter, -1), fingerprint("a", "b", State::Enter, -1_000));
        assert_ne!(fingerprint("a", "b", State::Enter, -1), fingerprint("a", "b", State::Enter, 0));
    }
}

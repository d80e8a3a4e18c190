//! The keys of a batch of dead letters: which of them the topic holds already. Every record of the topic is asked about, and
//! nearly all of them are of no letter, so a [`Bloom`] filter answers first; what passes it is compared byte for byte.
//!
//! A key is published once: the second letter of a key, and any the topic holds, is suppressed.

use super::Bloom;
use crate::trigger::{KEY_BYTES_MAX, Key};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// The keys of one batch.
#[derive(Clone, Debug)]
pub struct Wanted {
    bloom: Bloom,
    /// Whether the topic holds it, by the key's stored form.
    keys: HashMap<Box<[u8]>, bool, RandomState>,
    checks: u64,
    in_vain: u64,
}

impl Wanted {
    /// Of these keys; one may come more than once.
    pub fn new<'a>(batch: impl ExactSizeIterator<Item = Key<'a>>) -> Wanted {
        let mut bloom = Bloom::for_keys(batch.len());
        let mut keys: HashMap<Box<[u8]>, bool, _> =
            HashMap::with_capacity_and_hasher(batch.len(), RandomState::default());
        for key in batch {
            with_stored(&key, |stored| {
                bloom.insert(stored);
                keys.entry(stored.into()).or_insert(false);
            });
        }
        Wanted { bloom, keys, checks: 0, in_vain: 0 }
    }

    /// The topic holds a record of this key.
    pub fn topic_holds(&mut self, key: &Key<'_>) {
        with_stored(key, |stored| {
            if !self.bloom.may_hold(stored) {
                return;
            }
            self.checks += 1;
            match self.keys.get_mut(stored) {
                Some(held) => *held = true,
                None => self.in_vain += 1,
            }
        });
    }

    /// Whether a letter of this key is to be published: the topic does not hold it, and no letter before asked.
    pub fn take(&mut self, key: &Key<'_>) -> bool {
        with_stored(key, |stored| match self.keys.get_mut(stored) {
            Some(held) => !std::mem::replace(held, true),
            None => false,
        })
    }

    /// Exact checks that were made, and those of them that the filter asked for in vain.
    #[must_use]
    pub fn checks(&self) -> (u64, u64) {
        (self.checks, self.in_vain)
    }
}

fn with_stored<T>(key: &Key<'_>, then: impl FnOnce(&[u8]) -> T) -> T {
    let mut place = [0; KEY_BYTES_MAX];
    let len = key.write_to(&mut place);
    then(&place[..len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::State;

    fn key(device: &str, event_second: i64) -> Key<'_> {
        Key { device_id: device.as_bytes(), fence_id: b"zone", state: State::Enter, event_second }
    }

    #[test]
    fn a_key_is_published_once_and_not_when_the_topic_holds_it() {
        let batch = [key("a", 1), key("b", 1), key("a", 1), key("c", 1)];
        let mut wanted = Wanted::new(batch.into_iter());
        wanted.topic_holds(&key("b", 1));
        // Of no letter: another second, another device.
        wanted.topic_holds(&key("a", 2));
        wanted.topic_holds(&key("d", 1));
        assert_eq!(batch.map(|key| wanted.take(&key)), [true, false, false, true]);
        assert!(!wanted.take(&key("d", 1)), "it is of no letter");
    }

    #[test]
    fn a_false_positive_costs_a_check_and_never_a_letter() {
        let devices: Vec<String> = (0..2_000).map(|n| format!("device-{n}")).collect();
        let mut wanted = Wanted::new(devices.iter().map(|device| key(device, 7)));
        let others: Vec<String> = (0..50_000).map(|n| format!("other-{n}")).collect();
        others.iter().for_each(|other| wanted.topic_holds(&key(other, 7)));
        let (checks, in_vain) = wanted.checks();
        assert!(checks == in_vain && (100..2_000).contains(&in_vain), "{checks} checks, {in_vain} in vain");
        assert!(devices.iter().all(|device| wanted.take(&key(device, 7))), "every letter is still to be published");
    }
}

//! The ledger of one ingress: what its `submit` accepted, in order. 12 bytes a trigger, all of it reserved at the start;
//! an entry costs two hashes and no allocation, except the first of a device.

use super::identity::fingerprint;
use crate::trigger::Trigger;
use std::collections::HashMap;
use std::sync::Arc;

/// What one ingress accepted, in order of acceptance. One per ingress: order is promised within an ingress only.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(super) fingerprints: Vec<u64>,
    /// Per entry, the device as an index into `names`.
    pub(super) devices: Vec<u32>,
    pub(super) names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    entries_max: usize,
    pub(super) unrecorded: u64,
}

impl Ledger {
    /// A ledger for up to `entries_max` accepted triggers, with room for `devices` names before those need more.
    #[must_use]
    pub fn with_capacity(entries_max: usize, devices: usize) -> Ledger {
        Ledger {
            fingerprints: Vec::with_capacity(entries_max),
            devices: Vec::with_capacity(entries_max),
            names: Vec::with_capacity(devices),
            numbers: HashMap::with_capacity(devices),
            entries_max,
            unrecorded: 0,
        }
    }

    /// Notes a trigger that `submit` has just accepted, repeats too: what was accepted before is known by its key.
    /// Beyond the capacity nothing is noted but the number; the verdict then says that it is not complete.
    pub fn accept(&mut self, trigger: &Trigger<'_>) {
        if self.fingerprints.len() == self.entries_max {
            self.unrecorded += 1;
            return;
        }
        let number = match self.numbers.get(trigger.device_id) {
            Some(&number) => number,
            None => {
                let name: Arc<str> = trigger.device_id.into();
                let number = u32::try_from(self.names.len()).expect("a ledger has at most 2^32 entries");
                self.names.push(Arc::clone(&name));
                self.numbers.insert(name, number);
                number
            }
        };
        let fingerprint = fingerprint(trigger.device_id, trigger.fence_id, trigger.state, trigger.event_time_ms);
        self.fingerprints.push(fingerprint);
        self.devices.push(number);
    }

    /// How many acceptances were noted, repeats included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Whether nothing was noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// What it holds, in bytes, without the tables' own overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name.len() + 2 * size_of::<usize>()).sum();
        self.fingerprints.capacity() * size_of::<u64>()
            + self.devices.capacity() * size_of::<u32>()
            + self.names.capacity() * size_of::<Arc<str>>()
            + self.numbers.capacity() * size_of::<(Arc<str>, u32)>()
            + names
    }
}

//! Triggers for what looks at one at a time: the length of the ids is what matters there, not their order.
//!
//! Each is 4,096 triggers from the seed 20,260,225, so that neither the branch predictor nor the cache knows them by heart:
//! - `fleet`: ids as fleets have them, 9 to 14 bytes for a device and 13 to 18 for a fence, no attributes;
//! - `uuid`: ids of 40 bytes (a letter, three digits and a UUID), no attributes;
//! - `laden`: the same with 200 bytes of attributes.

use super::Luck;
use fencepost::hlc::Hlc;
use fencepost::trigger::{Priority, State, Trigger};
use fencepost::units::{UnixMicros, UnixMs};
use fencepost::wire::Frame;

/// How many triggers there are of each.
pub const COUNT: usize = 4_096;
/// When all of it happens.
pub const NOW: UnixMs = UnixMs(1_772_000_000_000);
const SEED: u64 = 20_260_225;

/// A trigger that owns its ids.
pub struct Item {
    /// Who.
    pub device: String,
    /// Where.
    pub fence: String,
    state: State,
    event_time_ms: i64,
    attributes: Vec<u8>,
}

impl Item {
    /// As `submit` takes it.
    pub fn trigger(&self) -> Trigger<'_> {
        Trigger::new(&self.device, &self.fence, self.state, self.event_time_ms).with_attributes(&self.attributes)
    }

    /// The frame that the `at`-th trigger of a router becomes.
    pub fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            device_id: self.device.as_bytes(),
            fence_id: self.fence.as_bytes(),
            state: self.state,
            event_time_ms: self.event_time_ms,
            hlc: Hlc::new(NOW.0 as u64, at as u16),
            accepted: UnixMicros(NOW.0 * 1_000 + at as i64),
            priority: Priority::Normal,
            attributes: &self.attributes,
            router_id: b"router-eu-1",
            incarnation: 17,
            partition_seq: 1_000_000 + at as u64,
            salt: 0,
        }
    }
}

/// The first `count` of the items called `name`.
pub fn items(name: &str, count: usize) -> Vec<Item> {
    assert!(count <= COUNT && ["fleet", "uuid", "laden"].contains(&name), "there are no {count} of {name}");
    let mut luck = Luck(SEED);
    (0..count)
        .map(|at| {
            let mut uuid = |letter| {
                let (high, low) = (luck.bits(), luck.bits());
                format!(
                    "{letter}{at:03}{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    high >> 32,
                    high >> 16 & 0xffff,
                    high & 0xffff,
                    low >> 48,
                    low & 0xffff_ffff_ffff
                )
            };
            let (mut device, mut fence) = (uuid('d'), uuid('f'));
            device.truncate(40);
            fence.truncate(40);
            if name == "fleet" {
                device = format!("vehicle-{}", luck.bits() % 1_000_000);
                fence = format!("zone:{}:cell-{}", luck.bits() % 10, luck.bits() % 100_000);
            }
            let state = [State::Enter, State::Exit, State::Dwell][luck.bits() as usize % 3];
            let event_time_ms = NOW.0 - (luck.bits() % 60_000) as i64;
            let attributes = vec![0x5a; if name == "laden" { 200 } else { 0 }];
            Item { device, fence, state, event_time_ms, attributes }
        })
        .collect()
}

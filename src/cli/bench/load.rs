//! The load: triggers without end, no two with the same key, and the frames that they become.
//!
//! 5,000 devices take turns; each crosses the borders of 400 fences, one after the other, and when all pairs were there
//! once, a second has passed. Ids are as fleets have them: 9 bytes for a device, 9 to 11 for a fence; a frame is about
//! 85 bytes.

use crate::clock::{Clock, SystemClock};
use crate::hlc::Hlc;
use crate::partition::partition_of;
use crate::slab::{FRAME_BYTES_MAX, Slab, SlotId};
use crate::trigger::{Priority, State, Trigger};
use crate::units::{PartitionId, UnixMicros};
use crate::wire::{self, Frame};

/// The n-th trigger is of the device n modulo this.
pub(super) const DEVICES: u64 = 5_000;
const FENCES: u64 = 400;
const HOUR_MS: i64 = 3_600_000;

/// Where triggers come from. The same number is always the same trigger.
pub(super) struct Load {
    devices: Vec<String>,
    fences: Vec<String>,
    start_ms: i64,
}

/// The way back: from a frame to its number.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    start_ms: i64,
}

impl Numbers {
    /// `None`: it is not of this load.
    pub(super) fn of(self, frame: &Frame<'_>) -> Option<u64> {
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
        let device = number(frame.device_id.strip_prefix(b"veh-")?)?;
        let mut cell = frame.fence_id.strip_prefix(b"cell:")?.split(|byte| *byte == b':');
        let (row, column) = (number(cell.next()?)?, number(cell.next()?)?);
        let second = u64::try_from((frame.event_time_ms - self.start_ms).div_euclid(1_000)).ok()?;
        Some((second * FENCES + row * 20 + column) * DEVICES + device)
    }
}

impl Load {
    pub(super) fn new() -> Load {
        Load {
            devices: (0..DEVICES).map(|n| format!("veh-{n:05}")).collect(),
            fences: (0..FENCES).map(|n| format!("cell:{}:{}", n / 20, n % 20)).collect(),
            // Each second is two million triggers: an hour is more than any run.
            start_ms: SystemClock::new().now().wall.as_ms().0 - HOUR_MS,
        }
    }

    pub(super) fn trigger(&self, n: u64) -> Trigger<'_> {
        let (device, fence) = (n % DEVICES, n / DEVICES % FENCES);
        let second = (n / (DEVICES * FENCES)) as i64;
        let (device, fence) = (&self.devices[device as usize], &self.fences[fence as usize]);
        Trigger::new(device, fence, State::Enter, self.start_ms + second * 1_000)
    }

    /// The frame of a trigger, in a slot of its own; `None` when the slab is full.
    pub(super) fn encode(&self, n: u64, slab: &mut Slab) -> Option<SlotId> {
        let trigger = self.trigger(n);
        let now_ms = self.start_ms + HOUR_MS;
        let frame = Frame {
            device_id: trigger.device_id.as_bytes(),
            fence_id: trigger.fence_id.as_bytes(),
            state: trigger.state,
            event_time_ms: trigger.event_time_ms,
            hlc: Hlc::new(now_ms as u64 + n / 50, n as u16),
            accepted: UnixMicros(now_ms * 1_000 + n as i64 * 20),
            priority: Priority::Normal,
            attributes: b"",
            router_id: b"5f1c4a0e9d3b",
            incarnation: now_ms as u64,
            partition_seq: 1 + n / 12,
            salt: 0,
        };
        let mut place = [0; FRAME_BYTES_MAX];
        let len = wire::encode(&frame, &mut place);
        let slot = slab.take(len)?;
        slab.frame_mut(slot).copy_from_slice(&place[..len]);
        Some(slot)
    }

    /// Which number a frame of this load has.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers { start_ms: self.start_ms }
    }

    pub(super) fn partition(&self, n: u64, partitions: u32) -> PartitionId {
        partition_of(self.trigger(n).device_id.as_bytes(), partitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::SlabLimits;
    use std::collections::HashSet;

    #[test]
    fn no_two_triggers_have_the_same_key() {
        let load = Load::new();
        let span = 2 * DEVICES * FENCES;
        let keys: HashSet<_> = (0..span).step_by(997).map(|n| load.trigger(n).key().to_string()).collect();
        assert_eq!(keys.len() as u64, span.div_ceil(997));
    }
    #[test]
    fn a_frame_tells_its_number() {
        let load = Load::new();
        let mut slab = Slab::new(SlabLimits { slots: 1, frame_bytes: SlabLimits::FRAME_BYTES_MIN });
        for n in [0, 1, DEVICES - 1, DEVICES, DEVICES * FENCES - 1, DEVICES * FENCES, 3 * DEVICES * FENCES + 12_345] {
            let slot = load.encode(n, &mut slab).unwrap();
            let frame = wire::decode(slab.frame(slot)).unwrap().frame;
            assert_eq!(load.numbers().of(&frame), Some(n));
            assert_eq!(Load { start_ms: load.start_ms + 1_000_000_000, ..Load::new() }.numbers().of(&frame), None);
            slab.free(slot);
        }
    }
}

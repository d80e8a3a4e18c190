//! Nothing grows beyond its bound: slots, keys, lists, marks, settle windows and the disk.

use super::Check;
use crate::sim::host::Host;
use crate::sim::ledger::Ledger;

pub(super) struct Memory;

/// What a spill may have beside its limit while a segment is copied forward or begun.
const SEGMENTS_BESIDE: u64 = 4;

impl Check for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn between_turns(&mut self, _: &Ledger, host: &Host) -> Result<(), String> {
        let limits = &host.blueprint.limits;
        for page in &host.common.shard_pages {
            let (keys, in_flight) = (page.dedup_keys.get(), page.in_flight.get());
            if keys > limits.dedup_capacity_per_shard as u64 || in_flight > limits.slots_per_shard as u64 {
                return Err(format!("{keys} keys and {in_flight} in flight in a shard: {limits:?}"));
            }
        }
        if let (Some(spill), Some(keeper)) = (&host.spill_limits, &host.keeper)
            && keeper.waiting_marks() > spill.marks
        {
            return Err(format!("{} marks wait, and {} may", keeper.waiting_marks(), spill.marks));
        }
        // The lists of a shard are looked at in its own check, after each turn.
        if let Some(spill) = &host.spill_limits {
            let most = spill.limit_bytes + (8 << 20) + 2 * SEGMENTS_BESIDE * spill.segment_bytes;
            let used = host.disk.used();
            if used > most {
                return Err(format!("{used} bytes on disk, and {most} are allowed"));
            }
        }
        Ok(())
    }
}

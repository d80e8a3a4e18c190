//! The window: a repeat inside it is collapsed, and nothing else is. Times are those of the submits and of the records,
//! between which the router's own lie, so both rules are a little weaker than the window itself.

use super::Check;
use crate::sim::host::Host;
use crate::sim::ledger::{Event, Ledger};
use crate::sim::plan::Plan;
use crate::units::Nanos;
use std::collections::HashMap;

pub(super) struct Window {
    ttl: Nanos,
    /// Keys that one shard's window holds.
    capacity: u64,
    has_disk: bool,
}

impl Window {
    pub(super) fn new(plan: &Plan) -> Window {
        let config = &plan.config;
        let capacity = config.dedup.capacity / usize::from(config.engine.shards);
        Window { ttl: config.dedup.ttl.into(), capacity: capacity as u64, has_disk: plan.has_disk }
    }
}

impl Check for Window {
    fn name(&self) -> &'static str {
        "window"
    }

    /// A repeat of what was acknowledged less than a time to live after its acceptance, with fewer keys since than the
    /// window holds, has no record of its own.
    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        let Event::Landed { id, .. } = *event else { return Ok(()) };
        let entry = ledger.entry(id);
        let Some(first) = ledger.key(id).acked.filter(|first| *first != id) else { return Ok(()) };
        let original = ledger.entry(first);
        let is_within = ledger.now.since(original.first_at) < self.ttl;
        // What comes back from the disk comes into the window behind it, whenever it was accepted.
        let since = if original.is_old || self.has_disk { 0 } else { original.settled_before };
        let was_pushed_out = ledger.accepted - since >= self.capacity;
        let is_excused = entry.is_uncertain || entry.was_cold || original.was_cold;
        if is_within && !was_pushed_out && !is_excused && entry.landed == 0 {
            let age = ledger.now.since(original.first_at).0 / 1_000_000;
            return Err(format!(
                "submit {id} repeats {first}, accepted {age} ms ago, and is delivered too: {:?}",
                entry.draft
            ));
        }
        Ok(())
    }

    /// What has no record of its own repeats something that was in the window when it came.
    fn at_end(&mut self, ledger: &Ledger, host: &mut Host) -> Result<(), String> {
        let on_disk = host.ids_on_disk();
        let mut last_of_key = HashMap::<u32, Vec<(Nanos, Nanos)>>::new();
        for (id, entry) in ledger.accepted() {
            if entry.buried > 0 || on_disk.contains(&id) {
                // Nothing says when it became a dead letter.
                last_of_key.entry(entry.key).or_default().push((ledger.now, ledger.now));
            } else if entry.landed > 0 {
                let known_at = entry.told_at.min(ledger.now);
                last_of_key.entry(entry.key).or_default().push((known_at, entry.landed_at));
            }
        }
        for (id, entry) in ledger.accepted() {
            let has_end = entry.landed > 0 || entry.buried > 0 || entry.failed.is_some() || entry.is_dropped;
            if has_end || on_disk.contains(&id) || entry.accepted_at < ledger.began_at {
                continue;
            }
            let Some(others) = last_of_key.get(&entry.key) else { continue };
            // A start that came between gives a key its time anew.
            let is_near = |(known_at, landed_at): &(Nanos, Nanos)| {
                *known_at + self.ttl >= entry.accepted_at || *landed_at < ledger.began_at
            };
            let is_explained = others.iter().any(is_near);
            if !is_explained {
                return Err(format!(
                    "submit {id} was collapsed, and nothing like it was in the window: {:?}",
                    entry.draft
                ));
            }
        }
        Ok(())
    }
}

//! Nothing settled is lost: at the end each trigger that a watermark passed, and each other one that was accepted, is in
//! the topic, among the dead letters, or was given back; a repeat, if its like is.

use super::Check;
use crate::sim::host::Host;
use crate::sim::ledger::{Event, Ledger};

pub(super) struct Kept;

impl Check for Kept {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Landed { id, frame, partition, key, .. } => {
                let draft = &ledger.entry(id).draft;
                let is_whole = frame.device_id == draft.device
                    && frame.fence_id == draft.fence
                    && frame.state == draft.state
                    && frame.event_time_ms == draft.event_time_ms
                    && frame.priority == draft.priority
                    && frame.attributes == ledger.entry(id).attributes(id)
                    && key == draft.device.as_bytes();
                if !is_whole {
                    return Err(format!(
                        "the record of submit {id} in partition {partition} is not what was submitted"
                    ));
                }
                if !ledger.entry(id).was_accepted() {
                    return Err(format!("submit {id} is in the topic and was never accepted"));
                }
                Ok(())
            }
            Event::Buried { id } if !ledger.entry(id).was_accepted() => {
                Err(format!("submit {id} is a dead letter and was never accepted"))
            }
            _ => Ok(()),
        }
    }

    fn at_end(&mut self, ledger: &Ledger, host: &mut Host) -> Result<(), String> {
        // What the topic of dead letters has not taken is durable on disk, and may stay there.
        let on_disk = host.ids_on_disk();
        for (id, entry) in ledger.accepted() {
            let key = ledger.key(id);
            let is_there = key.landed_at.is_some() || key.is_buried || entry.failed.is_some() || on_disk.contains(&id);
            let is_like_there = || on_disk.iter().any(|other| ledger.entry(*other).key == entry.key);
            if !is_there && !entry.is_dropped && !is_like_there() {
                let settled = if entry.is_settled { "settled and is lost" } else { "accepted and is lost" };
                return Err(format!("submit {id} was {settled}: {:?}", entry.draft));
            }
        }
        Ok(())
    }
}

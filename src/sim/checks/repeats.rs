//! A submit has one record, and one dead letter at the most, and not both; but where an outcome was uncertain, or the
//! router died and the time to live of its key is over.

use super::Check;
use crate::sim::ledger::{Event, Ledger};
use crate::sim::plan::Plan;
use crate::units::Nanos;
use std::collections::HashMap;

pub(super) struct Repeats {
    ttl: Nanos,
    /// Keys that a window holds: one that was pushed out explains a repeat after a death.
    capacity: u64,
    /// When a record with a number landed last.
    numbers: HashMap<(u64, u32, u64), Nanos>,
}

impl Repeats {
    pub(super) fn new(plan: &Plan) -> Repeats {
        let config = &plan.config;
        let capacity = config.dedup.capacity / usize::from(config.engine.shards);
        Repeats { ttl: config.dedup.ttl.into(), capacity: capacity as u64, numbers: HashMap::new() }
    }
}

impl Check for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Landed { id, is_acked, partition, frame, .. } => {
                let entry = ledger.entry(id);
                let number = (frame.incarnation, partition, frame.partition_seq);
                let before = self.numbers.insert(number, ledger.landed_at());
                // A start reads what landed within a time to live before the router died, and knows it by its number.
                if let Some(before) = before.filter(|before| *before + self.ttl > ledger.died_at)
                    && !entry.is_uncertain
                {
                    return Err(format!(
                        "the record {number:?} of submit {id} is in the topic twice, since {before:?}"
                    ));
                }
                // What was found on disk is in the window from when it is drained, at the start at the earliest.
                let from = ledger.key(id).landed_at.map_or(Nanos(0), |at| at.min(ledger.began_at));
                let is_late = ledger.now.since(from) >= self.ttl;
                let is_pushed_out = ledger.accepted >= self.capacity;
                let is_excused = entry.is_uncertain || (entry.is_old && (is_late || is_pushed_out));
                if entry.landed > 0 && !is_excused {
                    return Err(format!("submit {id} is in the topic {} times: {:?}", entry.landed + 1, entry.draft));
                }
                if entry.failed.is_some() && !entry.is_uncertain && !entry.is_old {
                    return Err(format!("submit {id} was given back and is in the topic"));
                }
                if is_acked && entry.is_acked && !entry.is_old {
                    return Err(format!("submit {id} was acknowledged twice"));
                }
                Ok(())
            }
            Event::Buried { id } => {
                let entry = ledger.entry(id);
                let may_be_both = entry.is_old || (entry.is_uncertain && !entry.is_acked);
                if (entry.is_acked || entry.landed > 0) && !may_be_both {
                    return Err(format!("submit {id} is in the topic and a dead letter"));
                }
                if entry.buried > 0 && !entry.is_old {
                    return Err(format!("submit {id} is a dead letter twice"));
                }
                Ok(())
            }
            Event::GivenBack { id, .. } => {
                let entry = ledger.entry(id);
                if entry.failed.is_some() {
                    return Err(format!("submit {id} was given back twice"));
                }
                if entry.landed > 0 && !entry.is_uncertain && !entry.is_old {
                    return Err(format!("submit {id} is in the topic and was given back"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

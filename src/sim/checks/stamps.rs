//! Stamps: the hybrid clock strictly rises per device, across restarts and a wall clock that steps back; and a number
//! (incarnation, partition, partition_seq) is one submit's.

use super::Check;
use super::order::fell_behind;
use crate::sim::ledger::{Event, Ledger};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Stamps {
    /// By device: the submit whose record came last, and its stamp.
    last: HashMap<u32, (u64, u64)>,
    numbers: HashMap<(u64, u32, u64), u64>,
}

impl Check for Stamps {
    fn name(&self) -> &'static str {
        "stamps"
    }

    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        let Event::Landed { id, frame, partition, .. } = *event else { return Ok(()) };
        let number = (frame.incarnation, partition, frame.partition_seq);
        let owner = *self.numbers.entry(number).or_insert(id);
        if owner != id {
            return Err(format!("submits {owner} and {id} have the same number {number:?}"));
        }
        let entry = ledger.entry(id);
        let last = self.last.get(&entry.device).copied();
        // What was refused, and is found on disk after a death before it is a dead letter, comes with its old stamp behind
        // what its caller has sent again since.
        let is_late = entry.is_old && ledger.key(id).was_refused;
        if entry.landed > 0 || is_late || fell_behind(ledger, id, last.map(|(id, _)| id)) {
            return Ok(());
        }
        if let Some((before, stamp)) = last.filter(|(_, stamp)| *stamp >= frame.hlc) {
            return Err(format!(
                "the stamp of submit {id}, {:#x}, does not rise above {stamp:#x} of submit {before} of its device",
                frame.hlc
            ));
        }
        self.last.insert(entry.device, (id, frame.hlc));
        Ok(())
    }
}

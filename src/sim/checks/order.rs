//! In order per device: after repeats are collapsed, the records of a device are in the order of their submits.

use super::Check;
use crate::sim::ledger::{Event, Ledger};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Order {
    /// By device: the submit whose record came last.
    last: HashMap<u32, u64>,
}

/// Whether a first record says nothing about order. After a death a trigger that came back refused is in no line any more:
/// on its way to the dead letters it is sent again by its caller, behind what followed it. A repeat of such a key, and one
/// whose like landed before, is an exact repeat to a consumer.
pub(super) fn fell_behind(ledger: &Ledger, id: u64, last: Option<u64>) -> bool {
    let (entry, key) = (ledger.entry(id), ledger.key(id));
    entry.is_old && last.is_some_and(|last| last > id) && (key.was_refused || key.landed_at.is_some())
}

impl Check for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        let Event::Landed { id, .. } = *event else { return Ok(()) };
        let entry = ledger.entry(id);
        let last = self.last.get(&entry.device).copied();
        if entry.landed > 0 || fell_behind(ledger, id, last) {
            return Ok(());
        }
        if let Some(last) = last.filter(|last| *last > id) {
            let draft = &entry.draft;
            return Err(format!("{} is reordered: submit {id} is in the topic behind {last}: {draft:?}", draft.device));
        }
        self.last.insert(entry.device, id);
        Ok(())
    }
}

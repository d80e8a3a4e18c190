//! A watermark never passes what is not settled. That it never goes back is looked at where it is read, by the callers.

use super::Check;
use crate::sim::ledger::{Event, Ledger};

pub(super) struct Watermark;

impl Check for Watermark {
    fn name(&self) -> &'static str {
        "watermark"
    }

    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Passed { id } if !ledger.is_kept(id) => {
                let entry = ledger.entry(id);
                Err(format!("a watermark passed submit {id}, which nothing durable has: {:?}", entry.draft))
            }
            _ => Ok(()),
        }
    }
}

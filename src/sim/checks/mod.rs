//! The checks: each promise, looked at from outside and recomputed the slow, obvious way. A check sees each event before
//! the ledger enters it, and says what is wrong with it.

mod conservation;
mod kept;
mod memory;
mod order;
mod repeats;
mod stamps;
mod watermark;
mod window;

use super::host::Host;
use super::ledger::{Event, Ledger};
use super::plan::Plan;

/// One promise.
pub trait Check {
    /// Its name, which a violation begins with.
    fn name(&self) -> &'static str;

    /// Something happened.
    ///
    /// # Errors
    /// What is wrong with it.
    fn see(&mut self, ledger: &Ledger, event: &Event<'_>) -> Result<(), String> {
        let _ = (ledger, event);
        Ok(())
    }

    /// Between two turns.
    ///
    /// # Errors
    /// What does not hold.
    fn between_turns(&mut self, ledger: &Ledger, host: &Host) -> Result<(), String> {
        let _ = (ledger, host);
        Ok(())
    }

    /// Everything has settled, and nothing moves any more.
    ///
    /// # Errors
    /// What does not hold.
    fn at_end(&mut self, ledger: &Ledger, host: &mut Host) -> Result<(), String> {
        let _ = (ledger, host);
        Ok(())
    }
}

/// All of them, for a run.
#[must_use]
pub fn all(plan: &Plan) -> Vec<Box<dyn Check>> {
    vec![
        Box::new(kept::Kept),
        Box::new(watermark::Watermark),
        Box::new(order::Order::default()),
        Box::new(repeats::Repeats::new(plan)),
        Box::new(window::Window::new(plan)),
        Box::new(stamps::Stamps::default()),
        Box::new(conservation::Conservation),
        Box::new(memory::Memory),
    ]
}

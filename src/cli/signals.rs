//! Signals: the first `SIGTERM`, `SIGINT` or `SIGHUP` asks a command to drain, a second one ends it at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a person, or the system, asked the command to end.
#[derive(Clone)]
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Listens from now on; before, a signal ends the process as the system does it.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn listen() -> std::io::Result<Signals> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Registered first, so that it sees the flag as it was before: only a second signal ends the process.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Signals(asked))
    }

    /// Whether the command is to drain and end. `Relaxed`: set by the signal handler, no other memory hangs on it.
    #[must_use]
    pub fn asked_to_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

//! Signals: the first `SIGTERM`, `SIGINT` or `SIGHUP` asks a command to drain, a second one ends it at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;
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

    /// As [`Signals::listen`], and a second signal does `last_act` before it ends the process.
    ///
    /// # Errors
    /// When the system refuses the handlers, or the thread that waits for them.
    pub fn listen_with(last_act: impl Fn() + Send + 'static) -> std::io::Result<Signals> {
        let asked = Arc::new(AtomicBool::new(false));
        let mut signals = Incoming::new([SIGINT, SIGTERM, SIGHUP])?;
        let flag = Arc::clone(&asked);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in &mut signals {
                // Relaxed: as in `asked_to_stop`.
                if flag.swap(true, Ordering::Relaxed) {
                    last_act();
                    signal_hook::low_level::exit(128 + signal);
                }
            }
        })?;
        Ok(Signals(asked))
    }

    /// Whether the command is to drain and end. `Relaxed`: set by the signal handler, no other memory hangs on it.
    #[must_use]
    pub fn asked_to_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

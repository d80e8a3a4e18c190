//! What a measurement is given besides its options: whether somebody wants it to end, where its progress goes, and what has
//! to be undone should it be ended by force.

use crate::cli::CliError;
use crate::cli::scratch::Scratch;
use crate::cli::signals::Signals;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of progress.
const TOLD_EVERY: Duration = Duration::from_secs(1);

type Undo = Box<dyn Fn() + Send>;

/// See the [module](self).
pub(super) struct Context {
    signals: Signals,
    last_acts: Arc<Mutex<Vec<Undo>>>,
}

/// Says now and then how far something is.
pub(super) struct Progress {
    told: Instant,
}

impl Context {
    /// Listens to signals from now on: the first one asks the measurement to end, a second one ends the process.
    pub(super) fn listen() -> Result<Context, CliError> {
        let last_acts: Arc<Mutex<Vec<Undo>>> = Arc::default();
        let acts = Arc::clone(&last_acts);
        let act = move || acts.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|act| act());
        let refused = |error| CliError::Unavailable(format!("signals cannot be listened for: {error}"));
        Ok(Context { signals: Signals::listen_with(act).map_err(refused)?, last_acts })
    }

    /// Whether somebody asked for the end: what was done up to now is reported then.
    pub(super) fn is_stopped(&self) -> bool {
        self.signals.asked_to_stop()
    }

    /// Is done before a second signal ends the process.
    pub(super) fn at_forced_end(&self, act: impl Fn() + Send + 'static) {
        self.last_acts.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(act));
    }

    /// A directory that goes when it is dropped, also by force.
    pub(super) fn scratch(&self) -> Result<Scratch, CliError> {
        let scratch = Scratch::make("bench")?;
        self.at_forced_end(scratch.remover());
        Ok(scratch)
    }
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { told: Instant::now() }
    }

    /// Calls for the line once a second.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            tell!("  {}", line());
        }
    }
}

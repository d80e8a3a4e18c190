//! Signals: the first `SIGTERM`, `SIGINT` or `SIGHUP` asks a command to drain, a second one ends it at once. A command that
//! has something to reload takes `SIGHUP` as the wish for that instead.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a person, or the system, asked the command to end, or to reload.
#[derive(Clone)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Option<Reload>,
}

/// `SIGHUP` as the wish to reload.
#[derive(Clone)]
pub struct Reload(Arc<AtomicBool>);

impl Reload {
    /// Listens from now on: a `SIGHUP` ends nothing any more.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub fn listen() -> std::io::Result<Reload> {
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&asked))?;
        Ok(Reload(asked))
    }
}

/// A file that may not grow any further (`ulimit -f`) is an error of the disk from now on, and no reason to die.
///
/// # Errors
/// When the system refuses the handler.
pub fn outlive_file_limits() -> std::io::Result<()> {
    signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

impl Signals {
    /// Listens from now on; before, a signal ends the process as the system does it.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn listen() -> std::io::Result<Signals> {
        Signals::listen_to(&[SIGINT, SIGTERM, SIGHUP], None)
    }

    /// As [`Signals::listen`], for a command that reloads at `SIGHUP`.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn listen_beside(reload: Reload) -> std::io::Result<Signals> {
        Signals::listen_to(&[SIGINT, SIGTERM], Some(reload))
    }

    fn listen_to(ends: &[i32], reload: Option<Reload>) -> std::io::Result<Signals> {
        let stop = Arc::new(AtomicBool::new(false));
        for &signal in ends {
            // Registered first, so that it sees the flag as it was before: only a second signal ends the process.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Signals { stop, reload })
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
        Ok(Signals { stop: asked, reload: None })
    }

    /// Whether the command is to drain and end. `Relaxed`: set by the signal handler, no other memory hangs on it.
    #[must_use]
    pub fn asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the command is to reload: once for a signal, or for several that came since the last question. `Relaxed`: as
    /// above; what is reloaded is read after the answer, whatever its order to other memory.
    #[must_use]
    pub fn asked_to_reload(&self) -> bool {
        // Asked often, and seldom so: the plain look first leaves the line where it is.
        let asked = self.reload.as_ref().map(|reload| &*reload.0);
        asked.is_some_and(|asked| asked.load(Ordering::Relaxed) && asked.swap(false, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_asks_once_to_reload_and_never_to_stop() {
        let signals = Signals::listen_beside(Reload::listen().unwrap()).unwrap();
        assert!(!signals.asked_to_reload());
        for _ in 0..2 {
            signal_hook::low_level::raise(SIGHUP).unwrap();
        }
        assert_eq!([signals.asked_to_reload(), signals.asked_to_reload()], [true, false]);
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(signals.asked_to_reload() && !signals.asked_to_stop());
    }
}

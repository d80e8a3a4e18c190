//! A clock that stands still until it is told otherwise. Both of its hands move together, unless the wall steps alone.

use crate::clock::Clock;
use crate::units::{Nanos, Now, UnixMicros};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The wall clock's date when a test begins, in Unix microseconds.
pub const BEGIN_US: i64 = 1_772_000_000_000_000;

/// All clones show the same time. `Relaxed` throughout: the hands are numbers for themselves, no memory hangs on them.
#[derive(Clone)]
pub struct SimClock(Arc<Hands>);

struct Hands {
    mono: AtomicU64,
    wall: AtomicI64,
}

impl SimClock {
    /// It shows [`BEGIN_US`].
    #[must_use]
    pub fn new() -> SimClock {
        // Not zero: an instant that was never set shall not look like "now".
        SimClock(Arc::new(Hands { mono: AtomicU64::new(1_000_000_000), wall: AtomicI64::new(BEGIN_US) }))
    }

    /// Time passes.
    pub fn advance(&self, span: Nanos) {
        self.0.mono.fetch_add(span.0, Ordering::Relaxed);
        self.0.wall.fetch_add((span.0 / 1_000) as i64, Ordering::Relaxed);
    }

    /// Milliseconds pass.
    pub fn advance_ms(&self, ms: u64) {
        self.advance(Nanos::from_millis(ms));
    }

    /// Somebody sets the wall clock; no time passes.
    pub fn step_wall(&self, us: i64) {
        self.0.wall.fetch_add(us, Ordering::Relaxed);
    }

    /// The wall's hand, in Unix milliseconds.
    #[must_use]
    pub fn wall_ms(&self) -> i64 {
        self.now().wall.as_ms().0
    }
}

impl Default for SimClock {
    fn default() -> SimClock {
        SimClock::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        Now { mono: self.mono(), wall: UnixMicros(self.0.wall.load(Ordering::Relaxed)) }
    }

    fn mono(&self) -> Nanos {
        Nanos(self.0.mono.load(Ordering::Relaxed))
    }
}

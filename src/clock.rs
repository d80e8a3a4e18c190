//! Time as an argument. `SystemClock` is the only caller of the system's clocks in the core; everything else is handed
//! a [`Now`], so the simulator can step, jump and freeze it.
//!
//! Cost: one read of both clocks is two vDSO calls (about 40 ns here); the shard pays it once a turn.

use crate::units::{Nanos, Now, UnixMicros};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where a shard and an ingress get their time from.
pub trait Clock: Clone + Send + 'static {
    /// Both clocks.
    fn now(&self) -> Now;

    /// The monotonic clock alone, for spans.
    fn mono(&self) -> Nanos {
        self.now().mono
    }
}

/// The system's clocks. All clones count from the same origin, so their instants compare across threads.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that counts from now on.
    #[must_use]
    pub fn new() -> SystemClock {
        SystemClock { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
        };
        Now { mono: self.mono(), wall: UnixMicros(wall) }
    }

    fn mono(&self) -> Nanos {
        Nanos::from(self.origin.elapsed())
    }
}

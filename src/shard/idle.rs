//! What a shard does in a turn without work.
//!
//! `park` naps first: a nap is short and needs no wake-up call, so a submit under load never pays for one. Only after
//! 20 ms without work does the shard park, and then the first submit wakes it.

use super::shared::Waker;
use crate::sync::{hint, thread};
use crate::units::Nanos;
use std::time::Duration;

/// How a shard waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Never sleeps: lowest latency, one core.
    Spin,
    /// Gives the core away when another thread wants it.
    Yield,
    /// Sleeps: naps while traffic is recent, then parks.
    Park,
}

/// Turns without work before the first nap.
const SPINS: u32 = 4;
/// One nap. With the kernel's timer slack of 50 us it lasts about 150 us.
const NAP: Duration = Duration::from_micros(100);
/// Without work for this long, a shard parks instead of napping.
const QUIET: Nanos = Nanos::from_millis(20);
/// The longest sleep: bounds what a missed wake-up costs, and how late a report is seen.
pub const PARK_MAX: Duration = Duration::from_millis(5);

/// The state of waiting.
pub struct Idle {
    strategy: Strategy,
    empty_turns: u32,
    last_work: Nanos,
}

impl Idle {
    /// Not idle yet.
    #[must_use]
    pub fn new(strategy: Strategy) -> Idle {
        Idle { strategy, empty_turns: 0, last_work: Nanos(0) }
    }

    /// There was work in the turn that began at `now`.
    pub fn worked(&mut self, now: Nanos) {
        self.empty_turns = 0;
        self.last_work = now;
    }

    /// There was none. `is_waiting`: reports are due, so the sleep stays short. `has_come`: whether something has come in
    /// since; asked once everybody may see that the shard sleeps, so that little is left to miss.
    pub fn wait(&mut self, now: Nanos, is_waiting: bool, waker: &Waker, has_come: impl FnOnce() -> bool) {
        self.empty_turns = self.empty_turns.saturating_add(1);
        match self.strategy {
            Strategy::Spin => hint::spin_loop(),
            Strategy::Yield if self.empty_turns < SPINS => hint::spin_loop(),
            Strategy::Yield => thread::yield_now(),
            Strategy::Park if self.empty_turns < SPINS => hint::spin_loop(),
            Strategy::Park if is_waiting || now.since(self.last_work) < QUIET => thread::sleep(NAP),
            Strategy::Park => {
                waker.set_parked(true);
                if !has_come() {
                    thread::park_timeout(PARK_MAX);
                }
                waker.set_parked(false);
            }
        }
    }
}

//! The load: one thread per ingress, each with its part of the fleet, at intended times.
//!
//! The load is open: trigger n is due at `began` + n / rate whatever became of those before it, so a stall of the router
//! neither slows the load nor hides itself. What is due is submitted at once, then the thread sleeps for a millisecond.
//! A refused trigger is let go, as an evaluator without a buffer of its own would: it shows up as shed.

use crate::ingress::{Ingress, Refused};
use crate::sim::fleet::Fleet;
use crate::verify::Ledger;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at what is due.
const PAUSE: Duration = Duration::from_millis(1);
/// At most so many triggers between two looks at the stop flag.
const BATCH_MAX: u64 = 4_096;

/// What all threads of the load have in common.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When the first trigger is due.
    pub began: Instant,
    /// Triggers a second, over all ingresses.
    pub rate: u64,
    /// All triggers, over all ingresses.
    pub total: u64,
    /// How many ingresses share them: trigger n belongs to ingress n % `ingresses`.
    pub ingresses: u64,
}

/// What one thread did.
pub struct Driven {
    /// To be asked, once the router is drained, whether everything is settled.
    pub ingress: Ingress,
    /// What was accepted, in order.
    pub ledger: Ledger,
    /// Triggers offered to `submit`.
    pub offered: u64,
    /// Of those: the same trigger again, as the fleet made it.
    pub repeats: u64,
    /// The furthest that a look at what is due came behind its time.
    pub behind_max: Duration,
    /// When the last trigger was offered.
    pub ended: Instant,
}

impl Pace {
    /// How many triggers ingress `index` offers in all.
    #[must_use]
    pub const fn total_of(&self, index: u64) -> u64 {
        (self.total + self.ingresses - 1 - index) / self.ingresses
    }

    /// How many of them are due `elapsed` after the beginning.
    fn due(&self, index: u64, elapsed: Duration) -> u64 {
        let all = (elapsed.as_nanos() * u128::from(self.rate) / 1_000_000_000) as u64 + 1;
        Pace { total: all.min(self.total), ..*self }.total_of(index)
    }

    /// When trigger `nth` of an ingress is due.
    fn due_at(&self, index: u64, nth: u64) -> Instant {
        let nanos = u128::from(nth * self.ingresses + index) * 1_000_000_000 / u128::from(self.rate);
        self.began + Duration::from_nanos(nanos as u64)
    }
}

/// Drives ingress `index` until all its triggers were offered, or `stop` is set, or the router takes no more.
#[must_use]
pub fn drive(pace: Pace, index: u64, mut fleet: Fleet, mut ingress: Ingress, stop: &AtomicBool) -> Driven {
    let total = pace.total_of(index);
    let mut ledger = Ledger::with_capacity(total as usize, fleet.devices() as usize);
    let (mut offered, mut repeats, mut behind_max, mut is_closed) = (0, 0, Duration::ZERO, false);
    // Relaxed: a flag, no other memory hangs on it.
    while offered < total && !is_closed && !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let due = pace.due(index, now.saturating_duration_since(pace.began));
        if now < pace.began || due <= offered {
            let next = pace.due_at(index, offered).saturating_duration_since(now);
            std::thread::sleep(next.clamp(PAUSE, Duration::from_millis(50)));
            continue;
        }
        behind_max = behind_max.max(now.saturating_duration_since(pace.due_at(index, offered)));
        let until = due.min(offered + BATCH_MAX);
        while offered < until && !is_closed {
            let sample = fleet.next();
            offered += 1;
            repeats += u64::from(sample.repeat);
            // One by one, as evaluators do, and since only single submits are timed (the stage `emit`).
            match ingress.submit(&sample.trigger) {
                Ok(_) => ledger.accept(&sample.trigger),
                // The router counts both.
                Err(Refused::Shed(_) | Refused::Rejected(_)) => {}
                Err(Refused::Closed(_)) => is_closed = true,
            }
        }
    }
    Driven { ingress, ledger, offered, repeats, behind_max, ended: Instant::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ingresses_together_offer_each_trigger_once_and_each_at_its_time() {
        for (rate, total, ingresses) in [(50_000, 500_000, 2), (1, 3, 2), (999, 1_000, 7), (3, 2, 5)] {
            let pace = Pace { began: Instant::now(), rate, total, ingresses };
            assert_eq!((0..ingresses).map(|index| pace.total_of(index)).sum::<u64>(), total);
            for index in 0..ingresses {
                let mut before = Duration::ZERO;
                for nth in 0..pace.total_of(index) {
                    let at = pace.due_at(index, nth) - pace.began + Duration::from_nanos(1);
                    assert_eq!(pace.due(index, at), nth + 1, "trigger {nth} of ingress {index} at {rate}/s");
                    assert!(at >= before);
                    before = at;
                }
                assert_eq!(pace.due(index, Duration::from_secs(1 << 30)), pace.total_of(index));
            }
        }
    }
}

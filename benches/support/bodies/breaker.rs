//! What the breakers of 24 partitions cost: while all is well, and through outages.

use super::{Body, Size};
use fencepost::breaker::{Breaker, BreakerLimits, Cause, Permit, State};
use fencepost::units::Nanos;
use std::hint::black_box;

const PARTITIONS: usize = 24;
const LIMITS: BreakerLimits =
    BreakerLimits { failures: 5, grace: Nanos::from_millis(1_000), reset: Nanos::from_millis(5_000) };

/// Frames, or outages, of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(PARTITIONS as u64 * 4, PARTITIONS as u64 * 170)
}

/// A frame asked for, sent and acknowledged, and a tick.
pub struct Closed {
    breakers: [Breaker; PARTITIONS],
    count: u64,
    now: Nanos,
    flowed: u64,
    changed: u64,
    runs: u64,
}

impl Closed {
    pub fn new(size: Size) -> Closed {
        let breakers = [Breaker::CLOSED; PARTITIONS];
        Closed { breakers, count: operations(size), now: Nanos(0), flowed: 0, changed: 0, runs: 0 }
    }
}

impl Body for Closed {
    fn run(&mut self) {
        for nth in 0..self.count {
            let breaker = &mut self.breakers[nth as usize % PARTITIONS];
            self.now = self.now + Nanos(20_000);
            self.flowed += u64::from(black_box(&*breaker).permit(black_box(0)) == Permit::Flow);
            breaker.first_sent(self.now);
            self.changed += u64::from(breaker.acked(black_box(self.now)));
            self.changed += u64::from(breaker.tick(black_box(self.now), black_box(1), &LIMITS));
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        assert_eq!((self.flowed, self.changed), (self.runs * self.count, 0), "all flowed, nothing opened");
        assert!(self.breakers.iter().all(Breaker::is_closed));
    }
}

/// An outage: failures until it opens, ticks until it lets a probe through, the probe's acknowledgement.
pub struct Outage {
    breakers: [Breaker; PARTITIONS],
    count: u64,
    now: Nanos,
    opened: u64,
    probed: u64,
    closed: u64,
    runs: u64,
}

impl Outage {
    pub fn new(size: Size) -> Outage {
        let breakers = [Breaker::CLOSED; PARTITIONS];
        Outage { breakers, count: operations(size), now: Nanos(0), opened: 0, probed: 0, closed: 0, runs: 0 }
    }
}

impl Body for Outage {
    fn run(&mut self) {
        for nth in 0..self.count {
            let breaker = &mut self.breakers[nth as usize % PARTITIONS];
            self.now = self.now + Nanos(20_000);
            for _ in 0..LIMITS.failures {
                self.opened += u64::from(breaker.failed(black_box(self.now), &LIMITS));
            }
            debug_assert_eq!(breaker.state(), State::Open(Cause::Failures));
            breaker.tick(black_box(self.now), 0, &LIMITS);
            self.now = self.now + LIMITS.reset;
            breaker.tick(black_box(self.now), 0, &LIMITS);
            self.probed += u64::from(black_box(&*breaker).permit(black_box(0)) == Permit::Probe);
            self.closed += u64::from(breaker.acked(black_box(self.now)));
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        let all = self.runs * self.count;
        assert_eq!((self.opened, self.probed, self.closed), (all, all, all), "each opened, probed and closed once");
        assert!(self.breakers.iter().all(Breaker::is_closed));
    }
}

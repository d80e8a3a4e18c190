//! Whether a client library still does its work: frames in flight, a connection that is up, and no report for far longer
//! than any request may take. Then its handle is replaced. A broker that is away is no such case: there is no connection.
//!
//! Pure: it is told what happens, and when.

use crate::units::Nanos;

/// A connection must have been up for so long, as seen by the client itself, before silence counts against the client.
const UP_MIN: Nanos = Nanos::from_millis(1_000);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    limit: Nanos,
    /// Since when there was no report with frames in flight.
    silent_since: Nanos,
    /// Since when the connections were up, as far as was asked.
    up_since: Option<Nanos>,
}

impl Liveness {
    /// Silence of `limit` is too long: three times what a request may take.
    #[must_use]
    pub const fn new(limit: Nanos) -> Liveness {
        Liveness { limit, silent_since: Nanos(0), up_since: None }
    }

    /// Reports came, or nothing is in flight: all is well.
    pub fn is_well(&mut self, now: Nanos) {
        (self.silent_since, self.up_since) = (now, None);
    }

    /// Whether to ask for the state of the connections: half of the limit is over.
    #[must_use]
    pub fn is_suspicious(&self, now: Nanos) -> bool {
        now.since(self.silent_since) >= Nanos(self.limit.0 / 2)
    }

    /// What the client says of its connections.
    pub fn connected(&mut self, is_up: bool, now: Nanos) {
        self.up_since = if is_up { Some(self.up_since.unwrap_or(now)) } else { None };
    }

    /// Whether it does its work no more.
    #[must_use]
    pub fn is_dead(&self, now: Nanos) -> bool {
        now.since(self.silent_since) >= self.limit && self.up_since.is_some_and(|since| now.since(since) >= UP_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn p6_silence_with_a_healthy_connection_is_death_and_without_one_it_is_not() {
        let mut liveness = Liveness::new(ms(15_000));
        liveness.is_well(ms(1_000));
        assert!(!liveness.is_suspicious(ms(8_499)) && liveness.is_suspicious(ms(8_500)));
        // The broker is away: however long it takes, that is not the client's fault.
        liveness.connected(false, ms(9_000));
        assert!(!liveness.is_dead(ms(1_000_000)));
        // It is back, and the client says nothing all the same.
        liveness.connected(true, ms(20_000));
        assert!(!liveness.is_dead(ms(20_999)));
        liveness.connected(true, ms(20_500));
        assert!(liveness.is_dead(ms(21_000)));
        // A connection that drops and comes back begins anew.
        liveness.connected(false, ms(21_100));
        liveness.connected(true, ms(21_200));
        assert!(!liveness.is_dead(ms(22_199)) && liveness.is_dead(ms(22_200)));
        liveness.is_well(ms(22_300));
        assert!(!liveness.is_dead(ms(23_000)) && !liveness.is_suspicious(ms(23_000)));
    }

    #[test]
    fn a_connection_that_is_up_is_not_enough_before_the_limit() {
        let mut liveness = Liveness::new(ms(15_000));
        liveness.is_well(ms(0));
        liveness.connected(true, ms(8_000));
        assert!(!liveness.is_dead(ms(14_999)) && liveness.is_dead(ms(15_000)));
    }
}

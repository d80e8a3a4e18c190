//! Waiting until what lies on disk is in the topic: what `route` does at its source's end, and `spill replay` all along.
//!
//! The wait goes on as long as the number on disk falls. A broker that is away for good must not keep a command for ever,
//! and a spill of a day must not be given up because it takes an hour.

use super::say;
use super::signals::Signals;
use super::table::grouped;
use crate::engine::{Counts, Router};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Between two looks at the counters.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// From here on a log is told, and then again in that interval.
const LOG_AFTER: Duration = Duration::from_secs(2);
const LOG_INTERVAL: Duration = Duration::from_secs(10);
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
/// Characters of the bar.
const BAR: u64 = 30;

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// Nothing is on disk any more.
    All,
    /// As much came back as was asked for.
    Enough,
    /// A person, or the system, asked to stop.
    BySignal,
    /// The number has not fallen for so long that nobody knows whether it will.
    Stalled,
    /// The router failed.
    Broken,
}

/// Waits until nothing is on disk, showing how far it is. `most`: enough when so many records have come back.
pub(super) fn wait(router: &Router, signals: &Signals, patience: Duration, most: Option<u64>) -> Drained {
    let mut meter = Meter::new(router.counts().in_spill);
    let (mut least, mut fell) = (u64::MAX, Instant::now());
    let drained = loop {
        let counts = router.counts();
        if let Some(drained) = ended(&counts, router, signals, most) {
            break drained;
        }
        if counts.in_spill < least {
            (least, fell) = (counts.in_spill, Instant::now());
        } else if fell.elapsed() >= patience {
            break Drained::Stalled;
        }
        meter.show(counts.in_spill);
        std::thread::sleep(LOOK_INTERVAL);
    };
    meter.clear();
    drained
}

fn ended(counts: &Counts, router: &Router, signals: &Signals, most: Option<u64>) -> Option<Drained> {
    let cases = [
        (counts.in_spill == 0, Drained::All),
        (!router.is_healthy(), Drained::Broken),
        (signals.asked_to_stop(), Drained::BySignal),
        (most.is_some_and(|most| counts.drained >= most), Drained::Enough),
    ];
    cases.into_iter().find(|(is_so, _)| *is_so).map(|(_, drained)| drained)
}

/// How far it is: a bar on a terminal, a line now and then in a log.
struct Meter {
    total: u64,
    is_terminal: bool,
    shown: Instant,
    shown_left: u64,
    interval: Duration,
    has_bar: bool,
}

impl Meter {
    fn new(total: u64) -> Meter {
        let is_terminal = stderr().is_terminal();
        let interval = if is_terminal { TERMINAL_INTERVAL } else { LOG_AFTER };
        Meter { total, is_terminal, shown: Instant::now(), shown_left: total, interval, has_bar: false }
    }

    fn show(&mut self, left: u64) {
        let since = self.shown.elapsed();
        if since < self.interval {
            return;
        }
        // What is settled by the disk meanwhile makes it more.
        self.total = self.total.max(left);
        let rate = self.shown_left.saturating_sub(left) as f64 / since.as_secs_f64();
        (self.shown, self.shown_left) = (Instant::now(), left);
        if self.is_terminal {
            self.has_bar = true;
            say::err(format_args!("\r{} {}\x1b[K", bar(self.total, left), text(self.total, left, rate)));
        } else {
            self.interval = LOG_INTERVAL;
            tell!("{}", text(self.total, left, rate));
        }
    }

    fn clear(&self) {
        if self.has_bar {
            say::err(format_args!("\r\x1b[K"));
        }
    }
}

fn text(total: u64, left: u64, rate: f64) -> String {
    let (done, share) = (total - left, (total - left) * 100 / total.max(1));
    format!("drained {} of {}, {share} %, {}/s", grouped(done), grouped(total), grouped(rate as u64))
}

fn bar(total: u64, left: u64) -> String {
    let filled = (total - left) * BAR / total.max(1);
    format!("[{}{}]", "#".repeat(filled as usize), ".".repeat((BAR - filled) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_empty_at_first_and_full_at_the_end() {
        assert_eq!(bar(1_000, 1_000), format!("[{}]", ".".repeat(30)));
        assert_eq!(bar(1_000, 0), format!("[{}]", "#".repeat(30)));
        assert_eq!(bar(3, 2), format!("[{}{}]", "#".repeat(10), ".".repeat(20)));
        assert_eq!(bar(0, 0), format!("[{}]", ".".repeat(30)));
        assert_eq!(text(30_000, 17_655, 8_400.9), "drained 12,345 of 30,000, 41 %, 8,400/s");
    }
}

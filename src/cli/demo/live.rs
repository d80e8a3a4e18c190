//! The live line: rewritten in place on a terminal, a line per second elsewhere. It goes to standard error, so that
//! standard output holds the result alone.

use crate::cli::table::{grouped, right, span};
use crate::units::Nanos;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How much shorter than its interval the time since the last line may be: timers are late as often as early.
const SLACK: Duration = Duration::from_millis(5);

/// What the line says.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since the load began.
    pub elapsed: Duration,
    /// Accepted up to now.
    pub accepted: u64,
    /// Acknowledged by the brokers.
    pub delivered: u64,
    /// On disk, waiting for their partition.
    pub in_spill: u64,
    /// Refused for pressure.
    pub shed: u64,
    /// In the rings and the shards.
    pub in_flight: u64,
    /// A word on what happens just now; empty for nothing.
    pub remark: &'static str,
}

/// The line and where it goes.
pub struct Live {
    is_in_place: bool,
    interval: Duration,
    printed: Instant,
    before: (Duration, u64),
}

impl Live {
    /// Nothing printed yet.
    #[must_use]
    pub fn new() -> Live {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        let is_in_place = stderr().is_terminal() && !is_dumb;
        let interval = Duration::from_millis(if is_in_place { 250 } else { 1_000 });
        Live { is_in_place, interval, printed: Instant::now(), before: (Duration::ZERO, 0) }
    }

    /// The load begins now: the next line is due an interval later.
    pub fn begin(&mut self) {
        self.printed = Instant::now();
    }

    /// Whether the next line is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.printed.elapsed() + SLACK >= self.interval
    }

    /// The counters; `p99` is that of submit to consumer since the last line.
    pub fn show(&mut self, moment: &Moment, p99: Option<Nanos>) {
        let (elapsed_before, accepted_before) = self.before;
        let seconds = moment.elapsed.saturating_sub(elapsed_before).as_secs_f64();
        let rate = if seconds > 0.0 { (moment.accepted - accepted_before) as f64 / seconds } else { 0.0 };
        self.before = (moment.elapsed, moment.accepted);
        self.say(&format_line(moment, rate as u64, p99));
    }

    /// Any text in place of the line.
    pub fn say(&mut self, text: &str) {
        self.printed = Instant::now();
        if self.is_in_place {
            // Without automatic wrapping a narrow terminal cuts the line off, instead of filling up with its remains.
            print(&format!("\r\x1b[?7l{text}\x1b[K\x1b[?7h"));
        } else {
            print(&format!("{text}\n"));
        }
    }

    /// Leaves the place of the line to what follows.
    pub fn clear(&mut self) {
        if self.is_in_place {
            print("\r\x1b[K");
        }
    }
}

fn format_line(moment: &Moment, rate: u64, p99: Option<Nanos>) -> String {
    let figure = |number: u64, width| right(&grouped(number), width);
    let p99 = match (moment.shed, p99) {
        (0, Some(p99)) => format!("P99 {}", right(&span(p99), 7)),
        (0, None) => format!("P99 {}", right("-", 7)),
        // It is rare, and then says more than a percentile.
        (shed, _) => format!("shed {}", grouped(shed)),
    };
    // What matters most comes first: a narrow terminal cuts off the rest.
    let line = format!(
        "{:5.1} s {}/s {}  delivered {}  in flight {}  in spill {} {}",
        moment.elapsed.as_secs_f64(),
        figure(rate, 6),
        right(&p99, 11),
        figure(moment.delivered, 9),
        figure(moment.in_flight, 7),
        figure(moment.in_spill, 7),
        moment.remark,
    );
    line.trim_end().to_owned()
}

fn print(text: &str) {
    let mut out = stderr().lock();
    // Nobody reads it: then it need not be there, and the result still goes its own way.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_100_columns_for_100_seconds_at_50_000_a_second() {
        let moment = Moment {
            elapsed: Duration::from_secs(100),
            accepted: 5_000_000,
            delivered: 4_750_000,
            in_spill: 150_000,
            shed: 0,
            in_flight: 131_072,
            remark: "catch-up",
        };
        let line = format_line(&moment, 50_000, Some(Nanos::from_millis(299)));
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        assert!(line.contains("delivered 4,750,000") && line.contains("in spill 150,000"), "{line}");
        assert!(line.contains("P99  299 ms") && line.ends_with("catch-up"), "{line}");
        let line = format_line(&Moment { shed: 4_000_000, ..moment }, 50_000, Some(Nanos::from_millis(299)));
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        assert!(line.contains("shed 4,000,000") && !line.contains("P99"), "{line}");
    }
}

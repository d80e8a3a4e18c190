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
    /// Collapsed repeats.
    pub deduplicated: u64,
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
    /// Columns of the text that stands there.
    standing: usize,
}

impl Live {
    /// Nothing printed yet.
    #[must_use]
    pub fn new() -> Live {
        let is_in_place = stderr().is_terminal();
        let interval = Duration::from_millis(if is_in_place { 250 } else { 1_000 });
        Live { is_in_place, interval, printed: Instant::now(), before: (Duration::ZERO, 0), standing: 0 }
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
        let columns = text.chars().count();
        let line = if self.is_in_place {
            // The last text may be longer.
            format!("\r{text}{}", " ".repeat(self.standing.saturating_sub(columns)))
        } else {
            format!("{text}\n")
        };
        self.standing = columns;
        print(&line);
    }

    /// Leaves the place of the line to what follows.
    pub fn clear(&mut self) {
        if self.is_in_place {
            print(&format!("\r{}\r", " ".repeat(self.standing)));
        }
        self.standing = 0;
    }
}

fn format_line(moment: &Moment, rate: u64, p99: Option<Nanos>) -> String {
    let figure = |number: u64, width| right(&grouped(number), width);
    let p99 = p99.map_or_else(|| "-".to_owned(), span);
    let line = format!(
        "{:5.1} s {}/s  delivered {}  dedup {}  shed {}  in flight {}  P99 {}  {}",
        moment.elapsed.as_secs_f64(),
        figure(rate, 7),
        figure(moment.delivered, 9),
        figure(moment.deduplicated, 7),
        figure(moment.shed, 5),
        figure(moment.in_flight, 6),
        right(&p99, 7),
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
    fn the_line_fits_100_columns_also_late_in_a_large_run() {
        let moment = Moment {
            elapsed: Duration::from_secs(599),
            accepted: 0,
            delivered: 19_999_999,
            deduplicated: 999_999,
            shed: 99_999,
            in_flight: 131_072,
            remark: "FROZEN",
        };
        let line = format_line(&moment, 1_000_000, Some(Nanos::from_millis(299)));
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        assert!(line.contains("delivered 19,999,999") && line.ends_with("FROZEN"), "{line}");
    }
}

//! What a person sees on standard error while a source is routed: the lines that are refused, and how far it is.

use super::pump::Tally;
use crate::cli::say;
use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Refused lines that are named within a second; more are counted.
const NAMED_PER_SECOND: u32 = 50;
const ON_A_TERMINAL: Duration = Duration::from_millis(200);
const IN_A_LOG: Duration = Duration::from_secs(10);

/// See the [module](self).
pub(super) struct Progress<'a> {
    tally: &'a Tally,
    /// Bytes of the whole source, if known, and where reading began.
    size: Option<u64>,
    from: u64,
    is_terminal: bool,
    began: Instant,
    shown: Instant,
    shown_lines: u64,
    /// The second in which lines are named just now, how many were, and how many were not.
    second: Instant,
    named: u32,
    unnamed: u64,
}

impl<'a> Progress<'a> {
    pub(super) fn new(tally: &'a Tally, size: Option<u64>, from: u64) -> Progress<'a> {
        let (now, is_terminal) = (Instant::now(), stderr().is_terminal());
        Progress {
            tally,
            size,
            from,
            is_terminal,
            began: now,
            shown: now,
            shown_lines: 0,
            second: now,
            named: 0,
            unnamed: 0,
        }
    }

    /// Names a line that is not delivered.
    pub(super) fn refused(&mut self, line: u64, code: &str, why: &dyn Display) {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.tell_unnamed();
            (self.second, self.named) = (Instant::now(), 0);
        }
        if self.named >= NAMED_PER_SECOND {
            self.unnamed += 1;
            return;
        }
        self.named += 1;
        self.clear();
        tell!("line {line}: {code}: {why}");
    }

    fn tell_unnamed(&mut self) {
        if self.unnamed > 0 {
            self.clear();
            tell!("and {} lines more, not named; the closing report counts them", self.unnamed);
            self.unnamed = 0;
        }
    }

    /// Shows how far it is, when it is time to.
    pub(super) fn tick(&mut self) {
        let since = self.shown.elapsed();
        if since < if self.is_terminal { ON_A_TERMINAL } else { IN_A_LOG } {
            return;
        }
        let (lines, bytes) = (Tally::get(&self.tally.lines), Tally::get(&self.tally.bytes));
        let rate = (lines - self.shown_lines) as f64 / since.as_secs_f64();
        (self.shown, self.shown_lines) = (Instant::now(), lines);
        let share = match self.size {
            Some(size) if size > 0 => format!(", {:.1} %", (self.from + bytes) as f64 * 100.0 / size as f64),
            _ => String::new(),
        };
        let refused = Tally::get(&self.tally.malformed) + Tally::get(&self.tally.rejected);
        let refused = if refused > 0 { format!(", {refused} refused") } else { String::new() };
        let shed = Tally::get(&self.tally.shed);
        let shed = if shed > 0 { format!(", {shed} shed") } else { String::new() };
        let seconds = self.began.elapsed().as_secs_f64();
        let text = format!("{seconds:>6.1} s  {lines} lines{share}, {rate:.0} lines/s{refused}{shed}");
        if self.is_terminal {
            say::err(format_args!("\r{text}\x1b[K"));
        } else {
            tell!("{text}");
        }
    }

    /// The last word, so that what follows stands on a line of its own.
    pub(super) fn end(&mut self) {
        self.tell_unnamed();
        self.clear();
    }

    fn clear(&self) {
        if self.is_terminal {
            say::err(format_args!("\r\x1b[K"));
        }
    }
}

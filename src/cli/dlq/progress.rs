//! How far a long reading or replay is, on standard error: nothing in the first two seconds, then a bar on a terminal or a
//! line every ten seconds in a log.

use crate::cli::say;
use crate::cli::table::grouped;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

const SILENCE: Duration = Duration::from_secs(2);
const ON_A_TERMINAL: Duration = Duration::from_millis(200);
const IN_A_LOG: Duration = Duration::from_secs(10);
const BAR: usize = 24;

/// See the [module](self).
pub(super) struct Progress {
    is_terminal: bool,
    began: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { is_terminal: stderr().is_terminal(), began: Instant::now(), shown: None }
    }

    /// `what` is done up to `done` of `all`.
    pub(super) fn tick(&mut self, what: &str, (done, all): (u64, u64), more: &dyn std::fmt::Display) {
        let pause = if self.is_terminal { ON_A_TERMINAL } else { IN_A_LOG };
        let is_due = match self.shown {
            None => self.began.elapsed() >= SILENCE,
            Some(shown) => shown.elapsed() >= pause,
        };
        if !is_due {
            return;
        }
        self.shown = Some(Instant::now());
        let text = format!("{what} {} of {}{more}", grouped(done), grouped(all));
        if self.is_terminal {
            say::err(format_args!("\r[{}] {text}\x1b[K", bar(done, all)));
        } else {
            tell!("{text}");
        }
    }

    /// The last word, so that what follows stands on a line of its own.
    pub(super) fn end(&mut self) {
        if self.is_terminal && self.shown.take().is_some() {
            say::err(format_args!("\r\x1b[K"));
        }
    }
}

fn bar(done: u64, all: u64) -> String {
    let filled = if all == 0 { BAR } else { (done.min(all) as usize * BAR) / all as usize };
    format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_always_as_wide() {
        for (done, all, filled) in [(0, 0, BAR), (0, 9, 0), (9, 9, BAR), (10, 9, BAR), (1, 2, BAR / 2)] {
            let bar = bar(done, all);
            assert_eq!((bar.len(), bar.matches('#').count()), (BAR, filled), "{done} of {all}");
        }
    }
}

//! The stamp ceiling: what a start without its broker stamps above. The topic's tail has the highest stamp, and cannot be
//! read then; the file of offsets can. So it also says a stamp that none has reached yet: the highest one given out when
//! it was written, and a margin. The margin is what makes a write each second enough, instead of one for each stamp.
//!
//! Pure: told of the highest stamp, it says what is to be written, and whether that can wait for the usual write. What it
//! does not cover is a stamp beyond the ceiling whose router dies before the write that follows at once: milliseconds
//! after somebody set the wall clock forward, or however long a disk takes that syncs nothing for half of the margin.

use crate::hlc::Hlc;

/// How far above the highest stamp the ceiling is put, in the stamps' milliseconds.
pub const MARGIN_MS: u64 = 5_000;

/// What is written, and what should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// What the file said at the start. A clock that was set above it shows just that, though nothing was stamped.
    found: Hlc,
    written: Hlc,
    wanted: Hlc,
    /// The highest stamp that was seen, and half of the margin.
    reach: Hlc,
}

impl Ceiling {
    /// Begins with what the file says; [`Hlc::ZERO`]: nothing.
    #[must_use]
    pub const fn new(found: Hlc) -> Ceiling {
        Ceiling { found, written: found, wanted: found, reach: Hlc::ZERO }
    }

    /// The highest stamp there is by now. A ceiling never falls.
    pub fn see(&mut self, highest: Hlc) {
        if highest != self.found {
            self.wanted = self.wanted.max(later(highest, MARGIN_MS));
            self.reach = self.reach.max(later(highest, MARGIN_MS / 2));
        }
    }

    /// Whether the stamps have come within half of the margin of what is written: it is not to wait.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.reach >= self.written && self.wanted > self.written
    }

    /// What the file should say. Without new stamps it stays as it was.
    #[must_use]
    pub const fn wanted(&self) -> Hlc {
        self.wanted
    }

    /// What the file says.
    #[must_use]
    pub const fn written(&self) -> Hlc {
        self.written
    }

    /// What was wanted is durable.
    pub const fn wrote(&mut self) {
        self.written = self.wanted;
    }
}

/// Above the highest date a clock follows there is no ceiling: damage that looks like a stamp shall not stop one.
fn later(stamp: Hlc, ms: u64) -> Hlc {
    Hlc(stamp.0.saturating_add(Hlc::new(ms, 0).0)).min(Hlc::OBSERVED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_772_000_000_000;

    const fn at(ms: u64) -> Hlc {
        Hlc::new(START + ms, 9)
    }

    fn written_for(highest: Hlc) -> Ceiling {
        let mut ceiling = Ceiling::new(Hlc::ZERO);
        ceiling.see(highest);
        ceiling.wrote();
        ceiling
    }

    #[test]
    fn it_is_five_seconds_above_the_highest_stamp() {
        let mut ceiling = Ceiling::new(Hlc::ZERO);
        assert!(!ceiling.is_near(), "without a stamp there is nothing to write");
        ceiling.see(at(0));
        assert_eq!((ceiling.wanted(), ceiling.written()), (at(5_000), Hlc::ZERO));
        assert!(ceiling.is_near(), "the first stamp under no ceiling is not to wait");
        ceiling.wrote();
        assert_eq!(ceiling.written(), at(5_000));
    }

    #[test]
    fn it_is_near_at_half_of_the_margin_and_not_one_stamp_earlier() {
        let mut ceiling = written_for(at(0));
        ceiling.see(Hlc(at(2_500).0 - 1));
        assert!(!ceiling.is_near());
        ceiling.see(at(2_500));
        assert!(ceiling.is_near());
        assert_eq!(ceiling.wanted(), at(7_500));
        ceiling.wrote();
        assert!(!ceiling.is_near());
    }

    #[test]
    fn it_never_falls() {
        let mut ceiling = written_for(at(0));
        ceiling.see(at(0));
        ceiling.see(Hlc(1));
        assert_eq!((ceiling.wanted(), ceiling.is_near()), (at(5_000), false));
    }

    /// A start that followed it shows it, and would raise it at each start if that were a stamp.
    #[test]
    fn a_clock_that_was_set_above_it_does_not_raise_it_before_its_first_stamp() {
        let mut ceiling = Ceiling::new(at(0));
        ceiling.see(at(0));
        assert_eq!((ceiling.wanted(), ceiling.is_near()), (at(0), false));
        ceiling.see(Hlc(at(0).0 + 1));
        assert_eq!((ceiling.wanted(), ceiling.is_near()), (Hlc(at(5_000).0 + 1), true));
    }

    #[test]
    fn a_stamp_at_the_end_of_all_dates_is_not_near_for_ever() {
        let mut ceiling = Ceiling::new(Hlc::ZERO);
        ceiling.see(Hlc(u64::MAX));
        assert_eq!(ceiling.wanted(), Hlc::OBSERVED_MAX);
        ceiling.wrote();
        assert!(!ceiling.is_near());
    }
}

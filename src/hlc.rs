//! The hybrid logical clock: a stamp that is a date for people and an order for machines. 48 bits of Unix milliseconds
//! above 16 bits of counter, so stamps compare as plain numbers.
//!
//! A shard's clock rises strictly with every tick, whatever the wall clock does: while that stands still or steps back,
//! the counter counts on, and when the counter is full it carries into the milliseconds. Cost of a tick: a shift, a
//! compare and an add.

use crate::units::UnixMs;
use std::fmt;
use thiserror::Error;

/// Bits of counter below the milliseconds.
const COUNTER_BITS: u32 = 16;

/// The last millisecond of the year 9999. A stamp above it is no date but damage, or a trap; the stamps left above it
/// would last for 58 years at a tick a nanosecond, so a tick needs no overflow check.
const MS_MAX: u64 = 253_402_300_799_999;

/// A stamp. Compares by date, then by counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc(pub u64);

impl Hlc {
    /// Below every stamp that a clock gives out.
    pub const ZERO: Hlc = Hlc(0);

    /// The highest stamp a clock can be told of: the end of the year 9999.
    pub const OBSERVED_MAX: Hlc = Hlc::new(MS_MAX, u16::MAX);

    /// From its parts.
    ///
    /// # Panics
    /// If `ms` does not fit into 48 bits (in debug builds).
    #[must_use]
    pub const fn new(ms: u64, counter: u16) -> Hlc {
        debug_assert!(ms >> (u64::BITS - COUNTER_BITS) == 0);
        Hlc(ms << COUNTER_BITS | counter as u64)
    }

    /// Unix milliseconds: the wall clock's, or ahead of it by what the clock stepped back.
    #[must_use]
    pub const fn ms(self) -> UnixMs {
        UnixMs((self.0 >> COUNTER_BITS) as i64)
    }

    /// The place among the stamps of one millisecond.
    #[must_use]
    pub const fn counter(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for Hlc {
    /// Milliseconds and counter, `1772000000000+00007`; the texts of two stamps of our days sort as the stamps do.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{:05}", self.0 >> COUNTER_BITS, self.counter())
    }
}

/// A stamp too far ahead to be followed: after it, the clock could not rise for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("hlc = {got} is a date after the year 9999, allowed 0..={max}; the record that holds it is damaged",
        max = Hlc::OBSERVED_MAX)]
pub struct HlcTooHigh {
    /// The stamp that was read.
    pub got: Hlc,
}

/// The clock of one shard.
#[derive(Debug, Default)]
pub struct HlcClock {
    /// The last stamp given out, or the highest one observed since.
    last: Hlc,
}

impl HlcClock {
    /// A clock whose first stamp is the wall clock's time.
    #[must_use]
    pub const fn new() -> HlcClock {
        HlcClock { last: Hlc::ZERO }
    }

    /// A clock all of whose stamps are above `highest`: at start, the highest one found in the topic and on disk.
    ///
    /// # Errors
    /// [`HlcTooHigh`] if `highest` is no date.
    pub const fn start_above(highest: Hlc) -> Result<HlcClock, HlcTooHigh> {
        let mut clock = HlcClock::new();
        match clock.observe(highest) {
            Ok(()) => Ok(clock),
            Err(too_high) => Err(too_high),
        }
    }

    /// The next stamp: the wall clock's time if that is above every stamp so far, else the last stamp and one more.
    /// A time before 1970 counts as 1970, one after 9999 as the end of 9999.
    #[inline]
    #[must_use]
    pub const fn tick(&mut self, now: UnixMs) -> Hlc {
        let ms = if now.0 < 0 { 0 } else { now.0 as u64 };
        let ms = if ms > MS_MAX { MS_MAX } else { ms };
        let wall = ms << COUNTER_BITS;
        let next = self.last.0 + 1;
        self.last = Hlc(if wall > next { wall } else { next });
        self.last
    }

    /// Puts every later stamp above `seen`.
    ///
    /// # Errors
    /// [`HlcTooHigh`] if `seen` is no date; the clock stays as it was.
    pub const fn observe(&mut self, seen: Hlc) -> Result<(), HlcTooHigh> {
        if seen.0 > Hlc::OBSERVED_MAX.0 {
            return Err(HlcTooHigh { got: seen });
        }
        if seen.0 > self.last.0 {
            self.last = seen;
        }
        Ok(())
    }

    /// The last stamp given out or observed; [`Hlc::ZERO`] if there was none.
    #[must_use]
    pub const fn last(&self) -> Hlc {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_772_000_000_000;

    #[test]
    fn parts_go_in_and_come_out() {
        let hlc = Hlc::new(NOW as u64, 7);
        assert_eq!(hlc, Hlc(NOW as u64 * 65_536 + 7));
        assert_eq!((hlc.ms(), hlc.counter()), (UnixMs(NOW), 7));
        assert_eq!(hlc.to_string(), "1772000000000+00007");
        assert_eq!(Hlc(u64::MAX).ms(), UnixMs((1 << 48) - 1));
    }

    #[test]
    fn follows_the_wall_clock() {
        let mut clock = HlcClock::new();
        assert_eq!(clock.tick(UnixMs(NOW)), Hlc::new(NOW as u64, 0));
        assert_eq!(clock.tick(UnixMs(NOW)), Hlc::new(NOW as u64, 1));
        assert_eq!(clock.tick(UnixMs(NOW + 1)), Hlc::new(NOW as u64 + 1, 0));
    }

    #[test]
    fn rises_while_the_wall_clock_is_an_hour_back() {
        let mut clock = HlcClock::new();
        let mut last = clock.tick(UnixMs(NOW));
        for step in 0..3_600_000 {
            let next = clock.tick(UnixMs(NOW - 3_600_000 + step));
            assert!(next > last);
            last = next;
        }
        assert_eq!(last.ms(), UnixMs(NOW + 3_600_000 / 65_536), "carried no faster than the counter fills");
        assert_eq!(clock.tick(UnixMs(NOW + 1_000)), Hlc::new(NOW as u64 + 1_000, 0), "and follows again");
    }

    #[test]
    fn seventy_thousand_ticks_in_one_millisecond_carry() {
        let mut clock = HlcClock::new();
        for count in 0..70_000_u64 {
            assert_eq!(clock.tick(UnixMs(NOW)).0, (NOW as u64 * 65_536) + count);
        }
        assert_eq!(clock.last(), Hlc::new(NOW as u64 + 1, (70_000 - 65_536 - 1) as u16));
        assert_eq!(clock.tick(UnixMs(NOW + 1)).counter(), (70_000 - 65_536) as u16, "the next one goes on from there");
    }

    #[test]
    fn a_clock_before_1970_or_after_9999_still_rises() {
        let mut clock = HlcClock::new();
        assert_eq!(clock.tick(UnixMs(-1)), Hlc(1), "never the zero that means none");
        assert_eq!(clock.tick(UnixMs(i64::MIN)), Hlc(2));
        assert_eq!(clock.tick(UnixMs(0)), Hlc(3));
        assert_eq!(clock.tick(UnixMs(i64::MAX)), Hlc::new(MS_MAX, 0));
        assert_eq!(clock.tick(UnixMs(i64::MAX)), Hlc::new(MS_MAX, 1));
    }

    #[test]
    fn starts_above_what_was_seen_before_the_restart() {
        let before = Hlc::new(NOW as u64 + 60_000, 9);
        let mut clock = HlcClock::start_above(before).unwrap();
        assert_eq!(clock.tick(UnixMs(NOW)), Hlc(before.0 + 1));
        clock.observe(Hlc(5)).unwrap();
        assert_eq!(clock.tick(UnixMs(NOW)), Hlc(before.0 + 2), "an older one does not set it back");
    }

    #[test]
    fn a_stamp_that_is_no_date_is_not_followed() {
        let mut clock = HlcClock::new();
        assert_eq!(clock.observe(Hlc(Hlc::OBSERVED_MAX.0 - 1)), Ok(()));
        assert_eq!(clock.observe(Hlc::OBSERVED_MAX), Ok(()));
        for got in [Hlc(Hlc::OBSERVED_MAX.0 + 1), Hlc(u64::MAX)] {
            assert_eq!(clock.observe(got), Err(HlcTooHigh { got }));
            assert!(matches!(HlcClock::start_above(got), Err(HlcTooHigh { .. })));
        }
        assert_eq!(clock.tick(UnixMs(NOW)), Hlc(Hlc::OBSERVED_MAX.0 + 1));
        assert_eq!(
            HlcTooHigh { got: Hlc(u64::MAX) }.to_string(),
            "hlc = 281474976710655+65535 is a date after the year 9999, allowed 0..=253402300799999+65535; the record \
             that holds it is damaged"
        );
    }

    proptest! {
        #[test]
        fn strictly_rises_and_is_never_behind_the_wall_clock(steps in prop::collection::vec((any::<bool>(), any::<i64>()), 1..200)) {
            let mut clock = HlcClock::new();
            let mut floor = Hlc::ZERO;
            for (is_tick, value) in steps {
                if is_tick {
                    let stamp = clock.tick(UnixMs(value));
                    prop_assert!(stamp > floor);
                    prop_assert!(stamp.ms().0 >= value.clamp(0, MS_MAX as i64));
                    floor = stamp;
                } else if clock.observe(Hlc(value as u64)).is_ok() {
                    floor = floor.max(Hlc(value as u64));
                }
            }
        }
    }
}

//! What the numbers mean. A partition is not a shard, a monotonic instant is not a date, and the two do not add.
//!
//! Related names have the same length; units come last in a field's name (`latency_ms_max`).

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A shard: an index, always below the number of shards. One shard is one pinned thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A Kafka partition of the topic: an index, always below the pinned partition count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

/// The place of a trigger in its ingress: 1 for the first accepted one, then rising by 1. 0 means "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// A monotonic instant or span, in nanoseconds since the process's clock was made. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A wall-clock date, in microseconds since 1970. It may step in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMicros(pub i64);

/// A wall-clock date, in milliseconds since 1970. It may step in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub i64);

/// Both clocks, read together once a turn and handed down as a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic: spans, deadlines, time-to-live.
    pub mono: Nanos,
    /// Wall: dates that leave the process.
    pub wall: UnixMicros,
}

impl Nanos {
    /// The longest span there is.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span from whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// A span from whole microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    /// The span from `earlier` to `self`; zero if `earlier` is later (another thread read its clock a moment after).
    #[must_use]
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// As the standard library's span.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Nanos {
    /// A span longer than 584 years becomes the longest there is.
    fn from(span: Duration) -> Nanos {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(span.0))
    }
}

impl UnixMicros {
    /// The same date in milliseconds, rounded down.
    #[must_use]
    pub const fn as_ms(self) -> UnixMs {
        UnixMs(self.0.div_euclid(1_000))
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_never_goes_below_zero() {
        assert_eq!(Nanos(5).since(Nanos(9)), Nanos(0));
        assert_eq!(Nanos(9).since(Nanos(5)), Nanos(4));
    }

    #[test]
    fn a_date_before_1970_rounds_down() {
        assert_eq!(UnixMicros(-1).as_ms(), UnixMs(-1));
        assert_eq!(UnixMicros(1_999).as_ms(), UnixMs(1));
    }
}

//! The desk's limits, its answers and its counters.

use super::notes::META_BYTES_MAX;
use crate::spill::SpillLimits;
use crate::units::Nanos;

/// How much the desk holds and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Partitions of the topic the letters were meant for.
    pub partitions: u32,
    /// Bytes of letters in memory.
    pub memory_bytes: usize,
    /// Bytes of one letter: its value, and the form of its notes, key and headers.
    pub letter_bytes: usize,
    /// How long the topic may make no progress, or a letter wait for it, before the disk is used.
    pub grace: Nanos,
    /// Between two tries of a topic that did not work.
    pub retry_pause: Nanos,
    /// Between two tries of a disk that was full or failed.
    pub disk_pause: Nanos,
    /// Letters that are on their way from the disk to the topic at one time.
    pub drain_letters: usize,
}

impl DeskLimits {
    /// The defaults: 8 MiB of letters, each of a value up to 2 MiB; a grace of 5 s.
    #[must_use]
    pub fn new(partitions: u32) -> DeskLimits {
        DeskLimits {
            partitions,
            memory_bytes: 8 << 20,
            letter_bytes: (2 << 20) + META_BYTES_MAX,
            grace: Nanos::from_millis(5_000),
            retry_pause: Nanos::from_millis(500),
            disk_pause: Nanos::from_millis(500),
            drain_letters: 256,
        }
    }

    /// Limits of a spill that takes every letter this desk does, in up to `limit_bytes` of disk (at least 320 MiB). A
    /// reserve beyond one segment is of no use here: every letter is one that was accepted.
    #[must_use]
    pub fn spill_limits(&self, limit_bytes: u64) -> SpillLimits {
        SpillLimits {
            limit_bytes,
            reserve_bytes: 1 << 20,
            partition_bytes: limit_bytes,
            record_bytes: self.letter_bytes,
            marks: 16_384,
            ..SpillLimits::new(self.partitions)
        }
    }
}

/// Why a letter was not taken; it is still the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// There is no room just now.
    #[error("the dead letters' memory is full")]
    Full,
    /// It never fits.
    #[error("a dead letter of {got} bytes, allowed up to {most}")]
    TooLong {
        /// Bytes it would take, or those of its notes, key and headers.
        got: usize,
        /// The most of that.
        most: usize,
    },
}

/// What became of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled<'a> {
    /// The topic has it, or the disk.
    Durable {
        /// The disk, until the topic takes it.
        on_disk: bool,
    },
    /// The topic refused it for good, and the disk did, or there is none.
    Refused {
        /// The topic's words.
        text: &'a str,
    },
}

/// What happened since the start. `taken = durable + refused + waiting`, and
/// `recovered + to_disk = drained + on_disk + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeskCounts {
    /// Letters taken.
    pub taken: u64,
    /// Reported durable.
    pub durable: u64,
    /// Reported refused.
    pub refused: u64,
    /// In memory, not reported.
    pub waiting: u64,
    /// Posts to the topic, those from the disk and those tried again included.
    pub posted: u64,
    /// Posts that the topic acknowledged.
    pub acked: u64,
    /// Posts that the topic refused for good.
    pub topic_refused: u64,
    /// Letters written to the disk.
    pub to_disk: u64,
    /// Found on disk at the start, those that were lost there included.
    pub recovered: u64,
    /// On disk now.
    pub on_disk: u64,
    /// Taken off the disk after the topic acknowledged them.
    pub drained: u64,
    /// Of those on disk, lost by it.
    pub lost: u64,
    /// Found on disk and not understood; they stay there.
    pub unreadable: u64,
    /// Times the disk failed or was full.
    pub disk_errors: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spill_of_the_defaults_fits_from_one_partition_to_the_most() {
        for partitions in [1, 24, 100_000] {
            let limits = DeskLimits::new(partitions).spill_limits(1 << 30);
            limits.check().unwrap();
            assert_eq!(limits.record_bytes, DeskLimits::new(partitions).letter_bytes);
        }
        DeskLimits::new(24).spill_limits(320 << 20).check().unwrap();
        let text = DeskLimits::new(24).spill_limits((320 << 20) - 1).check().unwrap_err().to_string();
        assert!(text.contains("limit_bytes"), "{text}");
    }
}

//! The desk's limits, its answers and its counters.

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
    /// The defaults: 8 MiB of letters, each up to 2 MiB; a grace of 5 s.
    #[must_use]
    pub fn new(partitions: u32) -> DeskLimits {
        DeskLimits {
            partitions,
            memory_bytes: 8 << 20,
            letter_bytes: 2 << 20,
            grace: Nanos::from_millis(5_000),
            retry_pause: Nanos::from_millis(500),
            disk_pause: Nanos::from_millis(500),
            drain_letters: 256,
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

//! What a window may hold, which limits work together, and how much memory that takes: known before one is made.

use super::arena::{Cut, RECORD_WORDS_MAX, record_words};
use super::table::Table;
use crate::units::Nanos;

const WORD: usize = size_of::<u64>();

/// Records are kept in segments of 64 KiB: under 1 % is lost at their ends, and the one being written and the one
/// being left stay in a core's own cache.
const SEGMENT_WORDS: usize = 64 * 1024 / WORD;

/// The limits of one shard's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// The most live keys, pending and settled. From `2 * tokens` on, the cost of an ask is bounded on average however
    /// the pending keys lie between the settled ones.
    pub capacity: usize,
    /// The most bytes of live keys with their headers ([`WindowLimits::record_bytes`] each).
    pub key_bytes: usize,
    /// Tokens are below this: the most keys that are pending at once.
    pub tokens: u32,
    /// How long a key is remembered, from its first acceptance.
    pub ttl: Nanos,
}

impl WindowLimits {
    /// The bytes that the longest key takes, header included.
    pub const RECORD_BYTES_MAX: usize = RECORD_WORDS_MAX * WORD;

    /// The bytes that a key takes whose stored form is `key_bytes` long.
    #[must_use]
    pub const fn record_bytes(key_bytes: usize) -> usize {
        record_words(key_bytes) * WORD
    }

    /// The least `key_bytes` with which pending keys always fit, be they all of the longest ids:
    /// `tokens * RECORD_BYTES_MAX`.
    #[must_use]
    pub const fn key_bytes_min(tokens: u32) -> usize {
        tokens as usize * WindowLimits::RECORD_BYTES_MAX
    }

    /// The least `capacity` with which pending keys always fit: one a token.
    #[must_use]
    pub const fn capacity_min(tokens: u32) -> usize {
        tokens as usize
    }

    /// What a window of these limits allocates, in bytes of address space. Memory is taken as keys come.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let tokens = self.tokens as usize * size_of::<u32>();
        Table::memory_of(self.capacity) + self.default_cut().memory_bytes() + tokens
    }

    /// Panics on limits that cannot work.
    pub(super) fn assert_sound(&self) {
        assert!(self.tokens >= 1, "tokens = 0: nothing could ever be pending");
        assert!(
            self.capacity >= WindowLimits::capacity_min(self.tokens),
            "capacity = {} is less than tokens = {}: pending keys might not fit",
            self.capacity,
            self.tokens
        );
        assert!(
            self.key_bytes >= WindowLimits::key_bytes_min(self.tokens),
            "key_bytes = {}, but {} pending keys of the longest ids need {}",
            self.key_bytes,
            self.tokens,
            WindowLimits::key_bytes_min(self.tokens)
        );
    }

    pub(super) fn live_words_max(&self) -> usize {
        self.key_bytes / WORD
    }

    pub(super) fn cut(&self, segment_words: usize) -> Cut {
        Cut::of(self.live_words_max(), segment_words)
    }

    pub(super) fn default_cut(&self) -> Cut {
        self.cut(SEGMENT_WORDS)
    }
}

//! Diversion: how a shard and the disk thread work together. A shard never waits for a disk: it writes orders into a
//! pipe, and reads in its turn what became of them.
//!
//! ```text
//!   shard ── orders (append, release, mark, read; bytes) ──▶ keeper ── one commit every spill.sync ──▶ segments
//!     ▲ ◀── news (synced, refused) ─────────────────────────── │
//!     └ ◀── drained records, in order per partition (bytes) ── ┘
//! ```
//!
//! Promises: each append is answered once, as synced (durable, with its sequence) or as refused. Within a partition,
//! records lie on disk in the order of their orders: once one was refused, all that follow under the same epoch are
//! refused too, until the shard begins a new one. What is read comes in order, and says what the disk lost.
//!
//! Costs: the pipes are sized at start ([`DivertLimits`]); an order copies its frame twice.
#![forbid(unsafe_code)]

#[cfg(loom)]
mod by_hand;
mod callers;
mod keeper;
mod letters;
mod order;
mod pipe;
mod room;
mod spilling;

pub use callers::{CallerEnd, CallerLetter, CallerLine, LetterReport, caller_ends, caller_pipe_bytes};
pub use keeper::Keeper;
pub use letters::LetterRoom;
pub use order::{LetterOrder, News, Order, Parcel, RefusedWhy, Stage};
pub use room::{Level, Room};
pub use spilling::{KeeperError, SpillRoom};

use crate::slab::FRAME_BYTES_MAX;
use crate::sync::rtrb;
use pipe::{PipeReader, PipeWriter, pipe};

/// How large the pipes of one shard are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivertLimits {
    /// Slots of the shard: each may have three answers under way.
    pub slots: usize,
    /// Bytes of orders under way.
    pub order_bytes: usize,
    /// Bytes of drained records under way.
    pub drained_bytes: usize,
    /// Bytes of dead letters under way.
    pub letter_bytes: usize,
}

/// The longest words of an error that go with a dead letter.
pub const DETAIL_BYTES: usize = 256;

impl DivertLimits {
    /// For a shard with so many slots: 4 MiB of orders, 1 MiB of drained records, 1 MiB of dead letters.
    #[must_use]
    pub fn new(slots: usize) -> DivertLimits {
        DivertLimits { slots, order_bytes: 4 << 20, drained_bytes: 1 << 20, letter_bytes: 1 << 20 }
    }

    /// Bytes the pipes of one shard take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let pipes = self.order_bytes + self.drained_bytes + self.letter_bytes;
        pipes + self.news() * size_of::<News>() + 3 * FRAME_BYTES_MAX + DETAIL_BYTES
    }

    fn news(&self) -> usize {
        3 * self.slots + 64
    }
}

/// What was found on disk at start, of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Done with up to here.
    pub released: u64,
    /// Committed up to here.
    pub committed: u64,
    /// Of those in between, marked as done with.
    pub marked: u64,
    /// Of those in between, lost.
    pub lost: u64,
}

/// The shard's end.
pub struct ShardEnd {
    orders: PipeWriter,
    letters: PipeWriter,
    news: rtrb::Consumer<News>,
    drained: PipeReader,
}

/// The keeper's end of one shard.
pub struct KeeperEnd {
    orders: PipeReader,
    letters: PipeReader,
    news: rtrb::Producer<News>,
    drained: PipeWriter,
}

/// The two ends of one shard's pipes.
#[must_use]
pub fn ends(limits: &DivertLimits) -> (ShardEnd, KeeperEnd) {
    let (order_writer, order_reader) = pipe(limits.order_bytes, FRAME_BYTES_MAX);
    let (news_writer, news_reader) = rtrb::RingBuffer::new(limits.news());
    let (letter_writer, letter_reader) = pipe(limits.letter_bytes, FRAME_BYTES_MAX + DETAIL_BYTES);
    let (drained_writer, drained_reader) = pipe(limits.drained_bytes, FRAME_BYTES_MAX);
    (
        ShardEnd { orders: order_writer, letters: letter_writer, news: news_reader, drained: drained_reader },
        KeeperEnd { orders: order_reader, letters: letter_reader, news: news_writer, drained: drained_writer },
    )
}

impl ShardEnd {
    /// Gives an order. False: the pipe is full, try again in the next turn.
    #[must_use]
    pub fn order(&mut self, order: &Order<'_>) -> bool {
        let (head, body) = order.encode();
        self.orders.write(head, body)
    }

    /// Gives a dead letter. False: the pipe is full, try again in the next turn.
    #[must_use]
    pub fn letter(&mut self, letter: &LetterOrder<'_>) -> bool {
        self.letters.write_three(letter.head(), letter.frame, letter.detail.as_bytes(), &[])
    }

    /// What became of an append or a letter.
    #[must_use]
    pub fn news(&mut self) -> Option<News> {
        self.news.pop().ok()
    }

    /// Whether a drained record or the end of a read is there. Whatever was said before it was written can be heard then.
    #[must_use]
    pub fn has_drained(&mut self) -> bool {
        self.drained.peek().is_some()
    }

    /// The next drained record, or the end of a read.
    pub fn drained<T>(&mut self, take: impl FnOnce(Parcel<'_>) -> T) -> Option<T> {
        let (head, body) = self.drained.read()?;
        Some(take(Parcel::decode(&head, body)))
    }
}

fn tell(ring: &mut rtrb::Producer<News>, news: News) {
    // Each slot has at most three answers under way, and the ring has room for as many.
    let told = ring.push(news);
    assert!(told.is_ok(), "the ring of news holds three answers for each slot");
}

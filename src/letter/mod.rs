//! Dead letters: what cannot be delivered as it should, kept for a person to judge. They go to a topic of their own with
//! notes that say why, and to the disk while that topic makes no progress.
//!
//! Order is given up for them, and one may come twice: after a crash between its acknowledgement and the commit that
//! takes it off the disk, and when the topic took it after all while it was written to the disk. None is lost: each is
//! reported once, when the topic or the disk has it, or when both refused it for good.
//!
//! Reading order: `notes` (what a letter says about itself), this file, `account` (limits and counters), `desk` (what
//! becomes of one; `desk/writing`: its way to the disk), `shelf` (those on disk), `store` and `links` (memory).
#![forbid(unsafe_code)]

mod account;
pub mod desk;
mod links;
pub mod notes;
mod shelf;
mod store;
#[cfg(test)]
mod tests;

pub use account::{DeskCounts, DeskLimits, Settled, TakeError};
pub use desk::Desk;
pub use notes::{Header, Headers, Notes, Reason};

use crate::units::{PartitionId, UnixMs};
use notes::Meta;

/// A dead letter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Letter<'a> {
    /// The partition it was meant for; 0 where none is known.
    pub partition: PartitionId,
    /// The Kafka key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value, byte for byte; `None` is null.
    pub value: Option<&'a [u8]>,
    /// The headers the record came with; those of [`Notes`] are put behind them.
    pub headers: Headers<'a>,
    /// The record's timestamp; `None`: when it is posted.
    pub record_time: Option<UnixMs>,
    /// What it says about itself.
    pub notes: Notes<'a>,
}

impl<'a> Letter<'a> {
    /// All but its value and its line.
    fn meta(&self) -> Meta<'a> {
        let Letter { key, value, headers, record_time, notes, .. } = *self;
        Meta { notes, key, value_is_null: value.is_none(), record_time, headers }
    }

    /// From what the spill holds; `None`: the meta is none, or of a version this router does not know.
    #[must_use]
    pub fn from_stored(partition: PartitionId, meta: &'a [u8], frame: &'a [u8]) -> Option<Letter<'a>> {
        let Meta { notes, key, value_is_null, record_time, headers } = notes::read_meta(meta)?;
        let value = (!value_is_null).then_some(frame);
        Some(Letter { partition, key, value, headers, record_time, notes })
    }
}

/// Why a sink did not take a letter just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostBusy {
    /// Its queue is full.
    QueueFull,
    /// It does not know the topic yet, or is being replaced.
    NotReady,
}

/// What became of a posted letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted<'a> {
    /// In the topic.
    Acked,
    /// The topic will never take it as it is.
    Refused {
        /// The client library's number.
        code: i32,
        /// Its words.
        text: &'a str,
    },
    /// It may work later: the broker is away, the topic is not there yet, writing is not allowed.
    Retry {
        /// The client library's words.
        text: &'a str,
    },
}

/// Where dead letters go first. One thread's own.
pub trait LetterSink: Send {
    /// Takes a copy of the letter. What was taken is reported exactly once, under its token.
    ///
    /// # Errors
    /// [`PostBusy`]: it was not taken; nothing will be reported.
    fn post(&mut self, token: u64, letter: &Letter<'_>) -> Result<(), PostBusy>;

    /// Hands over what is known by now; never waits.
    fn collect(&mut self, each: &mut dyn FnMut(u64, Posted<'_>));
}

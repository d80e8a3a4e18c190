//! Sources: bytes of a file, a pipe or a socket → triggers, for whoever routes them.
//!
//! [`Feed`] cuts what was read into lines or frames, in memory that was sized at the start: a line or frame above the
//! limit is named and passed over, whatever its length; what is no trigger is handed on as the bytes it came as. [`ndjson`] reads one line, [`frames`] one frame. [`Trail`] knows
//! up to which line everything is settled. Nothing here reads a clock, opens anything, or allocates for a line; a trigger
//! borrows from the block it was read in, where its escapes are resolved in place.
//!
//! Cost: `benches/source.rs`.
#![forbid(unsafe_code)]

mod feed;
pub mod frames;
pub mod ndjson;
#[cfg(test)]
mod tests;
mod trail;

pub use feed::{BATCH, Batch, FAULTS, Faulty, Feed, Format, Position};
pub use trail::Trail;

use crate::wire::DecodeError;
use ndjson::NotATrigger;

/// Why a line or a frame is no trigger. It is passed over; what comes after it goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The line is not the JSON object of a trigger.
    #[error(transparent)]
    Line(#[from] NotATrigger),
    /// The frame is none.
    #[error(transparent)]
    Frame(#[from] DecodeError),
    /// The line has no end within the limit.
    #[error("the line is longer than {limit} bytes{}: shorten it, or raise route.line_bytes_max", in_all(*len))]
    LineTooLong {
        /// How many there are, if its end was near.
        len: Option<usize>,
        /// `route.line_bytes_max`.
        limit: usize,
    },
    /// The number in front of the frame is above the limit.
    #[error(
        "the frame is said to have {len} bytes, allowed are {limit}: raise route.line_bytes_max, or see whether the source \
         sends something else (route.format)"
    )]
    FrameTooLong {
        /// What the four bytes say.
        len: u32,
        /// `route.line_bytes_max`.
        limit: usize,
    },
    /// The source ended within a frame.
    #[error("the source ended {missing} bytes before the end of the frame")]
    FrameCut {
        /// Bytes that did not come; at least this many where the length itself was cut.
        missing: usize,
    },
}

fn in_all(len: Option<usize>) -> String {
    len.map_or_else(String::new, |len| format!(", it has {len}"))
}

impl Fault {
    /// Whether only the first bytes of the line or frame are at hand.
    #[must_use]
    pub const fn is_too_long(&self) -> bool {
        matches!(self, Fault::LineTooLong { .. } | Fault::FrameTooLong { .. })
    }

    /// A short name for scripts. It never changes; a new fault gets a new one.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Fault::Line(_) => "malformed",
            Fault::Frame(error) => error.code(),
            Fault::LineTooLong { .. } => "line_too_long",
            Fault::FrameTooLong { .. } => "frame_too_long",
            Fault::FrameCut { .. } => "frame_cut",
        }
    }
}

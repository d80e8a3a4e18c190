//! Dead letters that callers give: what an ingress shed and its caller diverts, and a source's bytes that are no trigger.
//! Each ingress has a pipe of its own to the disk thread; a letter has a seq like any trigger, and settles like one.

use super::order::small;
use super::pipe::{HEAD, PipeReader, PipeWriter, pipe};
use crate::letter::notes::{DETAIL_BYTES, REASON_BYTES};
use crate::units::{PartitionId, UnixMs};

/// A caller's letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerLetter<'a> {
    /// Its place in its ingress.
    pub seq: u64,
    /// The partition it was meant for; 0 where the bytes are no trigger.
    pub partition: PartitionId,
    /// When it was given.
    pub given: UnixMs,
    /// The bytes are no trigger: there is no key in them.
    pub is_raw: bool,
    /// The frame, or the raw bytes.
    pub body: &'a [u8],
    /// Why: one of the names of [`crate::letter::Reason`], or the caller's own word.
    pub reason: &'a str,
    /// More about it.
    pub detail: &'a str,
}

/// Who is told what became of a caller's letters.
pub trait LetterReport: Send {
    /// It is the keeper's now; each seq is higher than the one before.
    fn taken(&mut self, seq: u64);

    /// It is durable, or neither the topic nor the disk takes it.
    fn done(&mut self, seq: u64, is_durable: bool);

    /// Called once a turn.
    fn tick(&mut self);
}

/// The ingress's end.
pub struct CallerEnd {
    letters: PipeWriter,
    body_max: usize,
}

/// The keeper's end of one ingress.
pub struct CallerLine {
    pub(super) letters: PipeReader,
    pub(super) report: Box<dyn LetterReport>,
}

const REASON_LENGTH_AT: usize = 2;
const RAW_AT: usize = 1;
const BODY_LENGTH_AT: usize = 24;

/// A pipe for so many bytes of letters, each at most `body_max` long.
#[must_use]
pub fn caller_ends(bytes: usize, body_max: usize, report: Box<dyn LetterReport>) -> (CallerEnd, CallerLine) {
    let (writer, letters) = pipe(bytes, body_max + REASON_BYTES + DETAIL_BYTES);
    (CallerEnd { letters: writer, body_max }, CallerLine { letters, report })
}

/// Bytes of a pipe that holds two of the longest letters, and many of the usual.
#[must_use]
pub const fn caller_pipe_bytes(body_max: usize) -> usize {
    let two = 2 * (HEAD + body_max + REASON_BYTES + DETAIL_BYTES);
    if two > 256 << 10 { two } else { 256 << 10 }
}

impl CallerEnd {
    /// The longest body that is ever taken.
    #[must_use]
    pub fn body_max(&self) -> usize {
        self.body_max
    }

    /// Gives a letter. False: there is no room.
    #[must_use]
    pub fn give(&mut self, letter: &CallerLetter<'_>) -> bool {
        let mut head = [0; HEAD];
        (head[RAW_AT], head[REASON_LENGTH_AT]) = (letter.is_raw.into(), letter.reason.len() as u8);
        head[4..8].copy_from_slice(&letter.partition.0.to_le_bytes());
        head[8..16].copy_from_slice(&letter.given.0.to_le_bytes());
        head[16..24].copy_from_slice(&letter.seq.to_le_bytes());
        head[BODY_LENGTH_AT..BODY_LENGTH_AT + 4].copy_from_slice(&(letter.body.len() as u32).to_le_bytes());
        self.letters.write_three(head, letter.body, letter.reason.as_bytes(), letter.detail.as_bytes())
    }
}

impl<'a> CallerLetter<'a> {
    pub(super) fn decode(head: &[u8; HEAD], bytes: &'a [u8]) -> CallerLetter<'a> {
        let (body, rest) = bytes.split_at(small(head, BODY_LENGTH_AT) as usize);
        let (reason, detail) = rest.split_at(head[REASON_LENGTH_AT].into());
        let long = |at| u64::from(small(head, at)) | u64::from(small(head, at + 4)) << 32;
        CallerLetter {
            seq: long(16),
            partition: PartitionId(small(head, 4)),
            given: UnixMs(long(8).cast_signed()),
            is_raw: head[RAW_AT] != 0,
            body,
            reason: std::str::from_utf8(reason).expect("the ingress wrote text"),
            detail: std::str::from_utf8(detail).expect("the ingress wrote text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;
    impl LetterReport for Nobody {
        fn taken(&mut self, _: u64) {}
        fn done(&mut self, _: u64, _: bool) {}
        fn tick(&mut self) {}
    }

    #[test]
    fn a_letter_comes_out_as_it_went_in() {
        let (mut end, mut line) = caller_ends(4_096, 512, Box::new(Nobody));
        let letter = CallerLetter {
            seq: u64::MAX >> 16,
            partition: PartitionId(7),
            given: UnixMs(-3),
            is_raw: true,
            body: b"{ no json",
            reason: "malformed",
            detail: "line 12: expected a brace",
        };
        assert!(end.give(&letter));
        let (head, body) = line.letters.front().unwrap();
        assert_eq!(CallerLetter::decode(&head, body), letter);
        line.letters.pop();
        assert!(!end.give(&CallerLetter { body: &[0; 4_096], ..letter }), "there is no room");
    }
}

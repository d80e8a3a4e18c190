//! What a shard orders and what it is told, and how that lies in a pipe.

use super::pipe::HEAD;
use crate::spill::Kind;
use crate::units::{PartitionId, UnixMs};

/// A shard's order to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<'a> {
    /// Store a frame behind everything of its partition.
    Append {
        /// Whose frame; named in the answer.
        slot: u32,
        /// After a refusal of its partition, only orders of a later epoch are taken.
        epoch: u32,
        /// Whose line.
        partition: PartitionId,
        /// In flight as well, or on disk only.
        kind: Kind,
        /// The frame.
        frame: &'a [u8],
    },
    /// Everything of the partition up to here is done with.
    Release {
        /// Whose line.
        partition: PartitionId,
        /// The last sequence.
        upto: u64,
    },
    /// This one is done with, though not all before it are.
    Mark {
        /// Whose line.
        partition: PartitionId,
        /// Its sequence.
        sequence: u64,
    },
    /// Read records back, in order.
    Read {
        /// Whose line.
        partition: PartitionId,
        /// The first sequence.
        from: u64,
        /// At most so many.
        most: u32,
    },
}

/// Why an append was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedWhy {
    /// There is no space, not even in the reserve.
    NoSpace,
    /// The disk failed.
    Disk,
    /// One before it was refused.
    Follows,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Durable.
    Synced {
        /// As ordered.
        slot: u32,
        /// Its place among its partition's records.
        sequence: u64,
    },
    /// Not taken; it is the shard's.
    Refused {
        /// As ordered.
        slot: u32,
        /// As ordered.
        epoch: u32,
        /// Why.
        why: RefusedWhy,
    },
    /// A dead letter is durable.
    Lettered {
        /// As ordered.
        slot: u32,
    },
    /// Neither the dead-letter topic nor the disk takes a dead letter.
    LetterRefused {
        /// As ordered.
        slot: u32,
    },
}

/// What a shard says of a dead letter, beside its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterOrder<'a> {
    /// Whose frame; named in the answer.
    pub slot: u32,
    /// The partition it was meant for.
    pub partition: PartitionId,
    /// Why: the number of a [`crate::letter::Reason`].
    pub reason: u8,
    /// Where in the router.
    pub stage: Stage,
    /// How often it was handed over.
    pub attempts: u8,
    /// When it failed.
    pub failed: UnixMs,
    /// The frame, and behind it the error's own words.
    pub frame: &'a [u8],
    /// The error's own words.
    pub detail: &'a str,
}

/// Where a trigger became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Before it was handed over.
    Admit = 0,
    /// At the broker.
    Publish = 1,
    /// On its way back from the disk.
    Drain = 2,
    /// Its caller gave it up.
    Submit = 3,
}

impl Stage {
    /// As the headers have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Admit => "admit",
            Stage::Publish => "publish",
            Stage::Drain => "drain",
            Stage::Submit => "submit",
        }
    }
}

/// What comes back of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parcel<'a> {
    /// A record.
    Record {
        /// Whose line.
        partition: PartitionId,
        /// Its sequence.
        sequence: u64,
        /// The frame.
        frame: &'a [u8],
    },
    /// The read is over.
    Done {
        /// Whose line.
        partition: PartitionId,
        /// Where the next read goes on.
        next: u64,
        /// Settled records before `next` that the disk no longer has.
        lost: u64,
    },
}

const APPEND_SPILLED: u8 = 1;
const APPEND_SHADOW: u8 = 2;
const RELEASE: u8 = 3;
const MARK: u8 = 4;
const READ: u8 = 5;
const RECORD: u8 = 6;
const DONE: u8 = 7;
const LETTER: u8 = 8;
/// Where in a letter's head the length of its frame is.
const FRAME_LENGTH_AT: usize = 24;

/// A head: what it is, three small numbers, one large one.
fn head(what: u8, first: u32, second: u32, third: u32, large: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = what;
    head[4..8].copy_from_slice(&first.to_le_bytes());
    head[8..12].copy_from_slice(&second.to_le_bytes());
    head[12..16].copy_from_slice(&third.to_le_bytes());
    head[16..24].copy_from_slice(&large.to_le_bytes());
    head
}

pub(super) fn small(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn large(head: &[u8; HEAD]) -> u64 {
    u64::from(small(head, 16)) | u64::from(small(head, 20)) << 32
}

impl<'a> Order<'a> {
    pub(super) fn encode(&self) -> ([u8; HEAD], &'a [u8]) {
        match *self {
            Order::Append { slot, epoch, partition, kind, frame } => {
                let what = if kind == Kind::Shadow { APPEND_SHADOW } else { APPEND_SPILLED };
                (head(what, partition.0, slot, epoch, 0), frame)
            }
            Order::Release { partition, upto } => (head(RELEASE, partition.0, 0, 0, upto), &[]),
            Order::Mark { partition, sequence } => (head(MARK, partition.0, 0, 0, sequence), &[]),
            Order::Read { partition, from, most } => (head(READ, partition.0, most, 0, from), &[]),
        }
    }

    pub(super) fn decode(head: &[u8; HEAD], frame: &'a [u8]) -> Order<'a> {
        let (partition, number) = (PartitionId(small(head, 4)), large(head));
        let append = |kind| Order::Append { slot: small(head, 8), epoch: small(head, 12), partition, kind, frame };
        match head[0] {
            APPEND_SPILLED => append(Kind::Spilled),
            APPEND_SHADOW => append(Kind::Shadow),
            RELEASE => Order::Release { partition, upto: number },
            MARK => Order::Mark { partition, sequence: number },
            READ => Order::Read { partition, from: number, most: small(head, 8) },
            other => unreachable!("order {other} was never written"),
        }
    }
}

impl<'a> LetterOrder<'a> {
    /// The head; the body is the frame and then the detail.
    pub(super) fn head(&self) -> [u8; HEAD] {
        let mut head = head(LETTER, self.partition.0, self.slot, self.attempts.into(), self.failed.0.cast_unsigned());
        (head[1], head[2]) = (self.reason, self.stage as u8);
        head[FRAME_LENGTH_AT..FRAME_LENGTH_AT + 4].copy_from_slice(&(self.frame.len() as u32).to_le_bytes());
        head
    }

    pub(super) fn decode(head: &[u8; HEAD], body: &'a [u8]) -> LetterOrder<'a> {
        let (frame, detail) = body.split_at(small(head, FRAME_LENGTH_AT) as usize);
        LetterOrder {
            slot: small(head, 8),
            partition: PartitionId(small(head, 4)),
            reason: head[1],
            stage: match head[2] {
                0 => Stage::Admit,
                1 => Stage::Publish,
                2 => Stage::Drain,
                _ => Stage::Submit,
            },
            attempts: small(head, 12) as u8,
            failed: UnixMs(large(head).cast_signed()),
            frame,
            detail: std::str::from_utf8(detail).expect("the shard wrote text"),
        }
    }
}

impl<'a> Parcel<'a> {
    pub(super) fn encode(&self) -> ([u8; HEAD], &'a [u8]) {
        match *self {
            Parcel::Record { partition, sequence, frame } => {
                (head(RECORD, partition.0, frame.len() as u32, 0, sequence), frame)
            }
            Parcel::Done { partition, next, lost } => {
                // What is lost of one read fits 32 bits by far: a read is bounded by the log it steps over.
                (head(DONE, partition.0, 0, u32::try_from(lost).unwrap_or(u32::MAX), next), &[])
            }
        }
    }

    pub(super) fn decode(head: &[u8; HEAD], frame: &'a [u8]) -> Parcel<'a> {
        let (partition, number) = (PartitionId(small(head, 4)), large(head));
        match head[0] {
            RECORD => Parcel::Record { partition, sequence: number, frame },
            DONE => Parcel::Done { partition, next: number, lost: small(head, 12).into() },
            other => unreachable!("parcel {other} was never written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_parcels_come_out_as_they_went_in() {
        let partition = PartitionId(9_999);
        let orders = [
            Order::Append { slot: 7, epoch: u32::MAX, partition, kind: Kind::Spilled, frame: b"abc" },
            Order::Append { slot: u32::MAX, epoch: 0, partition, kind: Kind::Shadow, frame: b"" },
            Order::Release { partition, upto: u64::MAX },
            Order::Mark { partition, sequence: 1 << 40 },
            Order::Read { partition, from: 5, most: 1_000 },
        ];
        for order in orders {
            let (head, body) = order.encode();
            assert_eq!(Order::decode(&head, body), order);
        }
        let letter = LetterOrder {
            slot: 3,
            partition,
            reason: 255,
            stage: Stage::Drain,
            attempts: 255,
            failed: UnixMs(-5),
            frame: b"frame",
            detail: "said the broker",
        };
        assert_eq!(LetterOrder::decode(&letter.head(), b"framesaid the broker"), letter);
        let parcels = [
            Parcel::Record { partition, sequence: u64::MAX - 1, frame: b"frame" },
            Parcel::Done { partition, next: 12, lost: 3 },
        ];
        for parcel in parcels {
            let (head, body) = parcel.encode();
            assert_eq!(Parcel::decode(&head, body), parcel);
        }
    }
}

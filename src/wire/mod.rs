//! The frame: a trigger as the value of a Kafka record, protobuf `fencepost.v1.Trigger` (`trigger.proto`).
//!
//! [`encode`] writes the canonical form into the caller's memory, byte for byte what a generated encoder writes, without
//! allocating. [`decode`] borrows from the bytes it reads, refuses what is not a frame of version 1 with the place of the
//! fault, never panics, and keeps fields it does not know so that [`Decoded::encode`] writes them again.
//!
//! Cost: `benches/encode.rs`, `benches/decode.rs`.

mod decode;
mod encode;
#[cfg(test)]
mod oracle;

pub use decode::{DecodeError, Decoded, Unknown, decode, decode_unrouted};
pub use encode::{device_id_range, device_id_start, encode, encode_with_unknown, encoded_len};

use crate::hlc::Hlc;
use crate::trigger::rules::{ATTRIBUTES_BYTES_MAX, ID_BYTES};
use crate::trigger::{Key, Priority, State};
use crate::units::UnixMicros;
use std::ops::RangeInclusive;

/// The schema, as published to consumers.
pub const SCHEMA: &str = include_str!("trigger.proto");

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// How many bytes a router id may have.
pub const ROUTER_ID_BYTES: RangeInclusive<usize> = 1..=32;

/// The most bytes [`encode`] writes: every field there, each at its longest.
pub const FRAME_BYTES_MAX: usize = {
    const TAG: usize = 1;
    const VARINT64: usize = 10;
    const VARINT32: usize = 5;
    let id = TAG + 2 + *ID_BYTES.end();
    let state = TAG + 1;
    let version = TAG + 1;
    let priority = TAG + 1;
    let attributes = TAG + 2 + ATTRIBUTES_BYTES_MAX;
    let router = TAG + 1 + *ROUTER_ID_BYTES.end();
    let times = (TAG + VARINT64) + (TAG + 8) + (TAG + VARINT64);
    let counts = (TAG + VARINT64) + (TAG + VARINT64) + (TAG + VARINT32);
    version + id + id + state + times + priority + attributes + router + counts
};

/// What is in a frame of version 1. The ids are UTF-8 text: checked at submit on the way in, by [`decode`] on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Who moved; [`ID_BYTES`] bytes.
    pub device_id: &'a [u8],
    /// Which fence; [`ID_BYTES`] bytes.
    pub fence_id: &'a [u8],
    /// What happened.
    pub state: State,
    /// When it happened, in Unix milliseconds.
    pub event_time_ms: i64,
    /// The router's stamp: rises strictly from trigger to trigger of a device.
    pub hlc: Hlc,
    /// When the router accepted the trigger.
    pub accepted: UnixMicros,
    /// Who is shed first.
    pub priority: Priority,
    /// Opaque bytes for the consumer; at most [`ATTRIBUTES_BYTES_MAX`].
    pub attributes: &'a [u8],
    /// Which router; [`ROUTER_ID_BYTES`] bytes.
    pub router_id: &'a [u8],
    /// Which run of the router.
    pub incarnation: u64,
    /// 1, 2, 3 … for each router, incarnation and partition.
    pub partition_seq: u64,
    /// Which part of a split hot device; 0 if it is not split.
    pub salt: u32,
}

impl<'a> Frame<'a> {
    /// The idempotency key of the trigger inside.
    #[must_use]
    pub const fn key(&self) -> Key<'a> {
        Key {
            device_id: self.device_id,
            fence_id: self.fence_id,
            state: self.state,
            event_second: self.event_time_ms.div_euclid(1_000),
        }
    }
}

/// A field of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    number: u32,
    name: &'static str,
    wire_type: u8,
}

/// How a value is laid out, in the three low bits of a field's tag.
mod wire_type {
    pub const VARINT: u8 = 0;
    pub const FIXED64: u8 = 1;
    pub const LEN: u8 = 2;
    pub const FIXED32: u8 = 5;
}

/// The fields of version 1, in the order of their numbers. The encoder's tags and the decoder's names come from here.
mod field {
    use super::Field;
    use super::wire_type::{FIXED64, LEN, VARINT};

    pub const FIELDS: [Field; 13] = [
        VERSION,
        DEVICE_ID,
        FENCE_ID,
        STATE,
        EVENT_TIME_MS,
        HLC,
        ACCEPTED_UNIX_US,
        PRIORITY,
        ATTRIBUTES,
        ROUTER_ID,
        INCARNATION,
        PARTITION_SEQ,
        SALT,
    ];
    pub const VERSION: Field = Field { number: 1, name: "version", wire_type: VARINT };
    pub const DEVICE_ID: Field = Field { number: 2, name: "device_id", wire_type: LEN };
    pub const FENCE_ID: Field = Field { number: 3, name: "fence_id", wire_type: LEN };
    pub const STATE: Field = Field { number: 4, name: "state", wire_type: VARINT };
    pub const EVENT_TIME_MS: Field = Field { number: 5, name: "event_time_ms", wire_type: VARINT };
    pub const HLC: Field = Field { number: 6, name: "hlc", wire_type: FIXED64 };
    pub const ACCEPTED_UNIX_US: Field = Field { number: 7, name: "accepted_unix_us", wire_type: VARINT };
    pub const PRIORITY: Field = Field { number: 8, name: "priority", wire_type: VARINT };
    pub const ATTRIBUTES: Field = Field { number: 9, name: "attributes", wire_type: LEN };
    pub const ROUTER_ID: Field = Field { number: 10, name: "router_id", wire_type: LEN };
    pub const INCARNATION: Field = Field { number: 11, name: "incarnation", wire_type: VARINT };
    pub const PARTITION_SEQ: Field = Field { number: 12, name: "partition_seq", wire_type: VARINT };
    pub const SALT: Field = Field { number: 13, name: "salt", wire_type: VARINT };
}

impl Field {
    /// The byte that opens the field. Every number of version 1 fits into one byte.
    const fn tag(self) -> u8 {
        assert!(self.number < 16, "a tag of one byte");
        (self.number as u8) << 3 | self.wire_type
    }
}

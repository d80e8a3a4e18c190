//! How a trigger lies in the ring: a header of 40 bytes, then the device's, the fence's and the attributes' bytes, in
//! as many whole cache lines as that takes. Ids of 24 bytes in all cost one line, of 88 bytes two; the longest record,
//! 25. What is left of the last line is never read.

pub use crate::trigger::rules::ATTRIBUTES_BYTES_MAX;
use crate::trigger::rules::ID_BYTES;
use crate::trigger::{Priority, State};
use crate::units::{Nanos, PartitionId, Seq};
use bytemuck::{Pod, Zeroable};

/// The longest id, in bytes, by the rules of a trigger; the shortest is 1. An id's length travels as one byte: length
/// less one.
pub const ID_BYTES_MAX: usize = *ID_BYTES.end();
/// The longest record, in cache lines: what a ring must have room for.
pub const RECORD_LINES_MAX: usize = lines_of(ID_BYTES_MAX + ID_BYTES_MAX + ATTRIBUTES_BYTES_MAX);

/// A trigger on its way from an ingress to its shard. The writer copies it in; the reader sees it in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// Its place in its ingress.
    pub seq: Seq,
    /// When submit accepted it.
    pub accepted: Nanos,
    /// When it happened, in Unix milliseconds.
    pub event_time_ms: i64,
    /// The hash of its idempotency key.
    pub hash: u64,
    /// The partition it goes to.
    pub partition: PartitionId,
    /// What the device did.
    pub state: State,
    /// Who is shed first.
    pub priority: Priority,
    /// The device's bytes, 1 to 256.
    pub device_id: &'a [u8],
    /// The fence's bytes, 1 to 256.
    pub fence_id: &'a [u8],
    /// Opaque bytes for the consumer, at most 1,024.
    pub attributes: &'a [u8],
}

impl Incoming<'_> {
    /// The bytes of its ids and attributes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.device_id.len() + self.fence_id.len() + self.attributes.len()
    }
}

/// The unit of the ring.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u8; LINE_BYTES]);

pub(super) const LINE_BYTES: usize = 64;

impl Default for Line {
    fn default() -> Line {
        Line([0; LINE_BYTES])
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    seq: u64,
    accepted: u64,
    event_time_ms: i64,
    hash: u64,
    partition: u32,
    device_less_one: u8,
    fence_less_one: u8,
    /// Bits 0 to 10 the length of the attributes, 11 and 12 the state, 13 and 14 the priority.
    packed: u16,
}

const HEADER_BYTES: usize = size_of::<Header>();
const ATTRIBUTES_BITS: u32 = 11;
const STATE_BITS: u32 = 2;

const _: () = assert!(size_of::<Line>() == LINE_BYTES, "a line is a cache line");
const _: () = assert!(HEADER_BYTES == 40, "ids of 24 bytes in all fit one line, of 88 bytes two");
const _: () = assert!(RECORD_LINES_MAX == 25, "the documentation says 25");
const _: () = assert!(ATTRIBUTES_BYTES_MAX < 1 << ATTRIBUTES_BITS && ID_BYTES_MAX - 1 == u8::MAX as usize);
const _: () = assert!((State::Dwell as u16) < 1 << STATE_BITS && (Priority::High as u16) < 1 << 2);

/// The cache lines of a record whose ids and attributes are `bytes` long in all.
#[must_use]
pub const fn lines_of(bytes: usize) -> usize {
    (HEADER_BYTES + bytes).div_ceil(LINE_BYTES)
}

/// Writes a record to `place`, which has its [`lines_of`].
///
/// # Panics
/// If a part is longer (or an id shorter) than a record can say: the record behind it would be read from the wrong
/// line, so this is checked in every build. Submit refuses such a trigger before.
#[inline]
pub(super) fn encode(incoming: &Incoming<'_>, place: &mut [Line]) {
    let (device, fence, attributes) = (incoming.device_id, incoming.fence_id, incoming.attributes);
    assert!(
        device.len().wrapping_sub(1) < ID_BYTES_MAX
            && fence.len().wrapping_sub(1) < ID_BYTES_MAX
            && attributes.len() <= ATTRIBUTES_BYTES_MAX,
        "a record's parts are 1..=256, 1..=256 and 0..=1024 bytes; got {}, {} and {}",
        device.len(),
        fence.len(),
        attributes.len()
    );
    let header = Header {
        seq: incoming.seq.0,
        accepted: incoming.accepted.0,
        event_time_ms: incoming.event_time_ms,
        hash: incoming.hash,
        partition: incoming.partition.0,
        device_less_one: (device.len() - 1) as u8,
        fence_less_one: (fence.len() - 1) as u8,
        packed: attributes.len() as u16
            | (incoming.state as u16) << ATTRIBUTES_BITS
            | (incoming.priority as u16) << (ATTRIBUTES_BITS + STATE_BITS),
    };
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(place);
    let (head, rest) = bytes.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(bytemuck::bytes_of(&header));
    let (part, rest) = rest.split_at_mut(device.len());
    part.copy_from_slice(device);
    let (part, rest) = rest.split_at_mut(fence.len());
    part.copy_from_slice(fence);
    // Most triggers have none, and a call that copies no bytes costs 2.7 of 16.7 ns (benches/ring.rs, ids of 80 bytes).
    if !attributes.is_empty() {
        rest[..attributes.len()].copy_from_slice(attributes);
    }
}

/// A record's header, read from its first line.
#[derive(Clone, Copy)]
pub(super) struct Head(Header);

impl Head {
    #[inline]
    pub(super) fn of(line: &Line) -> Head {
        Head(bytemuck::pod_read_unaligned(&line.0[..HEADER_BYTES]))
    }

    fn device(&self) -> usize {
        usize::from(self.0.device_less_one) + 1
    }

    fn fence(&self) -> usize {
        usize::from(self.0.fence_less_one) + 1
    }

    fn attributes(&self) -> usize {
        usize::from(self.0.packed) & ((1 << ATTRIBUTES_BITS) - 1)
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// The lines of the whole record.
    #[inline]
    pub(super) fn lines(&self) -> usize {
        lines_of(self.device() + self.fence() + self.attributes())
    }

    /// The record, given all its lines.
    #[inline]
    pub(super) fn incoming<'a>(&self, record: &'a [Line]) -> Incoming<'a> {
        let bytes: &[u8] = &bytemuck::cast_slice(record)[HEADER_BYTES..];
        let (device_id, bytes) = bytes.split_at(self.device());
        let (fence_id, bytes) = bytes.split_at(self.fence());
        let state = (self.0.packed >> ATTRIBUTES_BITS) as u8 & 3;
        let priority = (self.0.packed >> (ATTRIBUTES_BITS + STATE_BITS)) as u8 & 3;
        Incoming {
            seq: Seq(self.0.seq),
            accepted: Nanos(self.0.accepted),
            event_time_ms: self.0.event_time_ms,
            hash: self.0.hash,
            partition: PartitionId(self.0.partition),
            state: State::from_number(state).expect("only encode writes headers"),
            priority: Priority::from_number(priority).expect("only encode writes headers"),
            device_id,
            fence_id,
            attributes: &bytes[..self.attributes()],
        }
    }
}

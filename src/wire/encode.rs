//! Frame → bytes, in one pass: fields in the order of their numbers, a field left out when it holds its default, as a
//! generated encoder does. The writer walks the place with checked splits; a place too short is a panic, not a cut frame.

use super::field;
use super::{Frame, Unknown, VERSION};
use std::ops::Range;

/// How many bytes [`encode`] writes for this frame.
#[inline]
#[must_use]
pub const fn encoded_len(frame: &Frame<'_>) -> usize {
    // Version and state are never left out.
    let always = 2 + 2;
    let ids = text_len(frame.device_id) + text_len(frame.fence_id) + text_len(frame.router_id);
    let times = int_len(frame.event_time_ms as u64) + int_len(frame.accepted.0 as u64);
    let hlc = if frame.hlc.0 == 0 { 0 } else { 1 + 8 };
    let priority = 2;
    let attributes = text_len(frame.attributes);
    let counts = int_len(frame.incarnation) + int_len(frame.partition_seq) + int_len(frame.salt as u64);
    always + ids + times + hlc + priority + attributes + counts
}

/// Writes the frame to the start of `place` and returns how many bytes it took. What lies behind them is untouched.
///
/// # Panics
/// If `place` is shorter than [`encoded_len`]. (A frame whose fields obey their limits never takes more than
/// [`super::FRAME_BYTES_MAX`].)
///
/// ```
/// use fencepost::{hlc::Hlc, trigger::{Priority, State}, units::UnixMicros, wire};
///
/// let frame = wire::Frame {
///     device_id: b"bus-7", fence_id: b"depot", state: State::Enter, event_time_ms: 1_772_000_000_000,
///     hlc: Hlc::new(1_772_000_000_003, 0), accepted: UnixMicros(1_772_000_000_003_000), priority: Priority::Normal,
///     attributes: b"", router_id: b"r1", incarnation: 1, partition_seq: 1, salt: 0,
/// };
/// let mut place = [0; wire::FRAME_BYTES_MAX];
/// let len = wire::encode(&frame, &mut place);
/// assert_eq!(len, wire::encoded_len(&frame));
/// assert_eq!(wire::decode(&place[..len]).unwrap().frame, frame);
/// ```
#[inline]
pub fn encode(frame: &Frame<'_>, place: &mut [u8]) -> usize {
    let whole = place.len();
    let mut out = Writer { rest: place };
    out.bytes([field::VERSION.tag(), VERSION as u8, field::DEVICE_ID.tag()]);
    out.text_without_tag(frame.device_id);
    out.text(field::FENCE_ID.tag(), frame.fence_id);
    out.bytes([field::STATE.tag(), frame.state as u8]);
    out.int(field::EVENT_TIME_MS.tag(), frame.event_time_ms as u64);
    if frame.hlc.0 != 0 {
        let [a, b, c, d, e, f, g, h] = frame.hlc.0.to_le_bytes();
        out.bytes([field::HLC.tag(), a, b, c, d, e, f, g, h]);
    }
    out.int(field::ACCEPTED_UNIX_US.tag(), frame.accepted.0 as u64);
    out.bytes([field::PRIORITY.tag(), frame.priority as u8]);
    out.text(field::ATTRIBUTES.tag(), frame.attributes);
    out.text(field::ROUTER_ID.tag(), frame.router_id);
    out.int(field::INCARNATION.tag(), frame.incarnation);
    out.int(field::PARTITION_SEQ.tag(), frame.partition_seq);
    out.int(field::SALT.tag(), u64::from(frame.salt));
    whole - out.rest.len()
}

/// Writes the frame and behind it the unknown fields of another one, byte for byte and in their order.
///
/// # Panics
/// If `place` is shorter than [`encoded_len`] and [`Unknown::len`] together.
pub fn encode_with_unknown(frame: &Frame<'_>, unknown: &Unknown<'_>, place: &mut [u8]) -> usize {
    let known = encode(frame, place);
    let mut at = known;
    for raw in unknown.iter() {
        place[at..at + raw.len()].copy_from_slice(raw);
        at += raw.len();
    }
    at
}

/// Where a device id of so many bytes starts in a frame that [`encode`] writes.
#[inline]
#[must_use]
pub const fn device_id_start(device_len: usize) -> usize {
    // Behind the version and the id's own tag and length, which takes a second byte from 128 on.
    if device_len < 0x80 { 4 } else { 5 }
}

/// Where the device id lies in a frame that [`encode`] wrote; its bytes are the key of the Kafka record too.
///
/// # Panics
/// If the bytes are no such frame (in release builds only if they end before the id starts).
#[inline]
#[must_use]
pub fn device_id_range(frame: &[u8]) -> Range<usize> {
    debug_assert_eq!(frame[..3], [field::VERSION.tag(), VERSION as u8, field::DEVICE_ID.tag()]);
    // An id has at most 256 bytes, so its length takes one byte or two.
    let (start, len) = match frame[3] {
        short @ 0..0x80 => (4, usize::from(short)),
        low => (5, usize::from(low & 0x7f) | usize::from(frame[4]) << 7),
    };
    start..start + len
}

/// Bytes of a length-delimited field with its tag; none if it is empty.
const fn text_len(text: &[u8]) -> usize {
    if text.is_empty() { 0 } else { 1 + varint_len(text.len() as u64) + text.len() }
}

/// Bytes of an integer field with its tag; none if it is 0.
const fn int_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint_len(value) }
}

/// Bytes of a varint: 7 bits in each.
const fn varint_len(value: u64) -> usize {
    // (bits + 6) / 7 without a division: 9 / 64 is close enough to 1 / 7 for every number of bits up to 64.
    let bits = u64::BITS - (value | 1).leading_zeros();
    (bits as usize * 9 + 64) / 64
}

/// The part of the place that is still to be written.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// The next `len` bytes.
    #[inline(always)]
    fn take(&mut self, len: usize) -> &'a mut [u8] {
        let (head, rest) = std::mem::take(&mut self.rest).split_at_mut(len);
        self.rest = rest;
        head
    }

    #[inline(always)]
    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        let Some((head, rest)) = std::mem::take(&mut self.rest).split_first_chunk_mut::<N>() else { too_short() };
        *head = bytes;
        self.rest = rest;
    }

    /// A length-delimited field, left out if empty.
    #[inline(always)]
    fn text(&mut self, tag: u8, text: &[u8]) {
        if !text.is_empty() {
            self.bytes([tag]);
            self.text_without_tag(text);
        }
    }

    /// Length and bytes. A text of the schema has at most 1,024 bytes, so its length takes one byte or two.
    #[inline(always)]
    fn text_without_tag(&mut self, text: &[u8]) {
        debug_assert!(text.len() < 1 << 14, "every text of the schema is far shorter");
        let len = text.len();
        if len < 0x80 {
            self.bytes([len as u8]);
        } else {
            self.bytes([len as u8 | 0x80, (len >> 7) as u8]);
        }
        self.take(len).copy_from_slice(text);
    }

    /// An integer field, left out if 0.
    #[inline(always)]
    fn int(&mut self, tag: u8, value: u64) {
        if value == 0 {
            return;
        }
        let len = varint_len(value);
        let place = self.take(1 + len);
        place[0] = tag;
        let place = &mut place[1..];
        if value >= 1 << 56 {
            return long_varint(value, place);
        }
        let groups = spread(value) | CONTINUED & ((1 << (8 * (len - 1))) - 1);
        // Dates take 6 and 8 bytes: two stores of 4 that may overlap, rather than one for each byte.
        if len >= 4 {
            let Some(low) = place.first_chunk_mut::<4>() else { too_short() };
            *low = (groups as u32).to_le_bytes();
            let Some(high) = place.last_chunk_mut::<4>() else { too_short() };
            *high = ((groups >> (8 * (len - 4))) as u32).to_le_bytes();
        } else {
            for (byte, group) in place.iter_mut().zip(groups.to_le_bytes()) {
                *byte = group;
            }
        }
    }
}

/// The bit that says "another byte follows", in each byte.
pub(super) const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// Spreads 56 bits over 8 bytes, 7 to each, the lowest first: halves, quarters, eighths.
#[inline(always)]
const fn spread(value: u64) -> u64 {
    let halves = (value & 0x00ff_ffff_f000_0000) << 4 | (value & 0x0fff_ffff);
    let quarters = (halves & 0x0fff_c000_0fff_c000) << 2 | (halves & 0x0000_3fff_0000_3fff);
    (quarters & 0x3f80_3f80_3f80_3f80) << 1 | (quarters & 0x007f_007f_007f_007f)
}

/// Undoes [`spread`]: 7 bits of each of 8 bytes, the top bits clear, become 56 bits.
#[inline(always)]
pub(super) const fn gather(groups: u64) -> u64 {
    let quarters = (groups & 0x7f00_7f00_7f00_7f00) >> 1 | (groups & 0x007f_007f_007f_007f);
    let halves = (quarters & 0x3fff_0000_3fff_0000) >> 2 | (quarters & 0x0000_3fff_0000_3fff);
    (halves & 0x0fff_ffff_0000_0000) >> 4 | (halves & 0x0fff_ffff)
}

/// A varint of 9 or 10 bytes: dates before 1970 and after the year 36,000,000. `place` has exactly its length.
#[cold]
fn long_varint(mut value: u64, place: &mut [u8]) {
    let last = place.len() - 1;
    for byte in &mut place[..last] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    place[last] = value as u8;
}

#[cold]
fn too_short() -> ! {
    panic!("the place for a frame is shorter than encoded_len says")
}

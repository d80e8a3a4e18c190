//! Bytes → frame. Strict where a guess could deliver a wrong trigger, lenient where protobuf is: fields in any order, the
//! last of a repeated field wins, varints may be padded, unknown fields are kept.

use super::encode::{CONTINUED, gather};
use super::field::{self, FIELDS};
use super::wire_type::{FIXED32, FIXED64, LEN, VARINT};
use super::{Frame, ROUTER_ID_BYTES, VERSION, encode_with_unknown, encoded_len};
use crate::hlc::Hlc;
use crate::trigger::rules::{ATTRIBUTES_BYTES_MAX, ID_BYTES};
use crate::trigger::{Priority, State};
use crate::units::UnixMicros;
use std::ops::RangeInclusive;
use thiserror::Error;

/// A frame, borrowed from the bytes it was read from, and the fields that this version does not know.
#[derive(Clone, Copy, Debug)]
pub struct Decoded<'a> {
    /// The fields of version 1.
    pub frame: Frame<'a>,
    /// The others, raw.
    pub unknown: Unknown<'a>,
}

impl Decoded<'_> {
    /// How many bytes [`Decoded::encode`] writes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        encoded_len(&self.frame) + self.unknown.len()
    }

    /// Writes the known fields in the canonical form, then the unknown ones byte for byte.
    ///
    /// # Panics
    /// If `place` is shorter than [`Decoded::encoded_len`].
    pub fn encode(&self, place: &mut [u8]) -> usize {
        encode_with_unknown(&self.frame, &self.unknown, place)
    }
}

/// The fields of a frame that version 1 does not know, in the order they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unknown<'a> {
    /// The whole frame, already found good: the fields are looked up again when somebody wants them.
    frame: &'a [u8],
    /// Their bytes, tags and lengths included.
    len: usize,
}

impl<'a> Unknown<'a> {
    /// How many bytes they take, tags included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none, which is the rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each of them, tag included.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let frame = self.frame;
        let mut reader = Reader { bytes: if self.len == 0 { &[] } else { frame }, at: 0 };
        std::iter::from_fn(move || {
            while reader.at < reader.bytes.len() {
                let start = reader.at;
                // `decode` walked the same bytes before without an error.
                let raw = reader.field().ok()?;
                if raw.number as usize > FIELDS.len() {
                    return Some(&frame[start..reader.at]);
                }
            }
            None
        })
    }
}

/// Why bytes are no frame of version 1. Such a record is poison: set aside whole, never repaired. `offset` counts bytes
/// from the start of the frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A later schema, or no frame at all (0). Once such a version is read, it is what is reported, whatever follows.
    #[error(
        "version = {got}, allowed {VERSION}; {}",
        if *got == 0 { "these bytes are no frame" } else { "read it with a fencepost that knows that version" }
    )]
    UnknownVersion {
        /// The number that came; 0 if there was none.
        got: u64,
    },
    /// The frame ends inside a field.
    #[error("the frame ends inside the field that starts at byte {offset}; it was cut")]
    Truncated {
        /// Where the field, or the varint inside it, starts.
        offset: usize,
    },
    /// A varint of more than 64 bits.
    #[error("the varint at byte {offset} has more than 64 bits; these bytes are no frame, or damaged")]
    VarintTooLong {
        /// Where it starts.
        offset: usize,
    },
    /// A tag that protobuf does not allow: field 0, a field above 536,870,911, a group, or a type that does not exist.
    #[error("the tag {got} at byte {offset} is none that a schema of fencepost has; these bytes are no frame")]
    BadTag {
        /// The tag as it came.
        got: u64,
        /// Where it starts.
        offset: usize,
    },
    /// A known field, laid out as another type.
    #[error("{field} at byte {offset} has wire type {got}, allowed {allowed}; these bytes follow another schema")]
    WrongWireType {
        /// Its name in the schema.
        field: &'static str,
        /// The type that came.
        got: u8,
        /// The type it has.
        allowed: u8,
        /// Where the field starts.
        offset: usize,
    },
    /// A text that is none.
    #[error("{field} is not UTF-8: the byte at {offset} starts no character")]
    NotUtf8 {
        /// Its name in the schema.
        field: &'static str,
        /// Where the bad byte lies.
        offset: usize,
    },
    /// Fewer or more bytes than a trigger may have there; a missing id counts as 0 bytes.
    #[error("{field} has {len} bytes, allowed {allowed:?}")]
    BadLength {
        /// Its name in the schema.
        field: &'static str,
        /// Bytes that came.
        len: usize,
        /// Bytes a trigger may have there.
        allowed: RangeInclusive<usize>,
    },
    /// A number without a meaning; 0 if the field is missing.
    #[error("{field} = {got}, allowed {allowed:?}")]
    BadNumber {
        /// Its name in the schema.
        field: &'static str,
        /// The number that came.
        got: u64,
        /// The numbers that have a meaning.
        allowed: RangeInclusive<u64>,
    },
}

impl DecodeError {
    /// A short name for metrics and dead letters. It never changes; a new fault gets a new one.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            DecodeError::UnknownVersion { .. } => "unknown_version",
            DecodeError::Truncated { .. } => "frame_truncated",
            DecodeError::VarintTooLong { .. } => "frame_varint_too_long",
            DecodeError::BadTag { .. } => "frame_bad_tag",
            DecodeError::WrongWireType { .. } => "frame_wrong_wire_type",
            DecodeError::NotUtf8 { .. } => "frame_not_utf8",
            DecodeError::BadLength { .. } => "frame_bad_length",
            DecodeError::BadNumber { .. } => "frame_bad_number",
        }
    }
}

/// Reads a frame.
///
/// # Errors
/// [`DecodeError`]: what is wrong and where. No input makes it panic.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, DecodeError> {
    decode_from(bytes, ROUTER_ID_BYTES)
}

/// Reads a frame on its way to a router, such as an evaluator writes: like [`decode`], but it may lack what a router sets.
///
/// # Errors
/// As [`decode`].
pub fn decode_unrouted(bytes: &[u8]) -> Result<Decoded<'_>, DecodeError> {
    decode_from(bytes, 0..=*ROUTER_ID_BYTES.end())
}

#[inline(always)]
fn decode_from(bytes: &[u8], router_id_bytes: RangeInclusive<usize>) -> Result<Decoded<'_>, DecodeError> {
    let mut version = None;
    match fields(bytes, &mut version, router_id_bytes) {
        // A later version may well break the rules of this one: then the version is what is wrong.
        Err(_) if version.is_some_and(|got| got != u64::from(VERSION)) => {
            Err(DecodeError::UnknownVersion { got: version.unwrap_or(0) })
        }
        result => result,
    }
}

fn fields<'a>(
    bytes: &'a [u8],
    version: &mut Option<u64>,
    router_id_bytes: RangeInclusive<usize>,
) -> Result<Decoded<'a>, DecodeError> {
    let mut reader = Reader { bytes, at: 0 };
    let (mut device_id, mut fence_id, mut router_id, mut attributes): (&[u8], &[u8], &[u8], &[u8]) =
        (&[], &[], &[], &[]);
    let (mut state, mut event_time_ms, mut hlc, mut accepted, mut priority) = (0, 0, 0, 0, 0);
    let (mut incarnation, mut partition_seq, mut salt) = (0, 0, 0);
    let mut unknown_len = 0;
    while reader.at < bytes.len() {
        let offset = reader.at;
        let raw = reader.field()?;
        let Some(known) = FIELDS.get(raw.number as usize - 1) else {
            unknown_len += reader.at - offset;
            continue;
        };
        if raw.wire_type != known.wire_type {
            let (field, got, allowed) = (known.name, raw.wire_type, known.wire_type);
            return Err(DecodeError::WrongWireType { field, got, allowed, offset });
        }
        match raw.number {
            1 => *version = Some(raw.int),
            2 => device_id = text(field::DEVICE_ID.name, raw.bytes, reader.at)?,
            3 => fence_id = text(field::FENCE_ID.name, raw.bytes, reader.at)?,
            4 => state = raw.int,
            5 => event_time_ms = raw.int as i64,
            6 => hlc = raw.int,
            7 => accepted = raw.int as i64,
            8 => priority = raw.int,
            9 => attributes = raw.bytes,
            10 => router_id = text(field::ROUTER_ID.name, raw.bytes, reader.at)?,
            11 => incarnation = raw.int,
            12 => partition_seq = raw.int,
            13 => salt = raw.int,
            _ => unreachable!("FIELDS has 13 entries"),
        }
    }
    let got = version.unwrap_or(0);
    if got != u64::from(VERSION) {
        return Err(DecodeError::UnknownVersion { got });
    }
    let frame = Frame {
        device_id: of_length(field::DEVICE_ID.name, device_id, ID_BYTES)?,
        fence_id: of_length(field::FENCE_ID.name, fence_id, ID_BYTES)?,
        state: u8::try_from(state).ok().and_then(State::from_number).ok_or(DecodeError::BadNumber {
            field: field::STATE.name,
            got: state,
            allowed: State::Enter as u64..=State::Dwell as u64,
        })?,
        event_time_ms,
        hlc: Hlc(hlc),
        accepted: UnixMicros(accepted),
        priority: match u8::try_from(priority).ok() {
            Some(0) => Some(Priority::Normal),
            number => number.and_then(Priority::from_number),
        }
        .ok_or(DecodeError::BadNumber {
            field: field::PRIORITY.name,
            got: priority,
            allowed: 0..=Priority::High as u64,
        })?,
        attributes: of_length(field::ATTRIBUTES.name, attributes, 0..=ATTRIBUTES_BYTES_MAX)?,
        router_id: of_length(field::ROUTER_ID.name, router_id, router_id_bytes)?,
        incarnation,
        partition_seq,
        salt: u32::try_from(salt).map_err(|_| DecodeError::BadNumber {
            field: field::SALT.name,
            got: salt,
            allowed: 0..=u64::from(u32::MAX),
        })?,
    };
    Ok(Decoded { frame, unknown: Unknown { frame: bytes, len: unknown_len } })
}

/// `bytes` if they are text; they end at `end`.
#[inline]
fn text<'a>(field: &'static str, bytes: &'a [u8], end: usize) -> Result<&'a [u8], DecodeError> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(DecodeError::NotUtf8 { field, offset: end - bytes.len() + error.valid_up_to() }),
    }
}

/// `bytes` if there are as many as a trigger may have.
#[inline]
fn of_length<'a>(
    field: &'static str,
    bytes: &'a [u8],
    allowed: RangeInclusive<usize>,
) -> Result<&'a [u8], DecodeError> {
    if allowed.contains(&bytes.len()) {
        Ok(bytes)
    } else {
        Err(DecodeError::BadLength { field, len: bytes.len(), allowed })
    }
}

/// A field as it lies in the bytes: `int` holds a varint or a fixed number, `bytes` the content of a length-delimited one.
struct Raw<'a> {
    number: u32,
    wire_type: u8,
    int: u64,
    bytes: &'a [u8],
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next field. `at` is below the length of the bytes.
    #[inline(always)]
    fn field(&mut self) -> Result<Raw<'a>, DecodeError> {
        let offset = self.at;
        let tag = self.varint()?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number @ 1..0x2000_0000) => number,
            _ => return Err(DecodeError::BadTag { got: tag, offset }),
        };
        let wire_type = tag as u8 & 7;
        let (mut int, mut bytes): (u64, &[u8]) = (0, &[]);
        match wire_type {
            VARINT => int = self.varint()?,
            FIXED64 => int = u64::from_le_bytes(self.chunk(offset)?),
            FIXED32 => int = u64::from(u32::from_le_bytes(self.chunk(offset)?)),
            LEN => {
                let len = self.varint()?;
                let rest = &self.bytes[self.at..];
                let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
                bytes = &rest[..len.ok_or(DecodeError::Truncated { offset })?];
                self.at += bytes.len();
            }
            _ => return Err(DecodeError::BadTag { got: tag, offset }),
        }
        Ok(Raw { number, wire_type, int, bytes })
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.varint_in_a_word(),
        }
    }

    /// A varint that ends within the next 8 bytes, all at once: dates are the rule, and take 6 and 8.
    #[inline(always)]
    fn varint_in_a_word(&mut self) -> Result<u64, DecodeError> {
        if let Some(word) = self.bytes[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & CONTINUED;
            if ends != 0 {
                // Of the lowest clear top bit, everything up to it: the bytes of this varint.
                let upto = ends ^ (ends - 1);
                self.at += (ends.trailing_zeros() as usize + 1) / 8;
                return Ok(gather(word & upto & !CONTINUED));
            }
        }
        self.varint_of_many()
    }

    /// Byte by byte: close to the end of the frame, or 9 and 10 bytes long.
    fn varint_of_many(&mut self) -> Result<u64, DecodeError> {
        let offset = self.at;
        let mut value = 0;
        for (place, &byte) in self.bytes[offset..].iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                // Nine bytes hold 63 bits; the tenth may hold one more.
                if place == 9 && byte > 1 {
                    break;
                }
                self.at = offset + place + 1;
                return Ok(value);
            }
        }
        if self.bytes.len() - offset < 10 {
            Err(DecodeError::Truncated { offset })
        } else {
            Err(DecodeError::VarintTooLong { offset })
        }
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self, offset: usize) -> Result<[u8; N], DecodeError> {
        let chunk = self.bytes[self.at..].first_chunk::<N>().ok_or(DecodeError::Truncated { offset })?;
        self.at += N;
        Ok(*chunk)
    }
}

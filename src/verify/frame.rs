//! Reads `fencepost.v1.Trigger` from a record's value, for the checkers alone: a plain protobuf reader that shares
//! nothing with the router's encoder. It allocates nothing and refuses what it does not understand; fields with
//! unknown numbers are stepped over.

use crate::trigger::{Priority, State};
use thiserror::Error;

/// The version of the frame that these checkers understand.
pub const VERSION: u32 = 1;

/// A frame, field by field, borrowed from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Field 2.
    pub device_id: &'a str,
    /// Field 3.
    pub fence_id: &'a str,
    /// Field 4.
    pub state: State,
    /// Field 5.
    pub event_time_ms: i64,
    /// Field 6: the hybrid logical clock, 48 bits of milliseconds and 16 of counter.
    pub hlc: u64,
    /// Field 7: when the router accepted it, in Unix microseconds.
    pub accepted_unix_us: i64,
    /// Field 8.
    pub priority: Priority,
    /// Field 9.
    pub attributes: &'a [u8],
    /// Field 10.
    pub router_id: &'a str,
    /// Field 11: rises at each start of the router.
    pub incarnation: u64,
    /// Field 12: 1, 2, 3 … per router, incarnation and partition.
    pub partition_seq: u64,
    /// Field 13: 0, or the k of the Kafka key `device#k` of a hot device.
    pub salt: u32,
}

/// Why a value is no frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The value ends inside a field.
    #[error("the value ends inside a field, at byte {at}")]
    Cut {
        /// Where.
        at: usize,
    },
    /// A number is longer than protobuf allows, or than its field.
    #[error("field {field} holds a number that is too large, at byte {at}")]
    TooLarge {
        /// Which field; 0 while its number is read.
        field: u64,
        /// Where.
        at: usize,
    },
    /// A field is encoded as another type.
    #[error("field {field} has wire type {wire_type}, at byte {at}")]
    WireType {
        /// Which field.
        field: u64,
        /// What came.
        wire_type: u64,
        /// Where.
        at: usize,
    },
    /// Text that is no UTF-8.
    #[error("field {field} is not UTF-8")]
    NotUtf8 {
        /// Which field.
        field: u64,
    },
    /// Another version than [`VERSION`].
    #[error("version {got}, these checkers understand {VERSION}")]
    Version {
        /// What came; 0 when the field is missing.
        got: u32,
    },
    /// A number that names no state or priority.
    #[error("field {field} has the value {got}, which names nothing")]
    Unnamed {
        /// Which field.
        field: u64,
        /// What came.
        got: u64,
    },
    /// No device, or no fence.
    #[error("field {field} is missing or empty")]
    Missing {
        /// Which field.
        field: u64,
    },
}

/// What a field holds, by its wire type.
#[derive(Clone, Copy)]
enum Content<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Content<'a> {
    fn wire_type(self) -> u64 {
        match self {
            Content::Number(_) => 0,
            Content::Fixed64(_) => 1,
            Content::Bytes(_) => 2,
            Content::Fixed32 => 5,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], FrameError> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(count) {
            Ok(count) if count <= left => {
                let taken = &self.bytes[self.at..self.at + count];
                self.at += count;
                Ok(taken)
            }
            _ => Err(FrameError::Cut { at: self.at }),
        }
    }

    fn number(&mut self, field: u64) -> Result<u64, FrameError> {
        let start = self.at;
        let mut number: u128 = 0;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            number |= u128::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return u64::try_from(number).map_err(|_| FrameError::TooLarge { field, at: start });
            }
        }
        Err(FrameError::TooLarge { field, at: start })
    }

    fn field(&mut self) -> Result<(u64, Content<'a>), FrameError> {
        let at = self.at;
        let tag = self.number(0)?;
        let (field, wire_type) = (tag >> 3, tag & 7);
        if field == 0 || tag > u64::from(u32::MAX) {
            return Err(FrameError::TooLarge { field, at });
        }
        let content = match wire_type {
            0 => Content::Number(self.number(field)?),
            1 => Content::Fixed64(self.take(8)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))),
            2 => {
                let length = self.number(field)?;
                Content::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Content::Fixed32
            }
            _ => return Err(FrameError::WireType { field, wire_type, at }),
        };
        Ok((field, content))
    }
}

impl<'a> Frame<'a> {
    /// Reads a record's value.
    ///
    /// # Errors
    /// What makes it unreadable, with the place.
    pub fn read(value: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let mut reader = Reader { bytes: value, at: 0 };
        let (mut state, mut priority) = (0, 0);
        // The numbers of 32 bits, each with the place it came from: one that a later one of its field replaces is not judged.
        let (mut version, mut salt) = ((0, 0), (0, 0));
        let mut frame = Frame {
            device_id: "",
            fence_id: "",
            state: State::Enter,
            event_time_ms: 0,
            hlc: 0,
            accepted_unix_us: 0,
            priority: Priority::Normal,
            attributes: &[],
            router_id: "",
            incarnation: 0,
            partition_seq: 0,
            salt: 0,
        };
        let text = |field, bytes| std::str::from_utf8(bytes).map_err(|_| FrameError::NotUtf8 { field });
        while reader.at < value.len() {
            let at = reader.at;
            let (field, content) = reader.field()?;
            match (field, content) {
                (1, Content::Number(number)) => version = (number, at),
                (2, Content::Bytes(bytes)) => frame.device_id = text(field, bytes)?,
                (3, Content::Bytes(bytes)) => frame.fence_id = text(field, bytes)?,
                (4, Content::Number(number)) => state = number,
                (5, Content::Number(number)) => frame.event_time_ms = number as i64,
                (6, Content::Fixed64(number)) => frame.hlc = number,
                (7, Content::Number(number)) => frame.accepted_unix_us = number as i64,
                (8, Content::Number(number)) => priority = number,
                (9, Content::Bytes(bytes)) => frame.attributes = bytes,
                (10, Content::Bytes(bytes)) => frame.router_id = text(field, bytes)?,
                (11, Content::Number(number)) => frame.incarnation = number,
                (12, Content::Number(number)) => frame.partition_seq = number,
                (13, Content::Number(number)) => salt = (number, at),
                (1..=13, other) => return Err(FrameError::WireType { field, wire_type: other.wire_type(), at }),
                _ => {}
            }
        }
        let short = |field, (number, at)| u32::try_from(number).map_err(|_| FrameError::TooLarge { field, at });
        let version = short(1, version)?;
        frame.salt = short(13, salt)?;
        if version != VERSION {
            return Err(FrameError::Version { got: version });
        }
        for (field, id) in [(2, frame.device_id), (3, frame.fence_id)] {
            if id.is_empty() {
                return Err(FrameError::Missing { field });
            }
        }
        frame.state = match state {
            1 => State::Enter,
            2 => State::Exit,
            3 => State::Dwell,
            got => return Err(FrameError::Unnamed { field: 4, got }),
        };
        frame.priority = match priority {
            1 => Priority::Low,
            2 => Priority::Normal,
            3 => Priority::High,
            got => return Err(FrameError::Unnamed { field: 8, got }),
        };
        Ok(frame)
    }
}

/// Frames written by another hand than the router's, for tests.
#[cfg(test)]
pub(crate) mod written {
    /// The message as the schema has it.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Written {
        #[prost(uint32, tag = "1")]
        pub version: u32,
        #[prost(string, tag = "2")]
        pub device_id: String,
        #[prost(string, tag = "3")]
        pub fence_id: String,
        #[prost(int32, tag = "4")]
        pub state: i32,
        #[prost(int64, tag = "5")]
        pub event_time_ms: i64,
        #[prost(fixed64, tag = "6")]
        pub hlc: u64,
        #[prost(int64, tag = "7")]
        pub accepted_unix_us: i64,
        #[prost(int32, tag = "8")]
        pub priority: i32,
        #[prost(bytes = "vec", tag = "9")]
        pub attributes: Vec<u8>,
        #[prost(string, tag = "10")]
        pub router_id: String,
        #[prost(uint64, tag = "11")]
        pub incarnation: u64,
        #[prost(uint64, tag = "12")]
        pub partition_seq: u64,
        #[prost(uint32, tag = "13")]
        pub salt: u32,
        #[prost(string, tag = "77")]
        pub later: String,
    }
}

#[cfg(test)]
mod tests {
    use super::written::Written;
    use super::*;
    use prost::Message;

    fn whole() -> Written {
        Written {
            version: 1,
            device_id: "車両-42".into(),
            fence_id: "cell:30.080:32.560".into(),
            state: 3,
            event_time_ms: -5,
            hlc: u64::MAX - 1,
            accepted_unix_us: 1_700_000_000_000_001,
            priority: 3,
            attributes: vec![0, 255, 7],
            router_id: "router-a".into(),
            incarnation: u64::MAX,
            partition_seq: 12,
            salt: u32::MAX,
            later: "a field of a later version".into(),
        }
    }

    fn read_error(change: impl FnOnce(&mut Written)) -> FrameError {
        let mut written = whole();
        change(&mut written);
        let value = written.encode_to_vec();
        Frame::read(&value).expect_err("it is no frame")
    }

    #[test]
    fn what_another_library_wrote_is_read_field_by_field() {
        let value = whole().encode_to_vec();
        let expected = Frame {
            device_id: "車両-42",
            fence_id: "cell:30.080:32.560",
            state: State::Dwell,
            event_time_ms: -5,
            hlc: u64::MAX - 1,
            accepted_unix_us: 1_700_000_000_000_001,
            priority: Priority::High,
            attributes: &[0, 255, 7],
            router_id: "router-a",
            incarnation: u64::MAX,
            partition_seq: 12,
            salt: u32::MAX,
        };
        assert_eq!(Frame::read(&value), Ok(expected));
    }

    #[test]
    fn what_is_no_frame_is_refused_with_its_reason() {
        assert_eq!(read_error(|w| w.version = 2), FrameError::Version { got: 2 });
        assert_eq!(read_error(|w| w.version = 0), FrameError::Version { got: 0 });
        assert_eq!(read_error(|w| w.device_id.clear()), FrameError::Missing { field: 2 });
        assert_eq!(read_error(|w| w.fence_id.clear()), FrameError::Missing { field: 3 });
        assert_eq!(read_error(|w| w.state = 0), FrameError::Unnamed { field: 4, got: 0 });
        assert_eq!(read_error(|w| w.state = 4), FrameError::Unnamed { field: 4, got: 4 });
        assert_eq!(read_error(|w| w.priority = 9), FrameError::Unnamed { field: 8, got: 9 });
        assert_eq!(Frame::read(b""), Err(FrameError::Version { got: 0 }));
        // Field 1 as text; field 2 holding a byte that is no text; a group; a number of 11 bytes; field 0.
        assert_eq!(Frame::read(b"\x0a\x00"), Err(FrameError::WireType { field: 1, wire_type: 2, at: 0 }));
        assert_eq!(Frame::read(b"\x12\x01\xff"), Err(FrameError::NotUtf8 { field: 2 }));
        assert_eq!(Frame::read(b"\x0b"), Err(FrameError::WireType { field: 1, wire_type: 3, at: 0 }));
        assert_eq!(Frame::read(&[0xff; 11]), Err(FrameError::TooLarge { field: 0, at: 0 }));
        assert_eq!(Frame::read(b"\x00\x00"), Err(FrameError::TooLarge { field: 0, at: 0 }));
        assert_eq!(
            Frame::read(b"\x08\x80\x80\x80\x80\x10"),
            Err(FrameError::TooLarge { field: 1, at: 0 }),
            "2^32 is no uint32"
        );
    }

    #[test]
    fn a_number_that_a_later_one_of_its_field_replaces_is_not_judged() {
        let mut value = whole().encode_to_vec();
        // 2^33 as salt and 2^33 + 1 as version, each followed by one that fits.
        value.extend_from_slice(b"\x68\x80\x80\x80\x80\x20\x68\x09\x08\x81\x80\x80\x80\x20\x08\x01");
        assert_eq!(Frame::read(&value).map(|frame| frame.salt), Ok(9));
        let at = value.len();
        value.extend_from_slice(b"\x68\x80\x80\x80\x80\x20");
        assert_eq!(Frame::read(&value), Err(FrameError::TooLarge { field: 13, at }));
    }

    #[test]
    fn each_cut_is_refused_or_read_as_a_shorter_message_and_none_panics() {
        let value = whole().encode_to_vec();
        let read = (0..value.len()).filter(|&length| Frame::read(&value[..length]).is_ok()).count();
        // A cut between the last, optional fields (9 to 13 and 77) leaves a shorter but whole message.
        assert_eq!(read, 6);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = Frame::read(&bytes);
        }

        #[test]
        fn a_flipped_byte_never_makes_it_panic(at in 0_usize..150, to in proptest::num::u8::ANY) {
            let mut value = whole().encode_to_vec();
            let at = at % value.len();
            value[at] = to;
            let _ = Frame::read(&value);
        }
    }
}

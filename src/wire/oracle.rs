//! The tests of this room. `prost` is the oracle: a generated encoder and decoder that share no line with ours. The
//! schema's text, the oracle and the encoder's table are compared, so that the three cannot drift.

use super::*;
use proptest::prelude::*;
use prost::Message;

/// The oracle's message and, from the same lines, a table of it to compare with the schema's text.
macro_rules! oracle {
    ($( $name:ident: $rust:ty, $schema:literal, $number:tt, [$($kind:tt)*]; )*) => {
        #[derive(Clone, PartialEq, Message)]
        struct Oracle { $( #[prost($($kind)*, tag = $number)] pub $name: $rust, )* }

        const ORACLE: &[(&str, &str, &str)] = &[$( (stringify!($name), $schema, $number) ),*];
    };
}

// What `prost-build` makes of `trigger.proto`; an enumeration is a plain int32 on the wire.
oracle! {
    version: u32, "uint32", "1", [uint32];
    device_id: String, "string", "2", [string];
    fence_id: String, "string", "3", [string];
    state: i32, "State", "4", [int32];
    event_time_ms: i64, "int64", "5", [int64];
    hlc: u64, "fixed64", "6", [fixed64];
    accepted_unix_us: i64, "int64", "7", [int64];
    priority: i32, "Priority", "8", [int32];
    attributes: Vec<u8>, "bytes", "9", [bytes = "vec"];
    router_id: String, "string", "10", [string];
    incarnation: u64, "uint64", "11", [uint64];
    partition_seq: u64, "uint64", "12", [uint64];
    salt: u32, "uint32", "13", [uint32];
}

/// A frame that owns its bytes.
#[derive(Clone, Debug)]
struct Owned {
    device_id: String,
    fence_id: String,
    attributes: Vec<u8>,
    router_id: String,
    numbers: (State, i64, u64, i64, Priority, u64, u64, u32),
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        let (state, event_time_ms, hlc, accepted, priority, incarnation, partition_seq, salt) = self.numbers;
        Frame {
            device_id: self.device_id.as_bytes(),
            fence_id: self.fence_id.as_bytes(),
            state,
            event_time_ms,
            hlc: Hlc(hlc),
            accepted: UnixMicros(accepted),
            priority,
            attributes: &self.attributes,
            router_id: self.router_id.as_bytes(),
            incarnation,
            partition_seq,
            salt,
        }
    }
}

fn oracle_of(frame: &Frame<'_>) -> Oracle {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Oracle {
        version: VERSION,
        device_id: text(frame.device_id),
        fence_id: text(frame.fence_id),
        state: frame.state as i32,
        event_time_ms: frame.event_time_ms,
        hlc: frame.hlc.0,
        accepted_unix_us: frame.accepted.0,
        priority: frame.priority as i32,
        attributes: frame.attributes.to_vec(),
        router_id: text(frame.router_id),
        incarnation: frame.incarnation,
        partition_seq: frame.partition_seq,
        salt: frame.salt,
    }
}

/// Encodes into a place of exactly the right size, and into a larger one whose rest must stay as it was.
fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut exact = vec![0; encoded_len(frame)];
    assert_eq!(encode(frame, &mut exact), exact.len());
    let mut larger = vec![0xee; exact.len() + 64];
    assert_eq!(encode(frame, &mut larger), exact.len());
    assert_eq!(larger[..exact.len()], exact);
    assert!(larger[exact.len()..].iter().all(|&byte| byte == 0xee), "wrote behind the frame");
    exact
}

fn sample() -> Frame<'static> {
    Frame {
        device_id: b"d:1",
        fence_id: b"f",
        state: State::Exit,
        event_time_ms: 300,
        hlc: Hlc(0x0102_0304_0506_0708),
        accepted: UnixMicros(1),
        priority: Priority::High,
        attributes: b"xy",
        router_id: b"r",
        incarnation: 2,
        partition_seq: 128,
        salt: 3,
    }
}

fn longest(id: &[u8]) -> Frame<'_> {
    Frame {
        device_id: id,
        fence_id: id,
        state: State::Dwell,
        event_time_ms: -1,
        hlc: Hlc(u64::MAX),
        accepted: UnixMicros(-1),
        priority: Priority::High,
        attributes: &[0xff; ATTRIBUTES_BYTES_MAX],
        router_id: &[b'r'; *ROUTER_ID_BYTES.end()],
        incarnation: u64::MAX,
        partition_seq: u64::MAX,
        salt: u32::MAX,
    }
}

#[test]
fn the_frame_byte_for_byte() {
    let want = b"\x08\x01\x12\x03d:1\x1a\x01f\x20\x02\x28\xac\x02\x31\x08\x07\x06\x05\x04\x03\x02\x01\x38\x01\x40\x03\
                 \x4a\x02xy\x52\x01r\x58\x02\x60\x80\x01\x68\x03";
    assert_eq!(encoded(&sample()), want);
    assert_eq!(decode(want).unwrap().frame, sample());
}

#[test]
fn the_largest_frame_fills_the_limit() {
    let id = [b'x'; 256];
    let bytes = encoded(&longest(&id));
    assert_eq!(bytes.len(), FRAME_BYTES_MAX);
    assert_eq!(FRAME_BYTES_MAX, 1_644);
    assert_eq!(bytes, oracle_of(&longest(&id)).encode_to_vec());
    assert_eq!(decode(&bytes).unwrap().frame, longest(&id));
}

#[test]
#[should_panic(expected = "mid")]
fn a_place_one_byte_short_is_a_panic_inside_a_text() {
    let mut frame = sample();
    (frame.incarnation, frame.partition_seq, frame.salt) = (0, 0, 0);
    encode(&frame, &mut vec![0; encoded_len(&frame) - 1]);
}

#[test]
#[should_panic(expected = "shorter than encoded_len")]
fn a_place_without_room_for_the_head_is_a_panic() {
    encode(&sample(), &mut [0; 2]);
}

#[test]
fn the_device_id_is_found_in_the_frame() {
    for len in [1, 2, 127, 128, 129, 255, 256] {
        let id: Vec<u8> = (0..len).map(|at| b'a' + (at % 26) as u8).collect();
        let bytes = encoded(&Frame { device_id: &id, ..sample() });
        assert_eq!(bytes[device_id_range(&bytes)], id, "{len} bytes");
    }
}

#[test]
fn integers_at_each_length_of_a_varint() {
    for bits in 0..64 {
        for value in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1, u64::MAX - (1 << bits), u64::MAX] {
            let frame = Frame {
                event_time_ms: value as i64,
                accepted: UnixMicros(value.rotate_left(1) as i64),
                incarnation: value,
                partition_seq: !value,
                salt: value as u32,
                ..sample()
            };
            let bytes = encoded(&frame);
            assert_eq!(bytes, oracle_of(&frame).encode_to_vec(), "{value:#x}");
            assert_eq!(decode(&bytes).unwrap().frame, frame, "{value:#x}");
        }
    }
}

#[test]
fn a_field_that_comes_twice_counts_as_it_came_last() {
    let mut bytes = encoded(&sample());
    bytes.extend_from_slice(b"\x12\x02zz\x68\x09\x08\x02\x08\x01");
    let decoded = decode(&bytes).unwrap();
    assert_eq!(decoded.frame, Frame { device_id: b"zz", salt: 9, ..sample() });
    assert!(decoded.unknown.is_empty());
    let oracle = Oracle::decode(&bytes[..]).unwrap();
    assert_eq!(oracle_of(&decoded.frame), oracle);
}

#[test]
fn padded_varints_and_an_unset_priority_are_read() {
    let bytes = b"\x88\x00\x81\x80\x00\x12\x01d\x1a\x81\x00f\x20\x01\x52\x01r";
    let decoded = decode(bytes).unwrap();
    let want = Frame {
        device_id: b"d",
        fence_id: b"f",
        state: State::Enter,
        event_time_ms: 0,
        hlc: Hlc(0),
        accepted: UnixMicros(0),
        priority: Priority::Normal,
        attributes: b"",
        router_id: b"r",
        incarnation: 0,
        partition_seq: 0,
        salt: 0,
    };
    assert_eq!(decoded.frame, want);
}

#[test]
fn unknown_fields_survive_wherever_they_lie() {
    let unknown: [&[u8]; 5] = [
        b"\x70\x96\x01",                             // 14, a varint
        b"\x7a\x03abc",                              // 15, bytes
        b"\x81\x01\x01\x02\x03\x04\x05\x06\x07\x08", // 16, 64 bits
        b"\xfd\xff\xff\xff\x0f\x01\x02\x03\x04",     // the last number there is, 32 bits
        b"\xf0\x80\x00\x81\x00",                     // 14 again, padded: kept as it came
    ];
    let known = encoded(&sample());
    // Behind the known fields, as a later router writes them: the same bytes come out.
    let bytes = [&known[..], &unknown.concat()].concat();
    let decoded = decode(&bytes).unwrap();
    assert_eq!(decoded.frame, sample());
    assert_eq!(decoded.unknown.iter().collect::<Vec<_>>(), unknown);
    assert_eq!(decoded.unknown.len(), unknown.concat().len());
    let mut again = vec![0; decoded.encoded_len()];
    assert_eq!(decoded.encode(&mut again), again.len());
    assert_eq!(again, bytes);
    // Between and before them: the known ones are put into their order, the unknown ones follow in theirs.
    let mixed = [unknown[0], &known[..2], unknown[1], unknown[2], &known[2..], unknown[3], unknown[4]].concat();
    let decoded = decode(&mixed).unwrap();
    assert_eq!(decoded.frame, sample());
    let mut again = vec![0; decoded.encoded_len()];
    assert_eq!(decoded.encode(&mut again), again.len());
    assert_eq!(again, bytes);
}

#[test]
fn each_fault_is_named_with_its_place() {
    let good = encoded(&sample());
    let with = |tail: &[u8]| [&good[..], tail].concat();
    let end = good.len();
    let len_error = |field, len, allowed| DecodeError::BadLength { field, len, allowed };
    for (bytes, want) in [
        (vec![], DecodeError::UnknownVersion { got: 0 }),
        (good[2..].to_vec(), DecodeError::UnknownVersion { got: 0 }),
        (with(b"\x08\x02"), DecodeError::UnknownVersion { got: 2 }),
        (with(b"\x08\x00"), DecodeError::UnknownVersion { got: 0 }),
        (with(b"\x08\x81\x80\x80\x80\x10"), DecodeError::UnknownVersion { got: (1 << 32) + 1 }),
        // A later version is named although what follows breaks the rules of this one.
        (with(b"\x08\x02\x12\x01\xff"), DecodeError::UnknownVersion { got: 2 }),
        (with(b"\x08"), DecodeError::Truncated { offset: end + 1 }),
        (with(b"\x80"), DecodeError::Truncated { offset: end }),
        (with(b"\x12\x02z"), DecodeError::Truncated { offset: end }),
        (with(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01z"), DecodeError::Truncated { offset: end }),
        (with(b"\x31\x00\x00\x00\x00\x00\x00\x00"), DecodeError::Truncated { offset: end }),
        (with(b"\x75\x00\x00\x00"), DecodeError::Truncated { offset: end }),
        (with(b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), DecodeError::VarintTooLong { offset: end + 1 }),
        (with(b"\x28\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), DecodeError::VarintTooLong { offset: end + 1 }),
        (with(b"\x00\x00"), DecodeError::BadTag { got: 0, offset: end }),
        (with(b"\x73\x74"), DecodeError::BadTag { got: 0x73, offset: end }),
        (with(b"\x76\x00"), DecodeError::BadTag { got: 0x76, offset: end }),
        (with(b"\x80\x80\x80\x80\x10\x00"), DecodeError::BadTag { got: 1 << 32, offset: end }),
        (
            with(b"\x15\x00\x00\x00\x00"),
            DecodeError::WrongWireType { field: "device_id", got: 5, allowed: 2, offset: end },
        ),
        (with(b"\x12\x03ab\xff"), DecodeError::NotUtf8 { field: "device_id", offset: end + 4 }),
        (with(b"\x1a\x02\xc3("), DecodeError::NotUtf8 { field: "fence_id", offset: end + 2 }),
        (with(b"\x52\x01\x80"), DecodeError::NotUtf8 { field: "router_id", offset: end + 2 }),
        (with(b"\x12\x00"), len_error("device_id", 0, 1..=256)),
        (with(&[b"\x12\x81\x02", &[b'x'; 257][..]].concat()), len_error("device_id", 257, 1..=256)),
        (with(&[b"\x1a\x81\x02", &[b'x'; 257][..]].concat()), len_error("fence_id", 257, 1..=256)),
        (with(&[b"\x4a\x81\x08", &[0; 1_025][..]].concat()), len_error("attributes", 1_025, 0..=1_024)),
        (with(&[b"\x52\x21", &[b'r'; 33][..]].concat()), len_error("router_id", 33, 1..=32)),
        (with(b"\x20\x00"), DecodeError::BadNumber { field: "state", got: 0, allowed: 1..=3 }),
        (with(b"\x20\x04"), DecodeError::BadNumber { field: "state", got: 4, allowed: 1..=3 }),
        (with(b"\x20\x81\x02"), DecodeError::BadNumber { field: "state", got: 257, allowed: 1..=3 }),
        (with(b"\x40\x04"), DecodeError::BadNumber { field: "priority", got: 4, allowed: 0..=3 }),
        (
            with(b"\x68\x80\x80\x80\x80\x10"),
            DecodeError::BadNumber { field: "salt", got: 1 << 32, allowed: 0..=0xffff_ffff },
        ),
    ] {
        let got = decode(&bytes).expect_err("must be refused");
        assert_eq!(got, want, "{:02x?}", &bytes[end.min(bytes.len())..]);
        assert!(!got.to_string().is_empty());
    }
}

#[test]
fn a_fault_says_what_to_do_and_has_a_name_for_machines() {
    for (bytes, code, want) in [
        (&b""[..], "unknown_version", "version = 0, allowed 1; these bytes are no frame"),
        (b"\x08\x02", "unknown_version", "version = 2, allowed 1; read it with a fencepost that knows that version"),
        (
            b"\x08\x01\x12\x05abc",
            "frame_truncated",
            "the frame ends inside the field that starts at byte 2; it was cut",
        ),
        (b"\x08\x01\x12\x02a\xff", "frame_not_utf8", "device_id is not UTF-8: the byte at 5 starts no character"),
        (b"\x08\x01", "frame_bad_length", "device_id has 0 bytes, allowed 1..=256"),
        (b"\x08\x01\x12\x01d\x1a\x01f\x20\x07", "frame_bad_number", "state = 7, allowed 1..=3"),
    ] {
        let error = decode(bytes).expect_err("must be refused");
        assert_eq!((error.code(), error.to_string().as_str()), (code, want));
    }
}

/// An evaluator sets no router: the same bytes are a frame on their way to one, and none on their way from one.
#[test]
fn a_frame_without_what_a_router_sets_is_read_on_its_way_to_one() {
    // version 1, device "d", fence "f", state enter, event time 1.
    let bytes = b"\x08\x01\x12\x01d\x1a\x01f\x20\x01\x28\x01";
    let frame = decode_unrouted(bytes).unwrap().frame;
    assert_eq!(
        (frame.device_id, frame.fence_id, frame.state, frame.event_time_ms),
        (&b"d"[..], &b"f"[..], State::Enter, 1)
    );
    assert_eq!((frame.router_id, frame.priority), (&b""[..], Priority::Normal));
    assert!(matches!(decode(bytes), Err(DecodeError::BadLength { field: "router_id", len: 0, .. })));
    let long = [bytes, &b"\x52\x21"[..], &[b'r'; 33]].concat();
    assert!(matches!(decode_unrouted(&long), Err(DecodeError::BadLength { field: "router_id", len: 33, .. })));
}

#[test]
fn every_cut_of_a_frame_is_refused_or_ends_between_two_fields() {
    let good = encoded(&sample());
    for cut in 0..good.len() {
        match (decode(&good[..cut]), Oracle::decode(&good[..cut])) {
            (Ok(ours), Ok(theirs)) => assert_eq!(oracle_of(&ours.frame), theirs),
            (Ok(_), Err(error)) => panic!("{cut} bytes were read, the oracle says {error}"),
            (Err(_), _) => {}
        }
    }
    // Behind the router id there are only numbers that a frame may leave out.
    let ids_end = good.iter().rposition(|&byte| byte == b'r').unwrap() + 1;
    assert!((0..ids_end).all(|cut| decode(&good[..cut]).is_err()));
}

/// The lines `<type> <name> = <number>;` of a block of the schema.
fn schema_lines<'a>(head: &str) -> Vec<(&'a str, &'a str, &'a str)> {
    let opening = format!("\n{head} {{\n");
    let start = SCHEMA.find(&opening).unwrap_or_else(|| panic!("no {head}")) + opening.len();
    let block = &SCHEMA[start..start + SCHEMA[start..].find("\n}").unwrap()];
    block
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .map(|line| {
            let (left, number) = line.strip_suffix(';').and_then(|line| line.split_once(" = ")).expect(line);
            let (kind, name) = left.split_once(' ').unwrap_or(("", left));
            (kind, name, number)
        })
        .collect()
}

#[test]
fn schema_oracle_and_table_say_the_same() {
    assert!(SCHEMA.contains("\nsyntax = \"proto3\";\n"));
    assert!(SCHEMA.contains("\npackage fencepost.v1;\n"));
    let schema = schema_lines("message Trigger");
    let oracle: Vec<_> = ORACLE.iter().map(|&(name, kind, number)| (kind, name, number)).collect();
    assert_eq!(schema, oracle);
    assert_eq!(schema.len(), FIELDS_LEN);
    for ((kind, name, number), field) in schema.into_iter().zip(field::FIELDS) {
        let wire_type = match kind {
            "string" | "bytes" => wire_type::LEN,
            "fixed64" => wire_type::FIXED64,
            "uint32" | "uint64" | "int64" | "State" | "Priority" => wire_type::VARINT,
            other => panic!("{other} is new"),
        };
        assert_eq!(field, Field { number: number.parse().unwrap(), name, wire_type });
    }
}

const FIELDS_LEN: usize = field::FIELDS.len();

#[test]
fn the_enums_of_the_schema_are_those_of_the_code() {
    let named = |head: &str, prefix: &str| -> Vec<(u8, String)> {
        schema_lines(head)
            .into_iter()
            .map(|(kind, name, number)| {
                assert_eq!(kind, "");
                (number.parse().unwrap(), name.strip_prefix(prefix).expect(name).to_lowercase())
            })
            .collect()
    };
    let unspecified = (0, "unspecified".to_string());
    let states = (1..=3).map(|number| (number, State::from_number(number).unwrap().name().to_string()));
    assert_eq!(named("enum State", "STATE_"), [unspecified.clone()].into_iter().chain(states).collect::<Vec<_>>());
    let priorities = (1..=3).map(|number| (number, Priority::from_number(number).unwrap().name().to_string()));
    assert_eq!(named("enum Priority", "PRIORITY_"), [unspecified].into_iter().chain(priorities).collect::<Vec<_>>());
}

#[test]
fn every_field_of_the_schema_says_what_it_means() {
    let body = &SCHEMA[SCHEMA.find("message Trigger").unwrap()..];
    let lines: Vec<&str> = body.lines().map(str::trim).collect();
    let fields: Vec<usize> = (1..lines.len()).filter(|&at| lines[at].ends_with(';')).collect();
    assert_eq!(fields.len(), FIELDS_LEN);
    for at in fields {
        assert!(lines[at - 1].starts_with("// "), "{} has no comment", lines[at]);
    }
}

/// Text of 1 to `max` bytes, cut at a character.
fn text_of(max: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::collection::vec(any::<char>(), 1..40),
        1 => prop::collection::vec(prop::char::range('a', 'z'), max..max + 1),
        1 => prop::collection::vec(prop::char::range('a', 'z'), 1..max),
    ]
    .prop_map(move |chars| {
        let mut text = String::new();
        for letter in chars {
            if text.len() + letter.len_utf8() <= max {
                text.push(letter);
            }
        }
        text
    })
}

/// Numbers of every length, 0 among them.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..=64).prop_map(|(value, bits)| value.checked_shr(bits).unwrap_or(0))
}

fn any_frame() -> impl Strategy<Value = Owned> {
    let state = prop::sample::select(vec![State::Enter, State::Exit, State::Dwell]);
    let priority = prop::sample::select(vec![Priority::Low, Priority::Normal, Priority::High]);
    let attributes = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..20),
        1 => prop::collection::vec(any::<u8>(), 0..=ATTRIBUTES_BYTES_MAX),
    ];
    let times = (number().prop_map(|value| value as i64), number(), number().prop_map(|value| value as i64));
    let numbers = (state, times, priority, number(), number(), number()).prop_map(
        |(state, (event, hlc, accepted), priority, incarnation, seq, salt)| {
            (state, event, hlc, accepted, priority, incarnation, seq, salt as u32)
        },
    );
    (text_of(256), text_of(256), attributes, text_of(32), numbers).prop_map(
        |(device_id, fence_id, attributes, router_id, numbers)| Owned {
            device_id,
            fence_id,
            attributes,
            router_id,
            numbers,
        },
    )
}

/// One change to a frame's bytes.
#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<prop::sample::Index>(), 0_u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..12))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        any::<prop::sample::Index>().prop_map(Damage::Remove),
    ]
}

impl Damage {
    fn apply(self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Damage::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Damage::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Insert(at, new) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, new);
            }
            Damage::Remove(at) => {
                bytes.remove(at.index(bytes.len()));
            }
        }
    }
}

/// What holds for any bytes at all: no panic; what we read, the oracle reads as the same; and what we read and write
/// again is read as the same, unknown bytes included.
fn check_any_bytes(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(decoded) = decode(bytes) else { return Ok(()) };
    let mut theirs = Oracle::decode(bytes).map_err(|error| TestCaseError::fail(format!("the oracle says {error}")))?;
    if theirs.priority == 0 {
        theirs.priority = Priority::Normal as i32;
    }
    prop_assert_eq!(oracle_of(&decoded.frame), theirs);
    let mut again = vec![0; decoded.encoded_len()];
    prop_assert_eq!(decoded.encode(&mut again), again.len());
    let second = decode(&again).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(second.frame, decoded.frame);
    let unknown: Vec<u8> = decoded.unknown.iter().flatten().copied().collect();
    prop_assert_eq!(unknown.len(), decoded.unknown.len());
    prop_assert_eq!(&again[again.len() - unknown.len()..], &unknown[..]);
    Ok(())
}

/// A field above 13, as a later schema might write it.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![14_u32..40, 14_u32..(1 << 29)];
    (number, prop::collection::vec(any::<u8>(), 0..20), any::<u64>(), 0..4).prop_map(|(number, bytes, int, kind)| {
        let mut out = Vec::new();
        let tag = |kind: u64| u64::from(number) << 3 | kind;
        let varint = |value: u64, out: &mut Vec<u8>| prost::encoding::encode_varint(value, out);
        match kind {
            0 => {
                varint(tag(0), &mut out);
                varint(int, &mut out);
            }
            1 => {
                varint(tag(1), &mut out);
                out.extend_from_slice(&int.to_le_bytes());
            }
            2 => {
                varint(tag(2), &mut out);
                varint(bytes.len() as u64, &mut out);
                out.extend_from_slice(&bytes);
            }
            _ => {
                varint(tag(5), &mut out);
                out.extend_from_slice(&(int as u32).to_le_bytes());
            }
        }
        out
    })
}

/// Twice as many as usual, unless somebody asks for a number.
fn cases() -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(512, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn encoded_as_the_oracle_does(owned in any_frame()) {
        let frame = owned.frame();
        let bytes = encoded(&frame);
        prop_assert_eq!(&bytes, &oracle_of(&frame).encode_to_vec());
        prop_assert!(bytes.len() <= FRAME_BYTES_MAX);
        prop_assert_eq!(&bytes[device_id_range(&bytes)], frame.device_id);
        let decoded = decode(&bytes).unwrap();
        prop_assert_eq!(decoded.frame, frame);
        prop_assert!(decoded.unknown.is_empty());
        prop_assert_eq!(decoded.frame.key(), frame.key());
    }

    #[test]
    fn unknown_fields_come_out_as_they_went_in(owned in any_frame(), unknown in prop::collection::vec(unknown_field(), 0..5)) {
        let bytes = [encoded(&owned.frame()), unknown.concat()].concat();
        let decoded = decode(&bytes).unwrap();
        prop_assert_eq!(decoded.frame, owned.frame());
        let mut again = vec![0; decoded.encoded_len()];
        prop_assert_eq!(decoded.encode(&mut again), again.len());
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn damaged_frames_are_read_as_the_oracle_does_or_refused(
        owned in any_frame(),
        unknown in prop::collection::vec(unknown_field(), 0..3),
        damages in prop::collection::vec(any_damage(), 1..4),
    ) {
        let mut bytes = [encoded(&owned.frame()), unknown.concat()].concat();
        for damage in damages {
            damage.apply(&mut bytes);
        }
        check_any_bytes(&bytes)?;
    }

    #[test]
    fn any_bytes_are_read_as_the_oracle_does_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_any_bytes(&bytes)?;
        check_any_bytes(&[&b"\x08\x01\x12\x01d\x1a\x01f\x20\x01\x52\x01r"[..], &bytes].concat())?;
    }
}

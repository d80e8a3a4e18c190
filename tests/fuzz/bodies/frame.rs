//! The frame, which is the value of a Kafka record. Whatever the bytes: what is read comes back when it is written, with
//! the fields that are not known; the checkers' own reader, which shares no line with it, reads the same; another
//! version is refused as such; and what is refused says why, and where inside the bytes.

use fencepost::source::frames;
use fencepost::trigger::Priority;
use fencepost::verify::frame::{Frame as Independent, FrameError};
use fencepost::wire::{DecodeError, Decoded, Frame, decode, decode_unrouted, device_id_range};

/// See the module.
pub fn check(bytes: &[u8]) {
    let read = decode(bytes);
    match &read {
        Ok(decoded) => {
            comes_back(decoded);
            another_version_is_poison(bytes);
        }
        Err(error) => says_why(error, bytes.len()),
    }
    agrees(bytes, &read);
    on_its_way_to_a_router(bytes, &read);
}

fn written(decoded: &Decoded<'_>) -> Vec<u8> {
    let mut place = vec![0xee; decoded.encoded_len() + 1];
    assert_eq!(decoded.encode(&mut place), decoded.encoded_len());
    assert_eq!(place.pop(), Some(0xee), "nothing is written behind a frame");
    place
}

fn comes_back(decoded: &Decoded<'_>) {
    let again = written(decoded);
    let second = decode(&again).expect("what was written can be read");
    assert_eq!(second.frame, decoded.frame);
    assert!(second.unknown.iter().eq(decoded.unknown.iter()), "fields that are not known are kept, in their order");
    assert_eq!(decoded.unknown.iter().map(<[u8]>::len).sum::<usize>(), decoded.unknown.len());
    assert_eq!(decoded.unknown.is_empty(), decoded.unknown.iter().next().is_none());
    assert_eq!(written(&second), again, "written once more, it stays as it is");
    assert_eq!(&again[device_id_range(&again)], decoded.frame.device_id);
    // Written in full, nothing is left to what a reader makes of a field that is missing.
    let theirs = Independent::read(&again).expect("what is written, another reader reads");
    is_the_same(&decoded.frame, &theirs);
}

fn is_the_same(ours: &Frame<'_>, theirs: &Independent<'_>) {
    assert_eq!(ours.device_id, theirs.device_id.as_bytes());
    assert_eq!(ours.fence_id, theirs.fence_id.as_bytes());
    assert_eq!(ours.router_id, theirs.router_id.as_bytes());
    assert_eq!((ours.state, ours.priority, ours.attributes), (theirs.state, theirs.priority, theirs.attributes));
    assert_eq!((ours.event_time_ms, ours.hlc.0), (theirs.event_time_ms, theirs.hlc));
    assert_eq!((ours.accepted.0, ours.incarnation), (theirs.accepted_unix_us, theirs.incarnation));
    assert_eq!((ours.partition_seq, ours.salt), (theirs.partition_seq, theirs.salt));
}

fn another_version_is_poison(bytes: &[u8]) {
    // A varint that never ends follows: of a later version nothing is known, so nothing of it is judged.
    for later in [&b"\x08\x02"[..], b"\x08\x02\xff", b"\x08\x00\x0f"] {
        let got = later[1].into();
        let error = decode(&[bytes, later].concat()).expect_err("the version that comes last counts");
        assert_eq!(error, DecodeError::UnknownVersion { got });
    }
}

fn says_why(error: &DecodeError, len: usize) {
    assert!(!error.code().is_empty() && !error.to_string().is_empty());
    let at = match *error {
        DecodeError::Truncated { offset }
        | DecodeError::VarintTooLong { offset }
        | DecodeError::BadTag { offset, .. }
        | DecodeError::WrongWireType { offset, .. }
        | DecodeError::NotUtf8 { offset, .. } => offset,
        _ => 0,
    };
    // A number that is missing altogether starts where the bytes end.
    assert!(at <= len, "byte {at} of {len}");
}

/// The checkers' reader takes ids of any length, since it judges delivery and not triggers; and it wants the priority to
/// be there, since every router writes it. In all else the two agree.
fn agrees(bytes: &[u8], read: &Result<Decoded<'_>, DecodeError>) {
    match (read, Independent::read(bytes)) {
        (Ok(ours), Ok(theirs)) => is_the_same(&ours.frame, &theirs),
        (Ok(ours), Err(FrameError::Unnamed { field: 8, got: 0 })) => assert_eq!(ours.frame.priority, Priority::Normal),
        (Ok(ours), Err(error)) => panic!("read as {:?}, and the checkers say {error}", ours.frame),
        (Err(DecodeError::BadLength { field, len, allowed }), Ok(theirs)) => {
            let there = match *field {
                "device_id" => theirs.device_id.len(),
                "fence_id" => theirs.fence_id.len(),
                "router_id" => theirs.router_id.len(),
                "attributes" => theirs.attributes.len(),
                other => panic!("{other} has no bounds"),
            };
            assert!(there == *len && !allowed.contains(&there), "{field}: {there}, {len}, {allowed:?}");
        }
        (Err(error), Ok(theirs)) => panic!("refused ({error}), and the checkers read {theirs:?}"),
        (Err(_), Err(_)) => {}
    }
}

/// A source's frame may lack what a router sets, and differs in nothing else.
fn on_its_way_to_a_router(bytes: &[u8], read: &Result<Decoded<'_>, DecodeError>) {
    let unrouted = decode_unrouted(bytes);
    match (read, &unrouted) {
        (Ok(routed), Ok(unrouted)) => assert_eq!(routed.frame, unrouted.frame),
        (Err(DecodeError::BadLength { field: "router_id", len: 0, .. }), Ok(unrouted)) => {
            assert!(unrouted.frame.router_id.is_empty());
        }
        // Where no router is named, that is the first fault of two.
        (Err(DecodeError::BadLength { field: "router_id", len: 0, .. }), Err(_)) => {}
        (Err(one), Err(other)) => assert_eq!(one, other),
        (one, other) => panic!("{one:?}, and without a router {other:?}"),
    }
    match (unrouted, frames::parse(bytes)) {
        (Ok(unrouted), Ok(trigger)) => {
            let Frame { device_id, fence_id, state, event_time_ms, priority, attributes, .. } = unrouted.frame;
            assert_eq!((trigger.device_id.as_bytes(), trigger.fence_id.as_bytes()), (device_id, fence_id));
            assert_eq!((trigger.state, trigger.event_time_ms), (state, event_time_ms));
            assert_eq!((trigger.priority, trigger.attributes), (priority, attributes));
        }
        (Err(one), Err(other)) => assert_eq!(one, other),
        (one, other) => panic!("{one:?}, and the source {other:?}"),
    }
}

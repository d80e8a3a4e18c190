//! One frame of a source: protobuf `fencepost.v1.Trigger` as `trigger.proto` has it, its length in front as 4 bytes, the
//! highest first. What a router sets (stamp, acceptance, router, incarnation, numbers, salt) may be missing and is ignored.

use crate::trigger::Trigger;
use crate::wire::{DecodeError, decode_unrouted};

/// Bytes of the length in front of a frame.
pub const LENGTH_BYTES: usize = 4;

/// The trigger in a frame.
///
/// # Errors
/// [`DecodeError`]: what is wrong and where.
pub fn parse(frame: &[u8]) -> Result<Trigger<'_>, DecodeError> {
    let frame = decode_unrouted(frame)?.frame;
    // Decoding has found both to be text; the offset is that of the id, which is all that can be said here.
    let not_text = |field| DecodeError::NotUtf8 { field, offset: 0 };
    Ok(Trigger {
        device_id: std::str::from_utf8(frame.device_id).map_err(|_| not_text("device_id"))?,
        fence_id: std::str::from_utf8(frame.fence_id).map_err(|_| not_text("fence_id"))?,
        state: frame.state,
        event_time_ms: frame.event_time_ms,
        priority: frame.priority,
        attributes: frame.attributes,
    })
}

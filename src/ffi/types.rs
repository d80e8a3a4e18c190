//! The structures of the boundary. Their layout is part of the ABI.

use super::boundary::bytes;
use super::{FencepostFailedReason, FencepostPressure, FencepostReason, FencepostStatus};
use crate::engine::{Counts, FailSwitch, Report, Router};
use crate::ingress::{Accepted, Ingress, Refused};
use crate::ring::Pressure;
use crate::trigger::rules::{ATTRIBUTES_BYTES_MAX, ID_BYTES};
use crate::trigger::{Priority, Reason, State, Trigger};
use bytemuck::NoUninit;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A running router. Every thread may use it, until one of them shuts it down.
pub struct FencepostRouter {
    pub(super) router: Router,
    pub(super) fail_switch: FailSwitch,
}

/// One thread's way in. It may move between threads, and may outlive its router.
pub struct FencepostIngress {
    /// Touched only through [`Held`].
    ingress: UnsafeCell<Ingress>,
    is_held: AtomicBool,
    pub(super) fail_switch: FailSwitch,
}

/// The only user of an ingress, while it lives.
pub(super) struct Held<'a>(&'a FencepostIngress);

/// A trigger, borrowed for the time of a submit. Fill it with zeros first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FencepostTrigger {
    /// Who moved: 1 to 256 bytes of UTF-8 text. Any script, ':', '#' and NUL are legal; no NUL is needed at the end.
    pub device_id: *const c_char,
    /// Its length in bytes.
    pub device_id_len: usize,
    /// Which fence: 1 to 256 bytes of UTF-8 text.
    pub fence_id: *const c_char,
    /// Its length in bytes.
    pub fence_id_len: usize,
    /// Opaque bytes for the consumer; may be null when there are none.
    pub attributes: *const c_void,
    /// Their number, at most 1024.
    pub attributes_len: usize,
    /// When it happened, in Unix milliseconds.
    pub event_time_ms: i64,
    /// A FencepostState.
    pub state: u32,
    /// A FencepostPriority; 0 is normal.
    pub priority: u32,
}

/// The answer to a submit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencepostAnswer {
    /// The trigger's place in its ingress: 1, 2, 3, ...; 0 when it was not queued.
    pub seq: u64,
    /// OK, or why it was not queued.
    pub status: FencepostStatus,
    /// Which rule it breaks, when it was rejected.
    pub reason: FencepostReason,
    /// Whether to pace oneself, when it was queued.
    pub pressure: FencepostPressure,
    /// 0.
    pub reserved: u32,
}

/// A trigger that nothing durable would take.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencepostFailed {
    /// Its place in its ingress.
    pub seq: u64,
    /// Why.
    pub reason: FencepostFailedReason,
    /// The broker's error code, when the broker refused it; otherwise 0.
    pub code: i32,
}

/// Counters over all ingresses. The first ten add up:
/// accepted + recovered = delivered + deduplicated + dead_lettered + failed + corrupt + in_spill + in_flight + in_rings.
/// Later releases add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, NoUninit)]
pub struct FencepostCounts {
    /// Queued by a submit.
    pub accepted: u64,
    /// Found on disk at start.
    pub recovered: u64,
    /// Acknowledged by the broker.
    pub delivered: u64,
    /// Repeats of such.
    pub deduplicated: u64,
    /// Durable in the dead-letter topic.
    pub dead_lettered: u64,
    /// Handed back by fencepost_take_failed.
    pub failed: u64,
    /// Settled in a record that the disk lost later.
    pub corrupt: u64,
    /// Settled on disk, to be sent.
    pub in_spill: u64,
    /// In a shard: waiting, at the broker, or repeats of such.
    pub in_flight: u64,
    /// Not taken by a shard yet.
    pub in_rings: u64,
    /// Not queued for want of room; never part of the sum.
    pub shed: u64,
    /// Not queued for breaking a rule; never part of the sum.
    pub rejected: u64,
    /// Answered with FENCEPOST_PRESSURE_SLOW_DOWN.
    pub slowed: u64,
    /// Acknowledged after publish.timeout.
    pub late: u64,
    /// Batches the broker refused.
    pub refused_batches: u64,
    /// Times a partition's breaker opened.
    pub breakers_opened: u64,
    /// Failed, since sending them would have reordered their device.
    pub would_reorder: u64,
    /// Sent again although they may be in the log already.
    pub uncertain: u64,
    /// Producer handles replaced.
    pub producer_rebuilds: u64,
    /// Errors of the client library that are not about one frame.
    pub client_errors: u64,
    /// Keys forgotten before their time, for want of room (dedup.capacity).
    pub dedup_evicted_early: u64,
    /// Keys remembered now.
    pub dedup_keys: u64,
    /// Settled by a record on disk that was their only copy.
    pub spilled: u64,
    /// Records that came back from the disk.
    pub drained: u64,
}

/// What a stopped router says. Later releases add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, NoUninit)]
pub struct FencepostReport {
    /// Triggers that nothing durable has: in_flight + in_rings. 0 after a clean stop.
    pub unsettled: u64,
    /// Shards whose thread did not end in time, or panicked; the counters may be off then.
    pub lost_shards: u64,
    /// 1 when the counters add up.
    pub adds_up: u64,
    /// The counters, exact.
    pub counts: FencepostCounts,
}

const _: () = {
    const fn is_sync<T: Send + Sync>() {}
    const fn is_send<T: Send>() {}
    // "Every thread may use a router", and "an ingress may move between threads".
    is_sync::<Router>();
    is_sync::<FailSwitch>();
    is_send::<Ingress>();
    assert!(size_of::<FencepostTrigger>() == 6 * size_of::<usize>() + 16, "no padding");
    assert!(size_of::<FencepostAnswer>() == 24 && size_of::<FencepostFailed>() == 16, "no padding");
};

impl FencepostIngress {
    pub(super) fn new(ingress: Ingress, fail_switch: FailSwitch) -> FencepostIngress {
        FencepostIngress { ingress: UnsafeCell::new(ingress), is_held: AtomicBool::new(false), fail_switch }
    }

    /// `None` while another call is inside.
    pub(super) fn hold(&self) -> Option<Held<'_>> {
        // Acquire, partner: the Release in `Held::drop`: what the last call wrote is seen by this one.
        let was_held = self.is_held.swap(true, Ordering::Acquire);
        // Made only when it is meant: dropping one lets the next caller in.
        (!was_held).then(|| Held(self))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Release, partner: the Acquire in `hold`.
        self.0.is_held.store(false, Ordering::Release);
    }
}

impl Deref for Held<'_> {
    type Target = Ingress;
    fn deref(&self) -> &Ingress {
        // SAFETY: there is one `Held` of an ingress at a time (hold), and it lends itself out by Rust's rules.
        unsafe { &*self.0.ingress.get() }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Ingress {
        // SAFETY: there is one `Held` of an ingress at a time (hold), and it lends itself out by Rust's rules.
        unsafe { &mut *self.0.ingress.get() }
    }
}

/// Why a caller's trigger could not even be offered.
pub(super) enum Unfit {
    /// A null pointer with a length; which.
    Null(&'static str),
    /// Judged here, before a byte is read.
    Rule(Reason),
    State(u32),
    Priority(u32),
}

impl FencepostTrigger {
    /// The caller's trigger as ours.
    ///
    /// # Safety
    /// Each pointer is null, or may be read for its length as long as `'a`, and nobody writes there meanwhile.
    pub(super) unsafe fn translate<'a>(&self) -> Result<Trigger<'a>, Unfit> {
        if self.device_id_len > *ID_BYTES.end() {
            return Err(Unfit::Rule(Reason::DeviceIdTooLong { len: self.device_id_len }));
        }
        if self.fence_id_len > *ID_BYTES.end() {
            return Err(Unfit::Rule(Reason::FenceIdTooLong { len: self.fence_id_len }));
        }
        if self.attributes_len > ATTRIBUTES_BYTES_MAX {
            return Err(Unfit::Rule(Reason::AttributesTooLong { len: self.attributes_len }));
        }
        // SAFETY: by the contract above; the lengths are bounded.
        let (device_id, fence_id, attributes) = unsafe {
            (
                bytes(self.device_id.cast(), self.device_id_len).ok_or(Unfit::Null("device_id"))?,
                bytes(self.fence_id.cast(), self.fence_id_len).ok_or(Unfit::Null("fence_id"))?,
                bytes(self.attributes.cast(), self.attributes_len).ok_or(Unfit::Null("attributes"))?,
            )
        };
        let number = |number: u32| u8::try_from(number).ok();
        let state = number(self.state).and_then(State::from_number).ok_or(Unfit::State(self.state))?;
        let priority = match self.priority {
            0 => Priority::Normal,
            other => number(other).and_then(Priority::from_number).ok_or(Unfit::Priority(other))?,
        };
        let trigger = Trigger::from_bytes(device_id, fence_id, state, self.event_time_ms).map_err(Unfit::Rule)?;
        Ok(trigger.with_priority(priority).with_attributes(attributes))
    }
}

impl Unfit {
    /// The answer to it; counts a broken rule like every other.
    pub(super) fn answer(&self, ingress: &mut Ingress) -> FencepostAnswer {
        let reason = match self {
            Unfit::Null(_) => return FencepostAnswer::refused(FencepostStatus::NullArgument),
            Unfit::Rule(reason) => FencepostReason::from(*reason),
            Unfit::State(_) => FencepostReason::UnknownState,
            Unfit::Priority(_) => FencepostReason::UnknownPriority,
        };
        ingress.note_rejected();
        FencepostAnswer { reason, ..FencepostAnswer::refused(FencepostStatus::Rejected) }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Null(what) => write!(out, "{what} is null, but its length is not 0"),
            Unfit::Rule(reason) => Refused::Rejected(*reason).fmt(out),
            Unfit::State(got) => write!(out, "rejected: state = {got}, allowed 1 (enter), 2 (exit), 3 (dwell)"),
            Unfit::Priority(got) => {
                write!(
                    out,
                    "rejected: priority = {got}, allowed 0 (the default, normal), 1 (low), 2 (normal), 3 (high)"
                )
            }
        }
    }
}

impl FencepostAnswer {
    /// Not queued.
    pub(super) const fn refused(status: FencepostStatus) -> FencepostAnswer {
        FencepostAnswer {
            seq: 0,
            status,
            reason: FencepostReason::None,
            pressure: FencepostPressure::Clear,
            reserved: 0,
        }
    }
}

impl From<Result<Accepted, Refused>> for FencepostAnswer {
    fn from(answer: Result<Accepted, Refused>) -> FencepostAnswer {
        match answer {
            Ok(accepted) => {
                let pressure = match accepted.pressure {
                    Pressure::Clear => FencepostPressure::Clear,
                    Pressure::SlowDown => FencepostPressure::SlowDown,
                };
                FencepostAnswer { seq: accepted.seq.0, pressure, ..FencepostAnswer::refused(FencepostStatus::Ok) }
            }
            Err(Refused::Shed(why)) => FencepostAnswer::refused(why.into()),
            Err(Refused::Closed(why)) => FencepostAnswer::refused(why.into()),
            Err(Refused::Rejected(reason)) => {
                FencepostAnswer { reason: reason.into(), ..FencepostAnswer::refused(FencepostStatus::Rejected) }
            }
        }
    }
}

impl From<Counts> for FencepostCounts {
    fn from(counts: Counts) -> FencepostCounts {
        // Taken apart in full: a counter that is new in the engine does not compile until it is here too.
        let Counts {
            accepted,
            recovered,
            delivered,
            deduplicated,
            dead_lettered,
            failed,
            corrupt,
            in_spill,
            in_flight,
            in_rings,
            shed,
            rejected,
            slowed,
            late,
            refused_batches,
            breakers_opened,
            would_reorder,
            uncertain,
            producer_rebuilds,
            client_errors,
            dedup_evicted_early,
            dedup_keys,
            spilled,
            drained,
        } = counts;
        FencepostCounts {
            accepted,
            recovered,
            delivered,
            deduplicated,
            dead_lettered,
            failed,
            corrupt,
            in_spill,
            in_flight,
            in_rings,
            shed,
            rejected,
            slowed,
            late,
            refused_batches,
            breakers_opened,
            would_reorder,
            uncertain,
            producer_rebuilds,
            client_errors,
            dedup_evicted_early,
            dedup_keys,
            spilled,
            drained,
        }
    }
}

impl From<&Report> for FencepostReport {
    fn from(report: &Report) -> FencepostReport {
        FencepostReport {
            unsettled: report.counts.unsettled(),
            lost_shards: report.lost_shards.len() as u64,
            adds_up: report.counts.add_up().into(),
            counts: report.counts.into(),
        }
    }
}

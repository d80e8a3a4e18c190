//! The numbers of the boundary. They are part of the ABI: a number keeps its meaning for good and is never reused.

use super::boundary::named;
use crate::ingress::{ClosedWhy, ShedWhy};
use crate::shard::shared::FailedReason;
use crate::trigger::Reason;
use std::ffi::{CStr, c_char};

/// What became of a call.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostStatus {
    /// Done; for a submit: queued.
    Ok = 0,
    /// Not queued: the queue is too full for the trigger's priority. Try again later, or let it go.
    ShedQueue = 1,
    /// Not queued: its partition is blocked, since the broker does not keep up or is away. Try again later.
    ShedPartition = 2,
    /// Not queued: too many triggers of this ingress are unsettled. Wait until the watermark moves.
    ShedWindow = 3,
    /// Not queued: the trigger breaks a rule (see FencepostReason). Trying again cannot help.
    Rejected = 4,
    /// Not queued: the router was shut down.
    ClosedStopping = 5,
    /// Not queued: the router failed. Shut it down; its log says why.
    ClosedFailed = 6,
    /// Not queued: this process is a forked child; the router lives in the parent.
    ClosedForked = 7,
    /// A pointer is null that may not be.
    NullArgument = 8,
    /// The configuration is to blame; the text says what to mend.
    BadConfig = 9,
    /// Something that is needed is not available: the broker, the topic, the state directory, a thread.
    Unavailable = 10,
    /// All ingresses that the router may have are taken (queue.ingresses).
    NoIngressLeft = 11,
    /// No failed trigger is waiting to be taken.
    Nothing = 12,
    /// A mistake of the library. The router concerned takes nothing any more (FENCEPOST_STATUS_CLOSED_FAILED).
    Internal = 13,
    /// Another thread is inside a call on this ingress; or the log has an owner already. Nothing was done.
    InUse = 14,
    /// An argument has a value that it may not have.
    BadArgument = 15,
    /// Not queued: its partition is diverted, and the disk has no room for its priority. Try again later.
    ShedSpace = 16,
}

/// Which rule a rejected trigger breaks.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostReason {
    /// None: the trigger was not rejected.
    None = 0,
    /// The device id is not UTF-8 text.
    DeviceIdNotUtf8 = 1,
    /// The fence id is not UTF-8 text.
    FenceIdNotUtf8 = 2,
    /// The device id has no bytes.
    EmptyDeviceId = 3,
    /// The device id has more than 256 bytes.
    DeviceIdTooLong = 4,
    /// The fence id has no bytes.
    EmptyFenceId = 5,
    /// The fence id has more than 256 bytes.
    FenceIdTooLong = 6,
    /// There are more than 1024 bytes of attributes.
    AttributesTooLong = 7,
    /// The event time is 0 or negative.
    EventTimeNotPositive = 8,
    /// The event time is too far ahead of the clock (time.future_limit); perhaps it is in micro- or nanoseconds.
    EventTimeInFuture = 9,
    /// The event time is too old (time.past_limit); perhaps it is in seconds.
    EventTimeTooOld = 10,
    /// The event time is in seconds.
    EventTimeInSeconds = 11,
    /// The encoded trigger is larger than the topic takes.
    FrameTooLarge = 12,
    /// The state is none of FencepostState.
    UnknownState = 13,
    /// The priority is none of FencepostPriority.
    UnknownPriority = 14,
}

/// What the device did.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostState {
    /// It came into the fence.
    Enter = 1,
    /// It left the fence.
    Exit = 2,
    /// It has been inside for as long as the evaluator calls a dwell.
    Dwell = 3,
}

/// Who is shed first when a queue fills.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostPriority {
    /// The same as normal: what a structure filled with zeros says.
    Default = 0,
    /// Shed first.
    Low = 1,
    /// Shed when the queue is nearly full.
    Normal = 2,
    /// Shed only when the queue is full.
    High = 3,
}

/// Whether to pace oneself.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostPressure {
    /// There is room.
    Clear = 0,
    /// The queue fills (queue.pause_ratio): wait a moment before the next trigger.
    SlowDown = 1,
}

/// Why nothing durable took a trigger.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostFailedReason {
    /// The record is larger than the topic allows.
    TooLarge = 1,
    /// The broker refused this very record.
    Refused = 2,
    /// Sending it would have put it behind a later trigger of its device.
    WouldReorder = 3,
    /// Its partition was away, and the dead letters did not take it.
    Diverted = 4,
    /// Its fence is not on the list, and the dead letters did not take it.
    UnknownFence = 5,
    /// A record on disk that this version cannot read.
    Unreadable = 6,
    /// Its caller gave it to the dead letters, and they did not take it.
    ByCaller = 7,
}

/// How important a line of the log is.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencepostLogLevel {
    /// Something is lost, or about to be.
    Error = 1,
    /// A person should know.
    Warn = 2,
    /// What happens, now and then.
    Info = 3,
    /// For whoever looks for a fault.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// The name of a status, such as "shed_queue"; "unknown" for a number that is none. Static text; never null.
#[unsafe(no_mangle)]
pub extern "C" fn fencepost_status_name(status: u32) -> *const c_char {
    named("fencepost_status_name", || FencepostStatus::from_number(status).map_or(c"unknown", FencepostStatus::name))
}

/// The name of a reason, such as "device_id_too_long"; "unknown" for a number that is none. Static text; never null.
#[unsafe(no_mangle)]
pub extern "C" fn fencepost_reason_name(reason: u32) -> *const c_char {
    named("fencepost_reason_name", || FencepostReason::from_number(reason).map_or(c"unknown", FencepostReason::name))
}

impl FencepostStatus {
    /// Every status, by its number.
    pub const ALL: [FencepostStatus; 17] = {
        use FencepostStatus::*;
        [
            Ok,
            ShedQueue,
            ShedPartition,
            ShedWindow,
            Rejected,
            ClosedStopping,
            ClosedFailed,
            ClosedForked,
            NullArgument,
            BadConfig,
            Unavailable,
            NoIngressLeft,
            Nothing,
            Internal,
            InUse,
            BadArgument,
            ShedSpace,
        ]
    };

    fn from_number(number: u32) -> Option<FencepostStatus> {
        FencepostStatus::ALL.get(number as usize).copied()
    }

    const fn name(self) -> &'static CStr {
        match self {
            FencepostStatus::Ok => c"ok",
            FencepostStatus::ShedQueue => c"shed_queue",
            FencepostStatus::ShedPartition => c"shed_partition",
            FencepostStatus::ShedWindow => c"shed_window",
            FencepostStatus::Rejected => c"rejected",
            FencepostStatus::ClosedStopping => c"closed_stopping",
            FencepostStatus::ClosedFailed => c"closed_failed",
            FencepostStatus::ClosedForked => c"closed_forked",
            FencepostStatus::NullArgument => c"null_argument",
            FencepostStatus::BadConfig => c"bad_config",
            FencepostStatus::Unavailable => c"unavailable",
            FencepostStatus::NoIngressLeft => c"no_ingress_left",
            FencepostStatus::Nothing => c"nothing",
            FencepostStatus::Internal => c"internal",
            FencepostStatus::InUse => c"in_use",
            FencepostStatus::BadArgument => c"bad_argument",
            FencepostStatus::ShedSpace => c"shed_space",
        }
    }
}

impl FencepostReason {
    /// Every reason, by its number.
    pub const ALL: [FencepostReason; 15] = {
        use FencepostReason::*;
        [
            None,
            DeviceIdNotUtf8,
            FenceIdNotUtf8,
            EmptyDeviceId,
            DeviceIdTooLong,
            EmptyFenceId,
            FenceIdTooLong,
            AttributesTooLong,
            EventTimeNotPositive,
            EventTimeInFuture,
            EventTimeTooOld,
            EventTimeInSeconds,
            FrameTooLarge,
            UnknownState,
            UnknownPriority,
        ]
    };

    fn from_number(number: u32) -> Option<FencepostReason> {
        FencepostReason::ALL.get(number as usize).copied()
    }

    const fn name(self) -> &'static CStr {
        match self {
            FencepostReason::None => c"none",
            FencepostReason::DeviceIdNotUtf8 => c"device_id_not_utf8",
            FencepostReason::FenceIdNotUtf8 => c"fence_id_not_utf8",
            FencepostReason::EmptyDeviceId => c"empty_device_id",
            FencepostReason::DeviceIdTooLong => c"device_id_too_long",
            FencepostReason::EmptyFenceId => c"empty_fence_id",
            FencepostReason::FenceIdTooLong => c"fence_id_too_long",
            FencepostReason::AttributesTooLong => c"attributes_too_long",
            FencepostReason::EventTimeNotPositive => c"event_time_not_positive",
            FencepostReason::EventTimeInFuture => c"event_time_in_future",
            FencepostReason::EventTimeTooOld => c"event_time_too_old",
            FencepostReason::EventTimeInSeconds => c"event_time_in_seconds",
            FencepostReason::FrameTooLarge => c"frame_too_large",
            FencepostReason::UnknownState => c"unknown_state",
            FencepostReason::UnknownPriority => c"unknown_priority",
        }
    }
}

impl From<Reason> for FencepostReason {
    fn from(reason: Reason) -> FencepostReason {
        match reason {
            Reason::DeviceIdNotUtf8 { .. } => FencepostReason::DeviceIdNotUtf8,
            Reason::FenceIdNotUtf8 { .. } => FencepostReason::FenceIdNotUtf8,
            Reason::EmptyDeviceId => FencepostReason::EmptyDeviceId,
            Reason::DeviceIdTooLong { .. } => FencepostReason::DeviceIdTooLong,
            Reason::EmptyFenceId => FencepostReason::EmptyFenceId,
            Reason::FenceIdTooLong { .. } => FencepostReason::FenceIdTooLong,
            Reason::AttributesTooLong { .. } => FencepostReason::AttributesTooLong,
            Reason::EventTimeNotPositive { .. } => FencepostReason::EventTimeNotPositive,
            Reason::EventTimeInFuture { .. } => FencepostReason::EventTimeInFuture,
            Reason::EventTimeTooOld { .. } => FencepostReason::EventTimeTooOld,
            Reason::EventTimeInSeconds { .. } => FencepostReason::EventTimeInSeconds,
            Reason::FrameTooLarge { .. } => FencepostReason::FrameTooLarge,
        }
    }
}

impl From<ShedWhy> for FencepostStatus {
    fn from(why: ShedWhy) -> FencepostStatus {
        match why {
            ShedWhy::Queue => FencepostStatus::ShedQueue,
            ShedWhy::PartitionBlocked => FencepostStatus::ShedPartition,
            ShedWhy::SpillNoSpace => FencepostStatus::ShedSpace,
            ShedWhy::SettleWindow => FencepostStatus::ShedWindow,
        }
    }
}

impl From<ClosedWhy> for FencepostStatus {
    fn from(why: ClosedWhy) -> FencepostStatus {
        match why {
            ClosedWhy::Stopping => FencepostStatus::ClosedStopping,
            ClosedWhy::Failed => FencepostStatus::ClosedFailed,
            ClosedWhy::Forked => FencepostStatus::ClosedForked,
        }
    }
}

impl From<FailedReason> for FencepostFailedReason {
    fn from(reason: FailedReason) -> FencepostFailedReason {
        match reason {
            FailedReason::TooLarge { .. } => FencepostFailedReason::TooLarge,
            FailedReason::Refused { .. } => FencepostFailedReason::Refused,
            FailedReason::WouldReorder => FencepostFailedReason::WouldReorder,
            FailedReason::Diverted => FencepostFailedReason::Diverted,
            FailedReason::UnknownFence => FencepostFailedReason::UnknownFence,
            FailedReason::Unreadable => FencepostFailedReason::Unreadable,
            FailedReason::ByCaller => FencepostFailedReason::ByCaller,
        }
    }
}

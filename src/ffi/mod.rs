//! The C ABI: what `include/fencepost.h` declares. Each function translates its arguments, calls one method, and
//! translates the answer back.
//!
//! Promises: no panic crosses the boundary; one is answered with `INTERNAL`, and the router it happened in takes nothing
//! any more. Null, broken text and unknown numbers are answers. Two threads on one ingress are an answer too, never a
//! data race. Status numbers are never reused, structures of counters only grow at their end. No signal handler is
//! touched. The header is generated from this room and compared with the one in the repository (`tests/ffi.rs`).
//!
//! Cost of a submit over [`crate::Ingress::submit`]: the ids are checked to be UTF-8, and one exchange of a byte that
//! no other thread writes; nothing is allocated. Text for `why` is written in place.

mod boundary;
mod ingress;
mod log_to;
mod numbers;
mod router;
mod types;

#[cfg(debug_assertions)]
pub use boundary::forced;
pub use ingress::{
    fencepost_dead_letter, fencepost_ingress_free, fencepost_settled, fencepost_submit, fencepost_submit_batch,
    fencepost_take_failed,
};
pub use log_to::{FencepostLogCallback, fencepost_log_to};
pub use numbers::{
    FencepostFailedReason, FencepostLogLevel, FencepostPressure, FencepostPriority, FencepostReason, FencepostState,
    FencepostStatus, fencepost_reason_name, fencepost_status_name,
};
pub use router::{
    fencepost_counts, fencepost_health, fencepost_ingress, fencepost_shutdown, fencepost_start, fencepost_start_file,
    fencepost_version,
};
pub use types::{
    FencepostAnswer, FencepostCounts, FencepostFailed, FencepostIngress, FencepostReport, FencepostRouter,
    FencepostTrigger,
};

//! The log, handed to the host: the library prints nothing by itself.

use super::FencepostStatus;
use super::boundary::{Why, guard};
use log::{LevelFilter, Log, Metadata, Record};
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

/// A line is cut to so many bytes with its NUL. It is written on the stack of the thread that logs.
const LINE_BYTES: usize = 1_024;

/// Gets a line of the log: a FencepostLogLevel and text that ends with NUL and is gone after the call. Called from the
/// router's threads and the caller's, several at a time; it must not throw, and must not call the library.
pub type FencepostLogCallback = Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: *const c_char)>;

struct HostLog {
    callback: unsafe extern "C" fn(*mut c_void, u32, *const c_char),
    context: *mut c_void,
}

// SAFETY: the context is only handed back to the callback, which the host promised may be called from every thread.
unsafe impl Send for HostLog {}
// SAFETY: as above.
unsafe impl Sync for HostLog {}

static HOST_LOG: OnceLock<HostLog> = OnceLock::new();

/// Sends the log to the host from now on, once in a process, best before the first start: lines of `level_max`
/// (a FencepostLogLevel) and more important ones. `context` is handed to each call and must live as long as the
/// process. IN_USE: the log has an owner. Without this call nothing is logged.
///
/// # Safety
/// `callback` may be called with `context` from every thread until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_log_to(
    callback: FencepostLogCallback,
    context: *mut c_void,
    level_max: u32,
) -> FencepostStatus {
    guard("fencepost_log_to", None, &mut Why::nowhere(), |_| {
        let Some(callback) = callback else {
            return FencepostStatus::NullArgument;
        };
        let filter = match level_max {
            1 => LevelFilter::Error,
            2 => LevelFilter::Warn,
            3 => LevelFilter::Info,
            4 => LevelFilter::Debug,
            5 => LevelFilter::Trace,
            _ => return FencepostStatus::BadArgument,
        };
        let mut is_ours = false;
        let host_log = HOST_LOG.get_or_init(|| {
            is_ours = true;
            HostLog { callback, context }
        });
        if !is_ours || log::set_logger(host_log).is_err() {
            return FencepostStatus::InUse;
        }
        log::set_max_level(filter);
        FencepostStatus::Ok
    })
}

impl Log for HostLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut line = [0_u8; LINE_BYTES];
        let place: *mut c_char = line.as_mut_ptr().cast();
        // SAFETY: the array has `LINE_BYTES` and outlives `text`.
        let mut text = unsafe { Why::new(place, LINE_BYTES) };
        text.say(record.args());
        // SAFETY: the host promised that the callback may be called from every thread; the text ends with NUL.
        unsafe { (self.callback)(self.context, record.level() as u32, place) };
    }

    fn flush(&self) {}
}

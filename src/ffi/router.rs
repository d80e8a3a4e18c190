//! The functions on a router.

use super::boundary::{Why, bytes, guard, named, write_grown};
use super::{FencepostCounts, FencepostIngress, FencepostReport, FencepostRouter, FencepostStatus};
use crate::config::{Config, ConfigError};
use crate::engine::{Router, StartError};
use std::ffi::{CStr, OsStr, c_char};
use std::fmt::{self, Display};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

/// The longest configuration that is read, in bytes. A length beyond it is a mistake of the caller's arithmetic.
const CONFIG_BYTES_MAX: usize = 1 << 20;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no NUL inside"),
};

/// The version of the library, such as "0.1.0". Static text; never null.
#[unsafe(no_mangle)]
pub extern "C" fn fencepost_version() -> *const c_char {
    named("fencepost_version", || VERSION)
}

/// Starts a router from the text of a configuration (docs/config.md) and returns once it is warm.
///
/// OK: `*out` is the router, to be given to fencepost_shutdown; `why` holds its warnings, one a line.
/// BAD_CONFIG, UNAVAILABLE, INTERNAL: `*out` is null, `why` says what to mend, nothing is left running.
/// `why` may be null; its text ends with NUL and is cut to fit into `why_len` bytes.
///
/// # Safety
/// `toml` has `toml_len` bytes, `why` has `why_len`, `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_start(
    toml: *const c_char,
    toml_len: usize,
    out: *mut *mut FencepostRouter,
    why: *mut c_char,
    why_len: usize,
) -> FencepostStatus {
    // SAFETY: the caller's buffer, by this function's contract.
    let mut why = unsafe { Why::new(why, why_len) };
    guard("fencepost_start", None, &mut why, |why| {
        if out.is_null() {
            return FencepostStatus::NullArgument;
        }
        // SAFETY: not null, and the caller's to be written.
        unsafe { out.write(ptr::null_mut()) };
        if toml_len > CONFIG_BYTES_MAX {
            why.say(format_args!("the configuration has {toml_len} bytes, allowed are {CONFIG_BYTES_MAX}"));
            return FencepostStatus::BadConfig;
        }
        // SAFETY: the caller's text, by this function's contract; the length is bounded.
        let Some(toml) = (unsafe { bytes(toml.cast(), toml_len) }) else {
            return FencepostStatus::NullArgument;
        };
        match str::from_utf8(toml) {
            // SAFETY: not null, and the caller's to be written.
            Ok(toml) => unsafe { launch(Config::from_toml_str(toml), out, why) },
            Err(error) => {
                why.say(format_args!(
                    "the configuration is not UTF-8: byte {} starts no character",
                    error.valid_up_to()
                ));
                FencepostStatus::BadConfig
            }
        }
    })
}

/// Starts a router from a configuration file; like fencepost_start.
///
/// # Safety
/// `path` ends with NUL, `why` has `why_len` bytes, `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_start_file(
    path: *const c_char,
    out: *mut *mut FencepostRouter,
    why: *mut c_char,
    why_len: usize,
) -> FencepostStatus {
    // SAFETY: the caller's buffer, by this function's contract.
    let mut why = unsafe { Why::new(why, why_len) };
    guard("fencepost_start_file", None, &mut why, |why| {
        if out.is_null() {
            return FencepostStatus::NullArgument;
        }
        // SAFETY: not null, and the caller's to be written.
        unsafe { out.write(ptr::null_mut()) };
        if path.is_null() {
            return FencepostStatus::NullArgument;
        }
        // SAFETY: not null, and ends with NUL by this function's contract.
        let path = unsafe { CStr::from_ptr(path) };
        // SAFETY: not null, and the caller's to be written.
        unsafe { launch(Config::from_file(Path::new(OsStr::from_bytes(path.to_bytes()))), out, why) }
    })
}

/// # Safety
/// `out` may be written.
unsafe fn launch(
    config: Result<Config, ConfigError>,
    out: *mut *mut FencepostRouter,
    why: &mut Why,
) -> FencepostStatus {
    match config.map_err(StartError::from).and_then(|config| Router::start(&config)) {
        Ok((router, readiness)) => {
            why.say(Warnings { lines: router.warnings(), is_cold: readiness.is_cold });
            let fail_switch = router.fail_switch();
            // SAFETY: by this function's contract. The box is given back to `fencepost_shutdown`.
            unsafe { out.write(Box::into_raw(Box::new(FencepostRouter { router, fail_switch }))) };
            FencepostStatus::Ok
        }
        Err(error) => {
            why.say(&error);
            if error.is_about_config() { FencepostStatus::BadConfig } else { FencepostStatus::Unavailable }
        }
    }
}

/// What a person should know about how a router started, one a line.
struct Warnings<'a> {
    lines: &'a [String],
    is_cold: bool,
}

impl Display for Warnings<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cold = self.is_cold.then_some("not every producer is warm: the first triggers wait for the broker");
        for (index, line) in self.lines.iter().map(String::as_str).chain(cold).enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(out, "{separator}{line}")?;
        }
        Ok(())
    }
}

/// OK while the router works; CLOSED_FAILED once it failed: then shut it down.
///
/// # Safety
/// `router` is null or running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_health(router: *const FencepostRouter) -> FencepostStatus {
    // SAFETY: null or running, by this function's contract.
    let Some(handle) = (unsafe { router.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    guard("fencepost_health", Some(&handle.fail_switch), &mut Why::nowhere(), |_| {
        if handle.router.is_healthy() { FencepostStatus::Ok } else { FencepostStatus::ClosedFailed }
    })
}

/// The counters now; they may be off by what moves meanwhile. `out_size` is sizeof(FencepostCounts) as the caller
/// knows it: a caller and a library of different releases understand one another.
///
/// # Safety
/// `router` is null or running, `out` may be written for `out_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_counts(
    router: *const FencepostRouter,
    out: *mut FencepostCounts,
    out_size: usize,
) -> FencepostStatus {
    // SAFETY: null or running, by this function's contract.
    let Some(handle) = (unsafe { router.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    guard("fencepost_counts", Some(&handle.fail_switch), &mut Why::nowhere(), |_| {
        if out.is_null() {
            return FencepostStatus::NullArgument;
        }
        // SAFETY: not null, and the caller's for `out_size` bytes.
        unsafe { write_grown(&handle.router.counts().into(), out, out_size) };
        FencepostStatus::Ok
    })
}

/// Takes an ingress, to be given to fencepost_ingress_free. NO_INGRESS_LEFT: `*out` is null; raise queue.ingresses.
///
/// # Safety
/// `router` is null or running, `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_ingress(
    router: *const FencepostRouter,
    out: *mut *mut FencepostIngress,
) -> FencepostStatus {
    // SAFETY: null or running, by this function's contract.
    let Some(handle) = (unsafe { router.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    guard("fencepost_ingress", Some(&handle.fail_switch), &mut Why::nowhere(), |_| {
        if out.is_null() {
            return FencepostStatus::NullArgument;
        }
        // SAFETY: not null, and the caller's to be written.
        unsafe { out.write(ptr::null_mut()) };
        let Some(ingress) = handle.router.ingress() else {
            return FencepostStatus::NoIngressLeft;
        };
        let ingress = Box::new(FencepostIngress::new(ingress, handle.fail_switch.clone()));
        // SAFETY: as above. The box is given back to `fencepost_ingress_free`.
        unsafe { out.write(Box::into_raw(ingress)) };
        FencepostStatus::Ok
    })
}

/// Stops the router: refuses new triggers, delivers what was accepted for as long as `limit_ms`, and returns at the
/// latest a second after it. The router is freed, whatever the answer; no other thread may be using it. Its ingresses
/// stay, answer CLOSED_STOPPING, and are freed by their owners.
///
/// OK: everything that was accepted is settled and every thread ended. UNAVAILABLE: not everything; the report says
/// what is missing. `out` may be null. `out_size` is sizeof(FencepostReport) as the caller knows it.
///
/// # Safety
/// `router` is null or running and not used afterwards; `out` is null or may be written for `out_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_shutdown(
    router: *mut FencepostRouter,
    limit_ms: u64,
    out: *mut FencepostReport,
    out_size: usize,
) -> FencepostStatus {
    if router.is_null() {
        return FencepostStatus::NullArgument;
    }
    // SAFETY: not null, made by `launch`, and given back only once, by this function's contract.
    let FencepostRouter { router, fail_switch } = *unsafe { Box::from_raw(router) };
    let mut router = Some(router);
    let status = guard("fencepost_shutdown", Some(&fail_switch), &mut Why::nowhere(), |_| {
        let router = router.take().expect("a body runs once");
        let report = router.shutdown(Duration::from_millis(limit_ms));
        if !out.is_null() {
            // SAFETY: not null, and the caller's for `out_size` bytes.
            unsafe { write_grown(&FencepostReport::from(&report), out, out_size) };
        }
        let is_clean = report.counts.unsettled() == 0 && report.lost_shards.is_empty();
        if is_clean { FencepostStatus::Ok } else { FencepostStatus::Unavailable }
    });
    if router.is_some() {
        // The body panicked before it took the router. Dropping it stops it, and is guarded like everything else.
        guard("fencepost_shutdown", None, &mut Why::nowhere(), |_| {
            drop(router);
            FencepostStatus::Ok
        });
    }
    status
}

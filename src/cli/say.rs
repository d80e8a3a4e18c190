//! What a command says. `say!` is its result, on standard output; `tell!` is what happens meanwhile, on standard error.
//!
//! Neither ends the process when nobody listens any more, as the standard macros would: delivery goes on without a log.
//! A result that could not be said is remembered, and the exit code tells of it.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The first failure of standard output.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// A line of the result.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::say::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line for a person, or a log.
macro_rules! tell {
    ($($text:tt)*) => { $crate::cli::say::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard output.
pub(super) fn out(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        UNSAID.get_or_init(|| error);
    }
}

/// Writes to standard error. A failure has nowhere to be told, and is no reason to stop.
pub(super) fn err(text: Arguments<'_>) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_fmt(text).and_then(|()| stderr.flush());
}

/// Why a part of the result was not said, if so. A reader that went away needs no words: it is empty then.
pub(super) fn unsaid() -> Option<String> {
    UNSAID.get().map(|error| match error.kind() {
        ErrorKind::BrokenPipe => String::new(),
        _ => format!("standard output: {error}"),
    })
}

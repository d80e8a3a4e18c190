//! How time passes in a model check. Loom knows no time: a thread that naps, or sleeps with a limit, steps back until the
//! others had their turn, as if the limit had passed. A model may stop time instead: then only a wake-up ends a sleep, so
//! that a wake-up which can be missed shows as a deadlock.

use std::cell::Cell;

std::thread_local! {
    // Loom runs all threads of a model on the one that runs the test, so this is the test's own.
    static TIME_STANDS_STILL: Cell<bool> = const { Cell::new(false) };
}

/// From now on no sleep of this test's threads ends by itself.
pub fn stop_time() {
    TIME_STANDS_STILL.set(true);
}

/// As `std::hint`.
pub(crate) mod hint {
    pub(crate) use loom::thread::yield_now as spin_loop;
}

/// As `std::thread`.
pub(crate) mod thread {
    pub(crate) use loom::thread::{Thread, current, yield_now};
    use std::time::Duration;

    pub(crate) fn park_timeout(_: Duration) {
        if super::TIME_STANDS_STILL.get() { loom::thread::park() } else { yield_now() }
    }

    pub(crate) fn sleep(_: Duration) {
        yield_now();
    }
}

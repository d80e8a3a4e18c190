//! Whether this process is a forked child: there the router's threads do not exist, and a ring would fill for nobody.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Counts forks seen from the child: 0 in the first process. `Relaxed`: written once, in a child that has one thread.
#[must_use]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has forks counted from now on. Called by each start of a router; registers once a process.
pub fn watch() {
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // WHY: asking for the process id in each submit costs a system call; this costs one load.
        // SAFETY: the handler is a function that only adds to an atomic, which is allowed in a forked child.
        let answer = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if answer != 0 {
            log::warn!("forks are not noticed: pthread_atfork answered {answer}");
        }
    });
}

//! What the tests on Kafka share: a mock cluster, a configuration, a submitting thread that remembers what it submitted,
//! and a reader that takes the whole topic back and hands it to the checkers.
//!
//! Every test ends in [`Finished`]: the counters add up, and the verdict over the topic is compared with what was
//! accepted. A wait ends in a panic that shows the counters, after [`PATIENCE`].
#![allow(dead_code, unused_imports, reason = "each test target uses a part of it")]

pub mod admin;
pub mod cluster;
pub mod hand;
pub mod leaders;
#[cfg(feature = "cli")]
pub mod letters;
pub mod load;
pub mod mock;
pub mod proxy;
pub mod raw;
pub mod reader;

pub use load::{Load, finish};
pub use mock::Mock;

use fencepost::config::Config;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a test waits for anything before it fails. A loaded machine with two cores is slow, one that watches each access
/// to memory (`script/sanitize`) slower still; a hang is for ever.
pub const PATIENCE: Duration =
    Duration::from_secs(if option_env!("FENCEPOST_PATIENCE_X10").is_some() { 900 } else { 90 });

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() as i64
}

/// A topic name of this test alone.
pub fn fresh_topic(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the number itself matters.
    format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Held by a test that cannot share the machine or the process with the others of its target.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed while it held this has said so itself.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of this test alone, removed when it is dropped.
pub struct Scratch(pub std::path::PathBuf);

impl Scratch {
    pub fn new(what: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("fencepost-{}", fresh_topic(what)));
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning; the test has its verdict by then.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The defaults with memory for a test: 4 ingresses and smaller windows. No key's meaning is changed.
pub fn config(bootstrap: &str, topic: &str) -> Config {
    let mut config = Config::default();
    config.topic.name = topic.to_owned();
    config.kafka.bootstrap = Some(bootstrap.to_owned());
    config.queue.ingresses = 4;
    config.queue.capacity = 20_000;
    config.settle.window = 1 << 17;
    config.dedup.capacity = 200_000;
    config.inflight.total = 32_768;
    config.inflight.partition = 8_192;
    config.inflight.waiting = 8_192;
    config
}

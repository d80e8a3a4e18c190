//! A topic's ends are asked for in a way that bears a client which learns of the leaders meanwhile.
//!
//! librdkafka 2.12.1 has a question (`rd_kafka_ListOffsets`) that looks for leaders it lacks on the thread that asks and on its
//! own at once, and the one that is late locks what the other has freed: a start ended by a signal, once in thousands. Here the
//! asking thread is late at each of its locks, by a function of the lock's name in front of the C library's, and the metadata
//! comes at thirteen different moments: with that question, this ended by a signal each time.
#![cfg(all(feature = "kafka", target_os = "linux", target_env = "gnu", not(target_feature = "crt-static")))]

#[path = "common_kafka/mod.rs"]
mod common_kafka;

use common_kafka::raw::{Raw, known, plan, read_all};
use common_kafka::{Mock, config, fresh_topic};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

/// How late a thread that is held back takes a lock.
const LATE: Duration = Duration::from_millis(10);
/// How many locks it is late for: those of the question, and some.
const LOCKS: u32 = 40;

thread_local! {
    static HELD_BACK: Cell<u32> = const { Cell::new(0) };
}

type Lock = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The C library's own function.
fn library_lock() -> Lock {
    static LOCK: OnceLock<Lock> = OnceLock::new();
    const NAME: &CStr = c"mtx_lock";
    *LOCK.get_or_init(|| {
        // SAFETY: a name that ends with NUL; the answer is looked at.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
        assert!(!found.is_null(), "the C library has C11's threads");
        // SAFETY: the function of this name takes a pointer and returns an int, by C's standard.
        unsafe { std::mem::transmute::<*mut c_void, Lock>(found) }
    })
}

// SAFETY: it does what the C library's function of this name does, by that function, perhaps a little later.
#[unsafe(no_mangle)]
unsafe extern "C" fn mtx_lock(mutex: *mut c_void) -> c_int {
    let left = HELD_BACK.try_with(Cell::get).unwrap_or(0);
    if left > 0 {
        HELD_BACK.set(left - 1);
        std::thread::sleep(LATE);
    }
    // SAFETY: as the caller's.
    unsafe { library_lock()(mutex) }
}

#[test]
fn a_client_that_learns_of_the_leaders_while_it_is_asked_for_the_ends_answers() {
    let topic = fresh_topic("leaders");
    let mock = Mock::with_topic(1, &topic, 1);
    let raw = Raw::new(&mock.bootstrap());
    raw.send_frames(&topic, 0, 0..10);
    raw.flush();
    let config = config(&mock.bootstrap(), &topic);
    for round_trip_ms in (0..=60).step_by(5) {
        mock.set_round_trip_ms(1, round_trip_ms);
        let plan = plan(&config, vec![known(0, 0)]);
        HELD_BACK.set(LOCKS);
        let read = read_all(&plan);
        let late = LOCKS - HELD_BACK.replace(0);
        let (_, all) = read.unwrap_or_else(|error| panic!("with a round trip of {round_trip_ms} ms: {error}"));
        assert_eq!(all.len(), 10, "with a round trip of {round_trip_ms} ms");
        assert!(late >= 10, "the thread that asks was late {late} times: does librdkafka lock otherwise?");
    }
}

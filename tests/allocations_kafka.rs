//! A million triggers through an ingress, a shard and the real sink, without one allocation of ours: neither the thread
//! that submits nor the shard's thread takes memory once both are warm.
//!
//! librdkafka allocates in C, which Rust's allocator does not see. With the C library of GNU its calls of `malloc`,
//! `calloc` and `realloc` are counted too, by functions of these names in front of the library's: those on the shard's thread, and
//! those of the client's broker threads. The mock cluster's own threads are left out.
#![cfg(feature = "kafka")]

#[path = "common_kafka/mod.rs"]
mod common_kafka;

use common_kafka::hand::Hand;
use common_kafka::{Mock, PATIENCE, config, fresh_topic, now_ms};
use fencepost::clock::SystemClock;
use fencepost::ingress::{Ingress, Refused};
use fencepost::trigger::{State, Trigger};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const WARM: i64 = 200_000;
const COUNTED: i64 = 1_000_000;

/// Counts on the threads that ask for it.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static IS_SHARD: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: each call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no such variable any more, and is not counted.
        if IS_COUNTED.try_with(Cell::get).unwrap_or(false) {
            // Relaxed: read after the threads were joined.
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `place` came from `System`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What C takes of the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod c_heap {
    use std::cell::Cell;
    use std::ffi::{c_char, c_int, c_void};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Relaxed, all of them: they are read when the triggers are settled, and a call more or less says nothing.
    pub static IS_ON: AtomicBool = AtomicBool::new(false);
    pub static BY_BROKER_THREADS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    pub static BY_THE_SHARD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    #[derive(Clone, Copy, PartialEq)]
    enum Whose {
        NotAsked,
        Broker,
        Others,
    }

    thread_local! {
        static WHOSE: Cell<Whose> = const { Cell::new(Whose::NotAsked) };
    }

    const PR_GET_NAME: c_int = 16;

    unsafe extern "C" {
        fn __libc_malloc(bytes: usize) -> *mut c_void;
        fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
        fn __libc_realloc(place: *mut c_void, bytes: usize) -> *mut c_void;
        fn prctl(option: c_int, ...) -> c_int;
    }

    fn whose() -> Whose {
        let known = WHOSE.try_with(Cell::get).unwrap_or(Whose::Others);
        if known != Whose::NotAsked {
            return known;
        }
        let mut name = [0 as c_char; 16];
        // SAFETY: the kernel writes at most 16 bytes.
        unsafe { prctl(PR_GET_NAME, name.as_mut_ptr()) };
        let is_broker = name.iter().zip(b"rdk:broker").all(|(has, wants)| *has as u8 == *wants);
        let answer = if is_broker { Whose::Broker } else { Whose::Others };
        WHOSE.set(answer);
        answer
    }

    fn note(bytes: usize) {
        if !IS_ON.load(Ordering::Relaxed) {
            return;
        }
        let counts = match whose() {
            Whose::Broker => &BY_BROKER_THREADS,
            _ if super::IS_SHARD.try_with(Cell::get).unwrap_or(false) => &BY_THE_SHARD,
            _ => return,
        };
        counts[0].fetch_add(1, Ordering::Relaxed);
        counts[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    // SAFETY of the three: the names are the C library's, and each does what it does there, by the library's own function
    // behind it; `free` stays the library's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
        note(bytes);
        // SAFETY: as `malloc`.
        unsafe { __libc_malloc(bytes) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
        note(count.saturating_mul(bytes));
        // SAFETY: as `calloc`.
        unsafe { __libc_calloc(count, bytes) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(place: *mut c_void, bytes: usize) -> *mut c_void {
        note(bytes);
        // SAFETY: as `realloc`.
        unsafe { __libc_realloc(place, bytes) }
    }
}

/// Submits the triggers with these numbers, and waits until they are settled.
fn submit(ingress: &mut Ingress<SystemClock>, devices: &[String], first_ms: i64, numbers: std::ops::Range<i64>) {
    let began = Instant::now();
    let end = numbers.end as u64;
    for number in numbers {
        let device = &devices[number as usize % devices.len()];
        let time = first_ms + number / devices.len() as i64 * 1_000;
        while let Err(refused) = ingress.submit(&Trigger::new(device, "fence:1", State::Enter, time)) {
            assert!(matches!(refused, Refused::Shed(_)), "{refused}");
            assert!(began.elapsed() < PATIENCE * 3, "{refused}");
            std::thread::yield_now();
        }
    }
    while ingress.settled().0 < end {
        assert!(began.elapsed() < PATIENCE * 3, "settled up to {} of {end}", ingress.settled());
        std::thread::yield_now();
    }
}

#[test]
fn a_million_triggers_through_the_real_sink_allocate_nothing_of_ours() {
    let topic = fresh_topic("allocations");
    let mock = Mock::with_topic(1, &topic, 6);
    let mut config = config(&mock.bootstrap(), &topic);
    // The mock may be slow on a loaded machine; an opened breaker is another test's matter, and logs.
    config.breaker.grace = std::time::Duration::from_secs(60);
    let Hand { mut shard, common } = Hand::new(&config, 6);
    let mut ingress = common.ingress().unwrap();
    let devices: Vec<String> = (0..1_000).map(|number| format!("veh:{number}")).collect();
    let first_ms = now_ms() - (WARM + COUNTED);
    let (is_warm, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (is_warm, is_done) = (&is_warm, &is_done);
    let turns = std::thread::scope(|scope| {
        let turning = scope.spawn(move || {
            IS_SHARD.set(true);
            let mut turns = 0_u64;
            // Relaxed, both flags: they order nothing, the triggers themselves come through the ring.
            while !is_done.load(Ordering::Relaxed) {
                IS_COUNTED.set(is_warm.load(Ordering::Relaxed));
                turns += 1;
                let turn = shard.turn();
                if turn.taken + turn.reports == 0 {
                    std::thread::yield_now();
                }
            }
            IS_COUNTED.set(false);
            shard.check();
            turns
        });
        let submitting = scope.spawn(move || {
            submit(&mut ingress, &devices, first_ms, 0..WARM);
            is_warm.store(true, Ordering::Relaxed);
            IS_COUNTED.set(true);
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            c_heap::IS_ON.store(true, Ordering::Relaxed);
            submit(&mut ingress, &devices, first_ms, WARM..WARM + COUNTED);
            IS_COUNTED.set(false);
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            c_heap::IS_ON.store(false, Ordering::Relaxed);
            is_warm.store(false, Ordering::Relaxed);
            is_done.store(true, Ordering::Relaxed);
        });
        submitting.join().unwrap();
        turning.join().unwrap()
    });
    let delivered = common.shard_pages[0].delivered.get();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    println!("{delivered} delivered in {turns} turns, {allocations} allocations");
    assert_eq!(delivered, (WARM + COUNTED) as u64);
    assert_eq!(allocations, 0, "allocations of ours in {COUNTED} triggers");
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let each = |[calls, bytes]: &[AtomicU64; 2]| {
            [calls, bytes].map(|count| count.load(Ordering::Relaxed) as f64 / COUNTED as f64)
        };
        let ([shard, shard_bytes], [brokers, broker_bytes]) =
            (each(&c_heap::BY_THE_SHARD), each(&c_heap::BY_BROKER_THREADS));
        println!(
            "librdkafka, a trigger: {shard:.3} allocations of {shard_bytes:.0} bytes in all on the shard's thread, \
             {brokers:.3} of {broker_bytes:.0} bytes on its broker threads"
        );
        // One message a record, with its key: if there were none, nothing would be counted here.
        assert!(shard >= 1.0 && brokers > 0.0, "{shard} and {brokers} allocations a trigger");
    }
    // The allocator does count.
    IS_COUNTED.set(true);
    drop(std::hint::black_box(Box::new(1)));
    IS_COUNTED.set(false);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 1);
}

//! The window allocates nothing after it is made: counted by an allocator, over many times the window's capacity, at sizes
//! around the edges of its table's lines.

use fencepost::dedup::{Seen, Window, WindowLimits};
use fencepost::trigger::{Key, State};
use fencepost::units::Nanos;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came; counting touches a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above, for `place` too.
        unsafe { System.realloc(place, layout, bytes) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CYCLES: u64 = if cfg!(debug_assertions) { 1_000_000 } else { 40_000_000 };

fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Sends `CYCLES` new keys through a full window, one in eight of them released.
fn churn(capacity: usize) {
    let tokens = 7.min(capacity as u32);
    let key_bytes = (capacity * 64).max(WindowLimits::key_bytes_min(tokens));
    let mut window = Window::new(WindowLimits { capacity, key_bytes, tokens, ttl: Nanos::from_millis(10_000) });
    let memory = window.memory_bytes();
    let before = ALLOCATIONS.get();
    for n in 0..CYCLES {
        let key = Key { device_id: &n.to_le_bytes(), fence_id: b"yard", state: State::Dwell, event_second: 1 };
        assert!(window.ask(key, mix(n), Nanos(n), 0) == Seen::New);
        if n % 8 == 7 { window.release(0) } else { window.commit(0) }
    }
    assert_eq!(ALLOCATIONS.get(), before, "capacity {capacity}: the window allocated");
    assert_eq!(window.memory_bytes(), memory);
    assert!(window.len() >= capacity - 1 && window.len() <= capacity);
    window.assert_consistent();
}

#[test]
fn the_allocator_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert!(ALLOCATIONS.get() > before);
}

#[test]
fn a_full_window_never_allocates() {
    churn(100_000);
}

#[test]
fn small_windows_do_not_allocate_either() {
    for capacity in [1, 2, 3, 5, 6, 8, 9, 641] {
        churn(capacity);
    }
}

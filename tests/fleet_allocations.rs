//! A sample of the simulated fleet, and an acceptance noted in a ledger, allocate nothing once all devices were seen.
#![cfg(feature = "sim")]

use fencepost::sim::fleet::{Fleet, FleetOptions};
use fencepost::verify::Ledger;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: each call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: only this test's thread reads it, after its own allocations.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

#[test]
fn a_sample_and_its_entry_in_the_ledger_allocate_nothing() {
    let options = FleetOptions { devices: 500, rate: 10_000, repeat_ratio: 0.3, ..FleetOptions::default() };
    let mut fleet = Fleet::new(options).expect("options are in bounds");
    let mut ledger = Ledger::with_capacity(400_000, 500);
    let mut seen = HashSet::new();
    for _ in 0..100_000 {
        let sample = fleet.next();
        seen.insert(sample.device);
        ledger.accept(&sample.trigger);
    }
    assert_eq!(seen.len(), 500, "each device has its name in the ledger");

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..300_000 {
        ledger.accept(&fleet.next().trigger);
    }
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(before > 0, "the allocator counts");
    assert_eq!(after - before, 0, "allocations in 300,000 samples");
    assert_eq!(ledger.len(), 400_000);
}

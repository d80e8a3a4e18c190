//! Asks the memory for what will be needed soon, and does not wait for it: reading ahead would, once the processor has
//! filled its own list of what it waits for.
//!
//! On x86-64 alone: elsewhere nothing is asked for.

/// Asks for the cache line in which `place` begins.
#[inline]
pub fn prefetch<T>(place: &T) {
    prefetch_at((&raw const *place).cast());
}

/// Asks for the cache line at an address. It need not be one that may be read.
#[inline]
pub fn prefetch_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // WHY: with it a trigger takes 0.80 of the time in a shard with 100,000 keys (`dedup/table.rs`), and with a full window
    // in flight a shard takes less of its core (docs/numbers.md).
    // SAFETY: it neither reads nor writes, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As [`prefetch_at`], for a line that will be written: no other processor has a copy of it then.
#[inline]
pub fn prefetch_for_write_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // WHY: the client library's lock, which comes after a frame is written, waits until each store before it has arrived, and
    // those to a frame, a flight and a key that left the caches long ago take longest: a third of a shard's turn with
    // full windows. With this the rate on Kafka is 0.87 of the client's alone, without 0.76 (docs/numbers.md).
    // SAFETY: it neither reads nor writes, whatever the address; processors that lack it do nothing.
    unsafe {
        core::arch::asm!("prefetchw byte ptr [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

//! Dedup: "have I seen this trigger within the window?" One [`Window`] per shard, on one thread, sized once.
//!
//! What it promises:
//! - A key is new, pending (its original is in flight), or settled. Time-to-live runs from the first acceptance; a
//!   repeat never extends it, and it ends exactly on time, whenever the record is cleared away.
//! - A pending key is neither evicted nor expired. That it always fits is checked when the window is made:
//!   `capacity >= tokens` and `key_bytes >= tokens * RECORD_BYTES_MAX` ([`WindowLimits::key_bytes_min`]).
//! - At capacity, in keys or in bytes, the oldest settled key makes way, one at a time; never a clear. Oldest means the
//!   order of arrival, but a record that was carried from the tail to the head has its turn a round later.
//! - Keys are compared byte for byte after the hash: a collision of hashes never makes two keys one.
//! - It allocates nothing after it is made (`tests/dedup_alloc.rs`), unless the hash spreads badly (`table.rs`).
//!
//! What it costs, in order:
//! - An ask is one probe run. A new key also writes one record at the head, clears away up to two expired records, and
//!   at capacity erases the oldest. A commit is one load and one store, without a probe.
//! - Records move only when a key is pending for longer than the whole window lasts, or when releases leave the arena
//!   full of dead records. On average a new key moves at most three others in a storm of releases, and at most one
//!   when up to half of the capacity stays pending (counted in `tests.rs`). A single ask may have to walk past all of a
//!   row of pending keys.
//! - Parts of the table are put in order now and then, 6.5 µs each: see `table.rs`.
//!
//! Measured on 2026-11-30, AMD EPYC, 2 cores shared with other work (so the spread is wide), median batches of
//! `cargo bench --no-default-features --bench dedup`, lowest and highest of three runs, in ns:
//!
//! | keys | new key and a commit | repeat of a settled one | repeat of a pending one | bare random read, chained |
//! |---|---|---|---|---|
//! | 100,000 | 68 … 137 | 95 … 174 | 24 … 25 | 122 … 131 |
//! | 1,000,000 | 308 … 345 | 264 … 313 | 26 | 159 … 167 |
//! | 16,000,000 | 509 (one run) | 346 | 28 | 209 |
//!
//! The repeat of a settled key is dearer than a new key at 100,000: it waits for the bucket and then for the record,
//! while a new key's misses overlap. Measured before choosing, in alternating runs: buckets of the place alone, without
//! half of the hash, were the same within the spread; they save 4 of 9 bytes, but a part could then not
//! put itself in order without reading the arena. To look up the bucket of the next key to leave one ask ahead
//! gained nothing at 100,000 keys and 3 to 30 % at 1,000,000; it is left out while windows are small.

mod arena;
mod limits;
mod table;
mod window;

#[cfg(test)]
mod tests;

pub use limits::WindowLimits;
pub use window::{Seen, Window};

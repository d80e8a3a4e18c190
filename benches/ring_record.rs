//! What does a record cost through the product's ring, in and out?
//!
//! Ids of `fleet`, `uuid` and `laden` (`benches/support/ids.rs`), batches of 32, one thread. Other layouts, and two
//! threads: `benches/ring.rs`.
//!
//! Run: `cargo bench --no-default-features --bench ring_record`. The body is in `benches/support/bodies/ring.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn ring_record(criterion: &mut Criterion) {
    support::measure::measure(criterion, "ring_record");
}

criterion_group!(benches, ring_record);
criterion_main!(benches);

//! What does the hash of an idempotency key cost?
//!
//! Ids of `fleet` and `uuid`, a fixed seed. Figures are for one key.
//!
//! Run: `cargo bench --no-default-features --bench key_hash`. The body is in `benches/support/bodies/trigger.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn key_hash(criterion: &mut Criterion) {
    support::measure::measure(criterion, "key_hash");
}

criterion_group!(benches, key_hash);
criterion_main!(benches);

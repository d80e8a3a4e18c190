//! What does the partition of a device cost: murmur2, and one division?
//!
//! Ids of `fleet` (9 to 14 bytes) and `uuid` (40 bytes), 24 partitions. Figures are for one device.
//!
//! Run: `cargo bench --no-default-features --bench partition`. The body is in `benches/support/bodies/trigger.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn partition(criterion: &mut Criterion) {
    support::measure::measure(criterion, "partition");
}

criterion_group!(benches, partition);
criterion_main!(benches);

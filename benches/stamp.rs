//! What does a stamp of the hybrid logical clock cost?
//!
//! 4,096 stamps within one millisecond, which only count up. Figures are for one stamp.
//!
//! Run: `cargo bench --no-default-features --bench stamp`. The body is in `benches/support/bodies/trigger.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn stamp(criterion: &mut Criterion) {
    support::measure::measure(criterion, "stamp");
}

criterion_group!(benches, stamp);
criterion_main!(benches);

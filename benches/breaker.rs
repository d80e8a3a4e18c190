//! What do breakers cost: a frame while all is well, and a whole outage?
//!
//! 24 partitions in turn. `closed` is one frame permitted, sent, acknowledged, and a tick; `outage` is five failures, the
//! reset, a probe and its acknowledgement.
//!
//! Run: `cargo bench --no-default-features --bench breaker`. The body is in `benches/support/bodies/breaker.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn breaker(criterion: &mut Criterion) {
    support::measure::measure(criterion, "breaker");
}

criterion_group!(benches, breaker);
criterion_main!(benches);

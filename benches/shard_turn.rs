//! What does a trigger cost one shard, by who sends it: all alike, a few fences, one device, repeats, bursts?
//!
//! The five named workloads (`benches/support/workloads.rs`), 5,000 triggers of each in a run. Figures are for one trigger,
//! repeats counted like others. The turn against its floors: `benches/turn.rs`.
//!
//! Run: `cargo bench --no-default-features --bench shard_turn`. The body is in `benches/support/bodies/turn.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn shard_turn(criterion: &mut Criterion) {
    support::measure::measure(criterion, "shard_turn");
}

criterion_group!(benches, shard_turn);
criterion_main!(benches);

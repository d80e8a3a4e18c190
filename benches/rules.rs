//! What do the rules cost each trigger that keeps them?
//!
//! Ids of `fleet`, `uuid` and `laden`. Figures are for one trigger.
//!
//! Run: `cargo bench --no-default-features --bench rules`. The body is in `benches/support/bodies/trigger.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn rules(criterion: &mut Criterion) {
    support::measure::measure(criterion, "rules");
}

criterion_group!(benches, rules);
criterion_main!(benches);

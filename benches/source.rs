//! What does a source cost for each row: cutting a block into lines and reading each into a trigger, as `fencepost route`
//! does, without what the router does with it?
//!
//! 4,096 rows, dense, spaced, sorted, laden, and as frames. Figures are for one row.
//!
//! Run: `cargo bench --no-default-features --bench source`. The body is in `benches/support/bodies/rows.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn source(criterion: &mut Criterion) {
    support::measure::measure(criterion, "source");
}

criterion_group!(benches, source);
criterion_main!(benches);

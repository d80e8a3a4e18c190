//! What do the numbers about the work cost those who write them, and whoever reads a page?
//!
//! `record` is one value into a histogram, `streak` one of 32 equal ones in a row, `counters` the four counters that a trigger
//! moves, `read_a_page` four histograms copied and three quantiles of each.
//!
//! Run: `cargo bench --no-default-features --bench metrics`. The body is in `benches/support/bodies/page.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn metrics(criterion: &mut Criterion) {
    support::measure::measure(criterion, "metrics");
}

criterion_group!(benches, metrics);
criterion_main!(benches);

//! What does it cost to read a frame?
//!
//! Ids of `fleet`, `uuid` and `laden`; every field is read and checked. Figures are for one frame.
//!
//! Run: `cargo bench --no-default-features --bench decode`. The body is in `benches/support/bodies/frame.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn decode(criterion: &mut Criterion) {
    support::measure::measure(criterion, "decode");
}

criterion_group!(benches, decode);
criterion_main!(benches);

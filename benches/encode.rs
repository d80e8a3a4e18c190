//! What does it cost to write a frame, and to know its length before?
//!
//! Ids of `fleet`, `uuid` and `laden`. Every frame is decoded and compared. Figures are for one frame.
//!
//! Run: `cargo bench --no-default-features --bench encode`. The body is in `benches/support/bodies/frame.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn encode(criterion: &mut Criterion) {
    support::measure::measure(criterion, "encode");
}

criterion_group!(benches, encode);
criterion_main!(benches);

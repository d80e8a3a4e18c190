//! What does a record cost the spill: into memory, and with the commits that make it durable?
//!
//! `append` is the record alone; `commit_of_250` adds a commit after each 250 records, with its sync of the disk that holds
//! the build. Beside a plain sequential write: `benches/spill.rs`. Figures are for one record.
//!
//! Run: `cargo bench --no-default-features --bench spill_append`. The body is in `benches/support/bodies/append.rs`.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};

fn spill_append(criterion: &mut Criterion) {
    support::measure::measure(criterion, "spill_append");
}

criterion_group!(benches, spill_append);
criterion_main!(benches);

//! Hands bodies to criterion: one group for each benchmark, the time divided by the operations of a run.

use super::{BODIES, Size};
use criterion::{Criterion, Throughput};
use std::time::{Duration, Instant};

/// How large the work is: small where it only runs as a test, as under `cargo test --benches`.
pub fn size() -> Size {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if has("--bench") && !has("--test") { Size::Full } else { Size::Small }
}

/// Measures every body of this question, and checks its answer afterwards.
///
/// # Panics
/// If the question has no body, or an answer is wrong.
pub fn measure(criterion: &mut Criterion, question: &str) {
    let size = size();
    let mut group = criterion.benchmark_group(question);
    let mut met = 0;
    for entry in BODIES.iter().filter(|entry| entry.question() == question) {
        met += 1;
        group.throughput(Throughput::Elements(entry.operations(size)));
        // Made only where the command line asks for it.
        let mut made = None;
        group.bench_function(entry.variant(), |bencher| {
            let body = made.get_or_insert_with(|| entry.make(size));
            bencher.iter_custom(|runs| {
                let mut spent = Duration::ZERO;
                for _ in 0..runs {
                    body.prepare();
                    let start = Instant::now();
                    body.run();
                    spent += start.elapsed();
                }
                spent
            });
        });
        if let Some(mut body) = made {
            body.check();
        }
    }
    assert!(met > 0, "no body is of {question}");
    group.finish();
}

//! What does an ask cost a shard, from 4,096 keys to 16M, and by how many of the asks are repeats?
//!
//! `dedup`: none, 30 and 90 of a hundred asks repeat a settled key of the newer half of the window (the bodies of
//! `benches/support/bodies/dedup.rs`). `dedup_memory`: each kind of ask alone, beside what the memory costs.
//!
//! Each window is full and in its steady state: every new key pushes out the oldest. Keys are those of a fleet: ids of
//! 12 and 10 bytes, one device of 4,096 at a time, fresh seconds. 512 keys are in flight. Hashes are made outside the
//! measured time, as they are made outside the shard. Beside each size: a bare random read of as much memory as the
//! window's live keys and table take, one after the other (`chain`) and overlapping (`free`).
//!
//! Run: `cargo bench --no-default-features --bench dedup`; `FENCEPOST_BENCH_16M=1` adds 16M keys (3 GB).

mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fencepost::dedup::{Seen, WindowLimits};
use fencepost::units::Nanos;
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::Size;
use support::bodies::dedup::{Fleet, Full, IN_FLIGHT, TOKENS, mix};
use support::measure::{measure, size};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: u64 = 4_096;

/// Measures `work` over numbers that `pick` has chosen outside the measured time. The batches' median stands for all of
/// them: a batch that another process interrupted does not count.
fn in_batches(iterations: u64, mut pick: impl FnMut(u64) -> (u64, u64), mut work: impl FnMut(u64, u64)) -> Duration {
    let mut spent = Vec::with_capacity((iterations / BATCH + 1) as usize);
    let mut chosen = Vec::with_capacity(BATCH as usize);
    let mut done = 0;
    while done < iterations {
        let count = BATCH.min(iterations - done);
        chosen.clear();
        chosen.extend((done..done + count).map(&mut pick));
        let start = Instant::now();
        for &(n, hash) in &chosen {
            work(n, hash);
        }
        spent.push(start.elapsed().as_secs_f64() / count as f64);
        done += count;
    }
    spent.sort_by(f64::total_cmp);
    Duration::from_secs_f64(spent[spent.len() / 2] * iterations as f64)
}

fn dedup(criterion: &mut Criterion) {
    measure(criterion, "dedup");
}

fn memory(criterion: &mut Criterion) {
    let mut sizes = size().pick(vec![8_192], vec![100_000, 1_000_000]);
    if size() == Size::Full && std::env::var_os("FENCEPOST_BENCH_16M").is_some() {
        sizes.push(16_000_000);
    }
    let fleet = Fleet::new();
    let mut group = criterion.benchmark_group("dedup_memory");
    group.throughput(Throughput::Elements(1));
    for keys in sizes {
        let mut full = Full::new(keys, &fleet);
        group.bench_function(BenchmarkId::new("miss_commit", keys), |bencher| {
            bencher.iter_custom(|iterations| {
                let first = full.sent;
                in_batches(iterations, |n| (first + n, mix(first + n)), |_, hash| full.miss_commit(&fleet, hash))
            });
        });
        let (oldest, settled) = (full.sent - keys as u64, keys as u64 - IN_FLIGHT);
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("hit_settled", keys), |bencher| {
            bencher.iter_custom(|iterations| {
                turn += 1;
                let pick = |n| {
                    let n = oldest + mix(n ^ (turn << 40)) % settled;
                    (n, mix(n))
                };
                in_batches(iterations, pick, |n, hash| {
                    let seen = full.window.ask(fleet.key(n), hash, Nanos(full.sent), 0);
                    assert!(seen == Seen::Settled);
                })
            });
        });
        let in_flight = full.sent - IN_FLIGHT;
        group.bench_function(BenchmarkId::new("hit_pending", keys), |bencher| {
            bencher.iter_custom(|iterations| {
                let pick = |n| {
                    let n = in_flight + mix(n) % IN_FLIGHT;
                    (n, mix(n))
                };
                in_batches(iterations, pick, |n, hash| {
                    let seen = full.window.ask(fleet.key(n), hash, Nanos(full.sent), 0);
                    assert!(seen == Seen::Pending((n % u64::from(TOKENS)) as u32));
                })
            });
        });
        full.window.assert_consistent();

        let record = WindowLimits::record_bytes(fleet.key(0).stored_len());
        let table = full.window.table_bytes();
        drop(full);
        let words: Vec<u64> = (0..((keys * record + table) / 8) as u64).map(mix).collect();
        let count = words.len() as u64;
        // The high half of a product: a place below `count` without a division.
        let at = |n: u64| ((u128::from(n) * u128::from(count)) >> 64) as usize;
        group.bench_function(BenchmarkId::new("read_chain", keys), |bencher| {
            let mut last = 0;
            bencher.iter_custom(|iterations| {
                turn += 1;
                in_batches(iterations, |n| (n, mix(n ^ (turn << 40))), |_, place| last = words[at(place ^ (last & 1))])
            });
            black_box(last);
        });
        group.bench_function(BenchmarkId::new("read_free", keys), |bencher| {
            let mut sum = 0_u64;
            bencher.iter_custom(|iterations| {
                turn += 1;
                in_batches(
                    iterations,
                    |n| (n, mix(n ^ (turn << 40))),
                    |_, place| sum = sum.wrapping_add(words[at(place)]),
                )
            });
            black_box(sum);
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = dedup, memory
}
criterion_main!(benches);

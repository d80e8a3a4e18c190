//! What the data rooms cost for each trigger: the rules, the partition, the key's hash, the frame in and out, the stamp.
//!
//! Workloads (fixed seeds, 4,096 triggers each, so that neither the branch predictor nor the cache knows them by heart):
//! - `fleet`: ids as fleets have them, 9 to 14 bytes for a device and 11 to 18 for a fence, no attributes;
//! - `uuid`: ids of 40 bytes (a letter, three digits and a UUID), no attributes;
//! - `laden`: the same with 200 bytes of attributes.
//!
//! Every answer is checked before it is timed. Figures are for one trigger.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fencepost::hlc::{Hlc, HlcClock};
use fencepost::partition::{murmur2, partition_of, self_test};
use fencepost::trigger::{Priority, Rules, State, Trigger, rules};
use fencepost::units::{UnixMicros, UnixMs};
use fencepost::wire::{self, Frame};
use foldhash::fast::FixedState;
use std::collections::HashSet;
use std::hint::black_box;

const COUNT: usize = 4_096;
const NOW: UnixMs = UnixMs(1_772_000_000_000);
const WORKLOADS: [&str; 3] = ["fleet", "uuid", "laden"];

struct Item {
    device: String,
    fence: String,
    state: State,
    event_time_ms: i64,
    attributes: Vec<u8>,
}

impl Item {
    fn trigger(&self) -> Trigger<'_> {
        Trigger::new(&self.device, &self.fence, self.state, self.event_time_ms).with_attributes(&self.attributes)
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            device_id: self.device.as_bytes(),
            fence_id: self.fence.as_bytes(),
            state: self.state,
            event_time_ms: self.event_time_ms,
            hlc: Hlc::new(NOW.0 as u64, at as u16),
            accepted: UnixMicros(NOW.0 * 1_000 + at as i64),
            priority: Priority::Normal,
            attributes: &self.attributes,
            router_id: b"router-eu-1",
            incarnation: 17,
            partition_seq: 1_000_000 + at as u64,
            salt: 0,
        }
    }
}

/// SplitMix64: small, seeded, good enough to make ids.
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn workload(name: &str) -> Vec<Item> {
    let mut luck = Luck(20_260_225);
    (0..COUNT)
        .map(|at| {
            let mut uuid = |letter| {
                let (high, low) = (luck.next(), luck.next());
                format!(
                    "{letter}{at:03}{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    high >> 32,
                    high >> 16 & 0xffff,
                    high & 0xffff,
                    low >> 48,
                    low & 0xffff_ffff_ffff
                )
            };
            let (mut device, mut fence) = (uuid('d'), uuid('f'));
            device.truncate(40);
            fence.truncate(40);
            if name == "fleet" {
                device = format!("vehicle-{}", luck.next() % 1_000_000);
                fence = format!("zone:{}:cell-{}", luck.next() % 10, luck.next() % 100_000);
            }
            let state = [State::Enter, State::Exit, State::Dwell][luck.next() as usize % 3];
            let event_time_ms = NOW.0 - (luck.next() % 60_000) as i64;
            let attributes = vec![0x5a; if name == "laden" { 200 } else { 0 }];
            Item { device, fence, state, event_time_ms, attributes }
        })
        .collect()
}

/// Times `one` on each trigger in turn; criterion divides by the count.
fn each<T, R>(criterion: &mut Criterion, group: &str, name: &str, items: &[T], mut one: impl FnMut(usize, &T) -> R) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(items.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for (at, item) in items.iter().enumerate() {
                black_box(one(at, black_box(item)));
            }
        });
    });
    group.finish();
}

fn rules_check(criterion: &mut Criterion) {
    for name in WORKLOADS {
        let items = workload(name);
        let triggers: Vec<Trigger<'_>> = items.iter().map(Item::trigger).collect();
        let limits = Rules::default();
        assert!(triggers.iter().all(|trigger| rules::check(trigger, NOW, &limits).is_ok()));
        each(criterion, "rules", name, &triggers, |_, trigger| rules::check(trigger, black_box(NOW), &limits).is_ok());
    }
}

fn partition(criterion: &mut Criterion) {
    self_test().expect("the hash must be the Java client's");
    assert_eq!(murmur2(b"kafka"), -798_503_068);
    for name in ["fleet", "uuid"] {
        let items = workload(name);
        let used: HashSet<u32> = items.iter().map(|item| partition_of(item.device.as_bytes(), 24).0).collect();
        assert_eq!(used.len(), 24, "every partition has its devices");
        each(criterion, "murmur2", name, &items, |_, item| murmur2(item.device.as_bytes()));
        each(criterion, "partition_of", name, &items, |_, item| partition_of(item.device.as_bytes(), black_box(24)));
    }
}

fn key_hash(criterion: &mut Criterion) {
    let hasher = FixedState::with_seed(7);
    for name in ["fleet", "uuid"] {
        let items = workload(name);
        let keys: Vec<_> = items.iter().map(|item| item.trigger().key()).collect();
        let hashes: HashSet<u64> = keys.iter().map(|key| key.hash_with(&hasher)).collect();
        assert_eq!(hashes.len(), COUNT, "no two keys of the workload share a hash");
        each(criterion, "key_hash", name, &keys, |_, key| key.hash_with(&hasher));
    }
}

fn frame(criterion: &mut Criterion) {
    for name in WORKLOADS {
        let items = workload(name);
        let frames: Vec<Frame<'_>> = items.iter().enumerate().map(|(at, item)| item.frame(at)).collect();
        let encoded: Vec<Vec<u8>> = frames
            .iter()
            .map(|frame| {
                let mut place = vec![0; wire::encoded_len(frame)];
                assert_eq!(wire::encode(frame, &mut place), place.len());
                place
            })
            .collect();
        for (frame, bytes) in frames.iter().zip(&encoded) {
            assert_eq!(wire::decode(bytes).expect("our own frame").frame, *frame);
        }
        let mut place = [0; wire::FRAME_BYTES_MAX];
        each(criterion, "encode", name, &frames, |_, frame| {
            let len = wire::encode(frame, &mut place);
            black_box(&mut place);
            len
        });
        each(criterion, "encoded_len", name, &frames, |_, frame| wire::encoded_len(frame));
        each(criterion, "decode", name, &encoded, |_, bytes| wire::decode(bytes).is_ok());
    }
}

fn stamp(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hlc");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("tick", |bencher| {
        bencher.iter_batched_ref(
            HlcClock::new,
            |clock| {
                for _ in 0..COUNT {
                    black_box(clock.tick(black_box(NOW)));
                }
                assert_eq!(clock.last(), Hlc::new(NOW.0 as u64, (COUNT - 1) as u16));
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, rules_check, partition, key_hash, frame, stamp);
criterion_main!(benches);

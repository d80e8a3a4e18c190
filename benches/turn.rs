//! What does a trigger cost one shard, and what of it is beyond the parts it cannot do without?
//!
//! One shard, a null sink, a dedup window of 100,000 keys in its steady state: a batch of 256 triggers is submitted and
//! the shard turns once, all on one thread, again and again. Beside it, in the same run and on the same triggers, each
//! **floor** alone: a record through the ring, the partition, the key's hash, a dedup miss and its commit, a frame into
//! its slot and back, one seq opened and settled, one histogram record. The turn is held against the sum of its floors.
//!
//! Candidates alternate round by round, so what the neighbours on the machine do hits them alike; a round's figure is
//! the median of its batches, since a batch that another process interrupted says nothing. Read the ratio, not the
//! nanoseconds.
//!
//! `cargo bench --no-default-features --bench turn` measures; run without `--bench` (as `cargo test --benches` does) it
//! only checks the answers. `--only NAME` runs one candidate and `--batches N` says how much of it, for a profiler:
//! the difference of two runs is the cost of the batches between, free of all that happens once.

use fencepost::clock::SystemClock;
use fencepost::config::Config;
use fencepost::dedup::{Seen, Window, WindowLimits};
use fencepost::engine::{Assembly, Blueprint};
use fencepost::hlc::Hlc;
use fencepost::ingress::Ingress;
use fencepost::metrics::{Histogram, ShardPage};
use fencepost::partition::partition_of;
use fencepost::ring::{Incoming, RingLimits, RingReader, RingWriter, Take, ring};
use fencepost::shard::Shard;
use fencepost::shard::settled::Outstanding;
use fencepost::sink::null::NullSink;
use fencepost::slab::{Slab, SlabLimits, SlotId};
use fencepost::trigger::{Priority, State, Trigger};
use fencepost::units::{Nanos, PartitionId, Seq, UnixMicros};
use fencepost::wire::{self, Frame};
use foldhash::fast::FixedState;
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Triggers that are submitted together and taken in one turn.
const BATCH: usize = 256;
/// Batches of one round, of which the median counts.
const BATCHES: usize = 128;
/// Batches of one round before those, of a window of [`WINDOW`] keys: all of them, so that the caches hold what this
/// candidate needs and not what the others left in them. A larger window does not fit the caches anyway.
const BATCHES_BEFORE: usize = WINDOW / BATCH;
const PARTITIONS: u32 = 24;
/// Keys in the dedup window, unless `--window` says otherwise.
const WINDOW: usize = 100_000;
const SLOTS: usize = 16_384;
const DEVICES: usize = 4_096;
const FENCES: usize = 256;
const ROUTER_ID: &str = "router-eu-1";
const INCARNATION: u64 = 17;
const DAY_MS: i64 = 86_400_000;

/// Triggers without end, no two with the same key: one device after the other, a new second each time round.
struct Workload {
    name: &'static str,
    devices: Vec<String>,
    fences: Vec<String>,
    start_ms: i64,
}

impl Workload {
    fn new(name: &'static str, start_ms: i64) -> Workload {
        let id = |letter: char, n: usize| match name {
            "fleet" if letter == 'v' => format!("veh-{n:05}"),
            "fleet" => format!("cell:{}:{}", n / 16, n % 16),
            "uuid" => format!("{letter}{n:07x}-5f1c-4a0e-9d3b-{:012x}", n.wrapping_mul(0x9e37_79b9_7f4a)),
            other => panic!("no workload is called {other}"),
        };
        Workload {
            name,
            devices: (0..DEVICES).map(|n| id('v', n)).collect(),
            fences: (0..FENCES).map(|n| id('f', n)).collect(),
            start_ms,
        }
    }

    /// The `nth` batch.
    fn batch(&self, nth: u64) -> Vec<Trigger<'_>> {
        (0..BATCH)
            .map(|at| {
                let n = nth as usize * BATCH + at;
                let (device, fence) = (&self.devices[n % DEVICES], &self.fences[(n >> 4) % FENCES]);
                Trigger::new(device, fence, State::Enter, self.start_ms + (n / DEVICES) as i64 * 1_000)
            })
            .collect()
    }
}

/// Something that is done to every trigger of a batch.
trait Candidate {
    fn run(&mut self, batch: &[Trigger<'_>]);
    /// Panics unless everything that went in came out.
    fn check(&mut self, batches: u64);
}

/// The product: an ingress and a shard, turned by hand.
struct Product {
    ingress: Ingress,
    shard: Shard<NullSink, SystemClock>,
    page: Arc<ShardPage>,
}

impl Product {
    fn new(window: usize) -> Product {
        let mut config = Config::default();
        config.dedup.capacity = window;
        (config.inflight.partition, config.inflight.total, config.inflight.waiting) = (4_096, SLOTS / 2, SLOTS / 2);
        let blueprint = Blueprint {
            limits: config.limits().expect("the keys agree with each other"),
            partitions: PARTITIONS,
            router_id: ROUTER_ID.into(),
            incarnation: INCARNATION,
            record_time_is_event: false,
            policy: fencepost::shard::Policy::Refuse,
            has_disk: false,
            has_letters: false,
            hash_seed: None,
        };
        let make_sink = |_, _| Ok::<_, Infallible>(NullSink::new(0, SLOTS));
        let Ok(mut assembly) = Assembly::new(&blueprint, SystemClock::new(), make_sink);
        let ingress = assembly.common.ingress().expect("nobody else took one");
        let page = Arc::clone(&assembly.common.shard_pages[0]);
        Product { ingress, shard: assembly.shards.remove(0), page }
    }
}

impl Candidate for Product {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        self.ingress.submit_batch(batch, |_, answer| {
            black_box(answer.is_ok());
        });
        black_box(self.shard.turn());
    }

    fn check(&mut self, batches: u64) {
        self.shard.turn();
        self.shard.check();
        assert!(self.shard.is_settled());
        assert_eq!(self.page.delivered.get(), batches * BATCH as u64, "every trigger was new, and was delivered");
        assert_eq!(self.ingress.settled(), Seq(batches * BATCH as u64));
    }
}

/// The caller's half of the product alone: what `submit_batch` costs. The turn is outside the measured time.
struct Submit(Product);

impl Candidate for Submit {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        self.0.ingress.submit_batch(batch, |_, answer| {
            black_box(answer.is_ok());
        });
    }

    fn check(&mut self, batches: u64) {
        self.0.check(batches);
    }
}

/// A record into the ring and out again.
struct RingFloor {
    writer: RingWriter,
    reader: RingReader,
    seq: u64,
    sum: u64,
}

impl RingFloor {
    fn new() -> RingFloor {
        let (writer, reader) = ring(RingLimits::for_triggers(100_000));
        RingFloor { writer, reader, seq: 0, sum: 0 }
    }
}

impl Candidate for RingFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        for trigger in batch {
            self.seq += 1;
            let incoming = Incoming {
                seq: Seq(self.seq),
                accepted: Nanos(self.seq),
                event_time_ms: trigger.event_time_ms,
                hash: self.seq,
                partition: PartitionId(0),
                state: trigger.state,
                priority: Priority::Normal,
                device_id: trigger.device_id.as_bytes(),
                fence_id: trigger.fence_id.as_bytes(),
                attributes: trigger.attributes,
            };
            assert!(self.writer.stage(&incoming).is_ok());
        }
        self.writer.publish();
        let sum = &mut self.sum;
        let taken = self.reader.take(BATCH, |incoming| {
            *sum += black_box(&incoming).seq.0;
            Take::Taken
        });
        assert_eq!(taken, batch.len());
    }

    fn check(&mut self, batches: u64) {
        let count = batches * BATCH as u64;
        assert_eq!(self.sum, count * (count + 1) / 2);
    }
}

/// The device's partition: murmur2 and one division.
struct PartitionFloor;

impl Candidate for PartitionFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        for trigger in batch {
            black_box(partition_of(trigger.device_id.as_bytes(), black_box(PARTITIONS)));
        }
    }

    fn check(&mut self, _: u64) {}
}

/// The hash of the idempotency key.
struct HashFloor(FixedState);

impl Candidate for HashFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        for trigger in batch {
            black_box(trigger.key().hash_with(&self.0));
        }
    }

    fn check(&mut self, _: u64) {}
}

/// A new key into the window and settled there, while the oldest leaves.
struct DedupFloor {
    window: Window,
    /// Outside the measured time: hashes are a floor of their own.
    hashes: Vec<u64>,
    asked: u64,
    hasher: FixedState,
}

impl DedupFloor {
    fn new(window: usize) -> DedupFloor {
        let limits = WindowLimits {
            capacity: window,
            key_bytes: WindowLimits::key_bytes_min(SLOTS as u32).max(window * 128),
            tokens: SLOTS as u32,
            ttl: Nanos::from_millis(10_000),
        };
        DedupFloor { window: Window::new(limits), hashes: Vec::new(), asked: 0, hasher: FixedState::with_seed(7) }
    }
}

impl Candidate for DedupFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        for (token, (trigger, hash)) in batch.iter().zip(&self.hashes).enumerate() {
            self.asked += 1;
            let seen = self.window.ask(trigger.key(), *hash, Nanos(self.asked), token as u32);
            assert_eq!(seen, Seen::New);
        }
        for token in 0..batch.len() {
            self.window.commit(token as u32);
        }
    }

    fn check(&mut self, batches: u64) {
        assert_eq!(self.window.len() as u64, (batches * BATCH as u64).min(self.window.capacity() as u64));
        assert_eq!(self.window.pending(), 0);
    }
}

/// A frame measured, a slot taken, the frame written, lent, taken back and freed.
struct EncodeFloor {
    slab: Slab,
    lent: Vec<SlotId>,
    count: u64,
}

impl Candidate for EncodeFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        for trigger in batch {
            self.count += 1;
            let frame = Frame {
                device_id: trigger.device_id.as_bytes(),
                fence_id: trigger.fence_id.as_bytes(),
                state: trigger.state,
                event_time_ms: trigger.event_time_ms,
                hlc: Hlc::new(trigger.event_time_ms as u64, self.count as u16),
                accepted: UnixMicros(trigger.event_time_ms * 1_000),
                priority: Priority::Normal,
                attributes: trigger.attributes,
                router_id: ROUTER_ID.as_bytes(),
                incarnation: INCARNATION,
                partition_seq: self.count,
                salt: 0,
            };
            let Some(slot) = self.slab.take(wire::encoded_len(&frame)) else { panic!("the slab has room for a batch") };
            wire::encode(&frame, self.slab.frame_mut(slot));
            self.slab.lend_to_nobody(slot);
            self.lent.push(slot);
        }
        for slot in self.lent.drain(..) {
            self.slab.free(slot);
        }
    }

    fn check(&mut self, _: u64) {
        assert_eq!(self.slab.free_slots(), SLOTS);
    }
}

/// A seq opened and settled, the frontier asked for once a batch.
struct SettleFloor {
    outstanding: Outstanding,
    seq: u64,
}

impl Candidate for SettleFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        let first = self.seq + 1;
        self.seq += batch.len() as u64;
        for seq in first..=self.seq {
            self.outstanding.open(black_box(seq));
        }
        for seq in first..=self.seq {
            self.outstanding.settle(black_box(seq));
        }
        assert_eq!(self.outstanding.frontier(), self.seq);
    }

    fn check(&mut self, _: u64) {}
}

/// One value into one histogram.
struct HistogramFloor(Histogram, u64);

impl Candidate for HistogramFloor {
    fn run(&mut self, batch: &[Trigger<'_>]) {
        for _ in batch {
            self.1 += 1;
            self.0.record(Nanos(black_box(20_000 + self.1 % 50_000)));
        }
    }

    fn check(&mut self, batches: u64) {
        assert_eq!(self.0.snapshot().count(), batches * BATCH as u64);
    }
}

/// A candidate and its figures.
struct Entry {
    name: &'static str,
    kind: Kind,
    batches: u64,
    /// Nanoseconds per trigger, one figure a round.
    rounds: Vec<f64>,
}

enum Kind {
    Product(Product),
    Submit(Submit),
    Dedup(DedupFloor),
    Floor(Box<dyn Candidate>),
}

impl Entry {
    fn all(window: usize) -> Vec<Entry> {
        let slab = Slab::new(SlabLimits { slots: SLOTS, frame_bytes: SLOTS * 256 });
        let entry = |name, kind| Entry { name, kind, batches: 0, rounds: Vec::new() };
        let floor = |name, candidate| entry(name, Kind::Floor(candidate));
        vec![
            entry("submit + turn", Kind::Product(Product::new(window))),
            entry("submit", Kind::Submit(Submit(Product::new(window)))),
            floor("ring", Box::new(RingFloor::new())),
            floor("partition", Box::new(PartitionFloor)),
            floor("key hash", Box::new(HashFloor(FixedState::with_seed(7)))),
            entry("dedup", Kind::Dedup(DedupFloor::new(window))),
            floor("encode", Box::new(EncodeFloor { slab, lent: Vec::with_capacity(BATCH), count: 0 })),
            floor("settle", Box::new(SettleFloor { outstanding: Outstanding::new(1 << 20), seq: 0 })),
            floor("histogram", Box::new(HistogramFloor(Histogram::default(), 0))),
        ]
    }

    fn is_floor(&self) -> bool {
        matches!(self.kind, Kind::Floor(_) | Kind::Dedup(_))
    }

    /// One batch; what it took.
    fn batch(&mut self, workload: &Workload) -> Duration {
        let batch = workload.batch(self.batches);
        self.batches += 1;
        match &mut self.kind {
            Kind::Product(product) => timed(product, &batch),
            Kind::Submit(submit) => {
                let took = timed(submit, &batch);
                submit.0.shard.turn();
                took
            }
            Kind::Dedup(dedup) => {
                dedup.hashes.clear();
                dedup.hashes.extend(batch.iter().map(|trigger| trigger.key().hash_with(&dedup.hasher)));
                timed(dedup, &batch)
            }
            Kind::Floor(floor) => timed(floor.as_mut(), &batch),
        }
    }

    fn check(&mut self) {
        let batches = self.batches;
        match &mut self.kind {
            Kind::Product(product) => product.check(batches),
            Kind::Submit(submit) => submit.check(batches),
            Kind::Dedup(dedup) => dedup.check(batches),
            Kind::Floor(floor) => floor.check(batches),
        }
    }

    fn round(&mut self, workload: &Workload) {
        for _ in 0..BATCHES_BEFORE {
            self.batch(workload);
        }
        let mut spent: Vec<f64> = (0..BATCHES).map(|_| self.batch(workload).as_nanos() as f64 / BATCH as f64).collect();
        self.rounds.push(median(&mut spent));
    }
}

fn timed(candidate: &mut (impl Candidate + ?Sized), batch: &[Trigger<'_>]) -> Duration {
    let start = Instant::now();
    candidate.run(black_box(batch));
    start.elapsed()
}

fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * quantile).round() as usize]
}

/// What the command line asks for.
struct Asked {
    rounds: usize,
    only: Option<String>,
    batches: u64,
    window: usize,
}

impl Asked {
    fn read() -> Asked {
        let args: Vec<String> = std::env::args().collect();
        let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
        let number = |name: &str| value(name).map(|text| text.parse::<u64>().expect("a number"));
        let is_full = args.iter().any(|arg| arg == "--bench");
        Asked {
            rounds: number("--rounds").unwrap_or(if is_full { 31 } else { 1 }) as usize,
            only: value("--only"),
            batches: number("--batches").unwrap_or(500),
            window: number("--window").map_or(WINDOW, |keys| keys as usize),
        }
    }
}

/// Fills every window, so that each candidate is in its steady state.
fn fill(entry: &mut Entry, workload: &Workload, window: usize) {
    for _ in 0..(window + window / 4) / BATCH {
        entry.batch(workload);
    }
}

fn main() {
    let asked = Asked::read();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() as i64;
    for name in ["fleet", "uuid"] {
        // A second for each 4,096 triggers, so that days of them fit before now.
        let workload = Workload::new(name, now_ms / 1_000 * 1_000 - 6 * DAY_MS);
        let mut entries = Entry::all(asked.window);
        if let Some(only) = &asked.only {
            entries.retain(|entry| entry.name == only);
            assert!(!entries.is_empty(), "no candidate is called {only}");
            fill(&mut entries[0], &workload, asked.window);
            let mut spent: Vec<f64> =
                (0..asked.batches).map(|_| entries[0].batch(&workload).as_nanos() as f64 / BATCH as f64).collect();
            entries[0].check();
            println!("{only}: {:.1} ns, a tenth below {:.1} ns", median(&mut spent), quantile(&mut spent, 0.1));
            return;
        }
        entries.iter_mut().for_each(|entry| fill(entry, &workload, asked.window));
        for _ in 0..asked.rounds {
            entries.iter_mut().for_each(|entry| entry.round(&workload));
        }
        report(&workload, &mut entries);
        entries.iter_mut().for_each(Entry::check);
    }
}

fn report(workload: &Workload, entries: &mut [Entry]) {
    let rounds = entries[0].rounds.len();
    let ids = workload.devices[0].len() + workload.fences[0].len();
    println!("{} (ids of {ids} bytes in all; {rounds} rounds of {BATCHES} batches of {BATCH}):", workload.name);
    let sum_of = |round: usize| entries.iter().filter(|entry| entry.is_floor()).map(|entry| entry.rounds[round]).sum();
    let sums: Vec<f64> = (0..rounds).map(sum_of).collect();
    let mut ratios: Vec<f64> = entries[0].rounds.iter().zip(&sums).map(|(turn, sum)| turn / sum).collect();
    for entry in entries.iter_mut() {
        let kind = if entry.is_floor() { "floor" } else { "" };
        println!("  {:<14} {:>7.1} ns  {kind}", entry.name, median(&mut entry.rounds));
    }
    println!("  {:<14} {:>7.1} ns", "sum of floors", median(&mut sums.clone()));
    let (low, middle, high) = (quantile(&mut ratios, 0.25), median(&mut ratios), quantile(&mut ratios, 0.75));
    println!("  submit + turn / sum of floors = {middle:.2} (half of the rounds within {low:.2} to {high:.2})");
}

//! Which layout should a ring of whole, variable-length records have, and what does a record cost?
//!
//! Candidates over `rtrb`: units of 1, 8, 64 (a cache line) and 128 bytes; per unit two ways of writing a batch that is
//! published in one go: **staged** (encoded into a buffer of the writer, then copied into the ring by safe calls) and
//! **in place** (encoded into the free part of the ring, published by one `unsafe` commit). For lines also **each**:
//! in place by safe calls, which zero a record's lines first and can only publish record by record.
//! The product's ring stands beside them.
//!
//! Every candidate does the same work: the same records, a 40-byte header, whole records only, batches of 32; the reader
//! adds up every header and touches every line. Candidates alternate round by round in one run, so what the neighbours
//! on the machine do hits them alike; read the ratio, not the nanoseconds. Two threads on two busy cores spend most of a
//! round waiting for each other's core: there the best round says what the layout costs.
//!
//! `cargo bench --no-default-features --bench ring` measures; run without `--bench` (as `cargo test --benches` does) it only
//! checks the answers.

use bytemuck::{Pod, Zeroable};
use fencepost::ring::{Incoming, RingLimits, RingReader, RingWriter, Take, ring};
use fencepost::trigger::{Priority, State};
use fencepost::units::{Nanos, PartitionId, Seq};
use rtrb::{Consumer, Producer, RingBuffer};
use std::hint::black_box;
use std::mem::{MaybeUninit, size_of};
use std::time::Instant;

/// Records that are staged and published together, and taken together.
const BATCH: usize = 32;
/// Bytes of a candidate's ring: larger than an L1, smaller than an L2, so that copies are paid in cache.
const RING_BYTES: usize = 1 << 18;

/// What a record carries in front of its bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    seq: u64,
    accepted: u64,
    event_time_ms: i64,
    hash: u64,
    partition: u32,
    device: u8,
    fence: u8,
    attributes: u16,
}
const HEADER: usize = size_of::<Header>();
/// The longest record.
const RECORD_MAX: usize = HEADER + 256 + 256 + 1024;

/// The ids and attributes of one workload.
struct Workload {
    name: &'static str,
    device: Vec<u8>,
    fence: Vec<u8>,
    attributes: Vec<u8>,
}

impl Workload {
    fn new(name: &'static str, device: usize, fence: usize, attributes: usize) -> Workload {
        let bytes = |len: usize, seed: u8| (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        Workload { name, device: bytes(device, 1), fence: bytes(fence, 2), attributes: bytes(attributes, 3) }
    }

    fn record_bytes(&self) -> usize {
        HEADER + self.device.len() + self.fence.len() + self.attributes.len()
    }
}

fn workloads() -> [Workload; 3] {
    [
        Workload::new("ids of 80 bytes in all", 40, 40, 0),
        Workload::new("ids of 24 bytes in all", 12, 12, 0),
        Workload::new("256 + 256 + 1024 bytes", 256, 256, 1024),
    ]
}

/// What both ends must agree on: how many records, and a sum over headers and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    records: u64,
    sum: u64,
}

impl Answer {
    fn add(&mut self, seq: u64, hash: u64, device: &[u8], fence: &[u8], attributes: &[u8]) {
        self.records += 1;
        // The last byte of each part and the first of the ids: every record's ends are looked at, in their place.
        let ends = u64::from(device[0])
            + 3 * u64::from(device[device.len() - 1])
            + 5 * u64::from(fence[0])
            + 7 * u64::from(fence[fence.len() - 1])
            + 11 * u64::from(attributes.last().copied().unwrap_or(0));
        self.sum = self.sum.wrapping_mul(31).wrapping_add(seq ^ hash.rotate_left(7)).wrapping_add(ends);
    }
}

/// A candidate's writing end.
trait Write: Send {
    /// Writes records `from..from + count`, published in one go if it can; false if they do not fit now.
    fn write(&mut self, from: u64, count: usize, workload: &Workload) -> bool;
}

/// A candidate's reading end.
trait Read: Send {
    /// Takes up to `most` records.
    fn read(&mut self, most: usize, answer: &mut Answer) -> usize;
}

type Ends = (Box<dyn Write>, Box<dyn Read>);

/// The unit of a ring.
trait Unit: Pod + Default + Send {
    const NAME: &'static str;
}
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);
impl Default for Line {
    fn default() -> Line {
        Line([0; 64])
    }
}
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
struct Slot([u8; 128]);
impl Default for Slot {
    fn default() -> Slot {
        Slot([0; 128])
    }
}
impl Unit for u8 {
    const NAME: &'static str = "bytes";
}
impl Unit for u64 {
    const NAME: &'static str = "words";
}
impl Unit for Line {
    const NAME: &'static str = "lines";
}
impl Unit for Slot {
    const NAME: &'static str = "slots of 128";
}

fn units<T>(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<T>())
}

fn header_of(seq: u64, workload: &Workload) -> Header {
    Header {
        seq,
        accepted: seq * 20_000,
        event_time_ms: 1_700_000_000_000 + seq as i64,
        hash: seq.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        partition: (seq % 24) as u32,
        device: (workload.device.len() - 1) as u8,
        fence: (workload.fence.len() - 1) as u8,
        attributes: workload.attributes.len() as u16,
    }
}

#[inline]
fn encode(place: &mut [u8], header: &Header, workload: &Workload) {
    let (head, rest) = place.split_at_mut(HEADER);
    head.copy_from_slice(bytemuck::bytes_of(header));
    let (device, rest) = rest.split_at_mut(workload.device.len());
    device.copy_from_slice(&workload.device);
    let (fence, rest) = rest.split_at_mut(workload.fence.len());
    fence.copy_from_slice(&workload.fence);
    if !workload.attributes.is_empty() {
        rest[..workload.attributes.len()].copy_from_slice(&workload.attributes);
    }
}

/// The reading end, the same for every candidate: whole records as slices; one that straddles the end is copied.
struct Reader<T> {
    consumer: Consumer<T>,
    bounce: Vec<T>,
}

impl<T: Unit> Reader<T> {
    fn new(consumer: Consumer<T>) -> Box<Reader<T>> {
        Box::new(Reader { consumer, bounce: vec![T::zeroed(); units::<T>(RECORD_MAX)] })
    }
}

impl<T: Unit> Read for Reader<T> {
    fn read(&mut self, most: usize, answer: &mut Answer) -> usize {
        read(&mut self.consumer, &mut self.bounce, most, answer)
    }
}

fn read<T: Unit>(consumer: &mut Consumer<T>, bounce: &mut [T], most: usize, answer: &mut Answer) -> usize {
    let have = consumer.slots();
    let Ok(chunk) = consumer.read_chunk(have) else { unreachable!("slots() said so") };
    let (one, two) = chunk.as_slices();
    let (mut at, mut taken) = (0, 0);
    while at < have && taken < most {
        let header: Header = if at + units::<T>(HEADER) <= one.len() {
            bytemuck::pod_read_unaligned(&bytemuck::cast_slice(&one[at..])[..HEADER])
        } else if at >= one.len() {
            bytemuck::pod_read_unaligned(&bytemuck::cast_slice(&two[at - one.len()..])[..HEADER])
        } else {
            let n = units::<T>(HEADER);
            let mid = one.len() - at;
            bounce[..mid].copy_from_slice(&one[at..]);
            bounce[mid..n].copy_from_slice(&two[..n - mid]);
            bytemuck::pod_read_unaligned(&bytemuck::cast_slice(bounce)[..HEADER])
        };
        let device = usize::from(header.device) + 1;
        let fence = usize::from(header.fence) + 1;
        let attributes = usize::from(header.attributes);
        let n = units::<T>(HEADER + device + fence + attributes);
        let record: &[T] = if at + n <= one.len() {
            &one[at..at + n]
        } else if at >= one.len() {
            &two[at - one.len()..at - one.len() + n]
        } else {
            let mid = one.len() - at;
            bounce[..mid].copy_from_slice(&one[at..]);
            bounce[mid..n].copy_from_slice(&two[..n - mid]);
            &bounce[..n]
        };
        let bytes = &bytemuck::cast_slice(record)[HEADER..];
        let (device, bytes) = bytes.split_at(device);
        let (fence, bytes) = bytes.split_at(fence);
        answer.add(header.seq, header.hash, device, fence, &bytes[..attributes]);
        at += n;
        taken += 1;
    }
    chunk.commit(at);
    taken
}

/// Encoded into a buffer of the writer, copied into the ring by `push_entire_slice`.
struct Staged<T> {
    producer: Producer<T>,
    stage: Vec<T>,
}

impl<T: Unit> Staged<T> {
    fn ends() -> Ends {
        let (producer, consumer) = RingBuffer::new(units::<T>(RING_BYTES));
        let stage = vec![T::zeroed(); BATCH * units::<T>(RECORD_MAX)];
        (Box::new(Staged { producer, stage }), Reader::new(consumer))
    }
}

impl<T: Unit> Write for Staged<T> {
    fn write(&mut self, from: u64, count: usize, workload: &Workload) -> bool {
        let n = units::<T>(workload.record_bytes());
        if self.producer.cached_slots() < n * count && self.producer.slots() < n * count {
            return false;
        }
        for (seq, place) in (from..).zip(self.stage.chunks_exact_mut(n).take(count)) {
            encode(bytemuck::cast_slice_mut(place), &header_of(seq, workload), workload);
        }
        self.producer.push_entire_slice(&self.stage[..n * count]).is_ok()
    }
}

/// Encoded into the free part of the ring, published by one commit.
struct InPlace<T> {
    producer: Producer<T>,
    straddle: Vec<T>,
}

impl<T: Unit> InPlace<T> {
    fn ends() -> Ends {
        let (producer, consumer) = RingBuffer::new(units::<T>(RING_BYTES));
        let straddle = vec![T::zeroed(); units::<T>(RECORD_MAX)];
        (Box::new(InPlace { producer, straddle }), Reader::new(consumer))
    }
}

/// The place, initialised: whatever a record leaves unwritten in its last unit is zero.
fn zeroed<T: Unit>(place: &mut [MaybeUninit<T>]) -> &mut [T] {
    // Only the last unit may be left partly unwritten by a record; the others are wholly overwritten.
    if size_of::<T>() > 8 {
        for unit in &mut *place {
            unit.write(T::zeroed());
        }
    } else if let Some(last) = place.last_mut() {
        last.write(T::zeroed());
    }
    // SAFETY: every byte of the place is either zero now (units above a word, or the last one), or part of the record
    // that `encode` writes next; the units are plain data.
    unsafe { &mut *(std::ptr::from_mut(place) as *mut [T]) }
}

impl<T: Unit> Write for InPlace<T> {
    fn write(&mut self, from: u64, count: usize, workload: &Workload) -> bool {
        let n = units::<T>(workload.record_bytes());
        let Ok(mut chunk) = self.producer.write_chunk_uninit(n * count) else { return false };
        let (one, two) = chunk.as_mut_slices();
        for (k, seq) in (from..from + count as u64).enumerate() {
            let (at, end) = (k * n, k * n + n);
            let header = header_of(seq, workload);
            if end <= one.len() {
                encode(bytemuck::cast_slice_mut(zeroed(&mut one[at..end])), &header, workload);
            } else if at >= one.len() {
                let shift = one.len();
                encode(bytemuck::cast_slice_mut(zeroed(&mut two[at - shift..end - shift])), &header, workload);
            } else {
                encode(bytemuck::cast_slice_mut(&mut self.straddle[..n]), &header, workload);
                let mid = one.len() - at;
                for (to, unit) in one[at..].iter_mut().chain(&mut two[..n - mid]).zip(&self.straddle[..n]) {
                    to.write(*unit);
                }
            }
        }
        // SAFETY: all `n * count` units were written above.
        unsafe { chunk.commit_all() };
        true
    }
}

/// In place by safe calls: a record's units are zeroed, filled and published one record at a time.
struct Each<T> {
    producer: Producer<T>,
    straddle: Vec<T>,
}

impl<T: Unit> Each<T> {
    fn ends() -> Ends {
        let (producer, consumer) = RingBuffer::new(units::<T>(RING_BYTES));
        let straddle = vec![T::zeroed(); units::<T>(RECORD_MAX)];
        (Box::new(Each { producer, straddle }), Reader::new(consumer))
    }
}

impl<T: Unit> Write for Each<T> {
    fn write(&mut self, from: u64, count: usize, workload: &Workload) -> bool {
        let n = units::<T>(workload.record_bytes());
        if self.producer.cached_slots() < n * count && self.producer.slots() < n * count {
            return false;
        }
        for seq in from..from + count as u64 {
            let header = header_of(seq, workload);
            let Ok(mut chunk) = self.producer.write_chunk(n) else { return false };
            let (one, two) = chunk.as_mut_slices();
            if two.is_empty() {
                encode(bytemuck::cast_slice_mut(one), &header, workload);
            } else {
                encode(bytemuck::cast_slice_mut(&mut self.straddle[..n]), &header, workload);
                let mid = one.len();
                one.copy_from_slice(&self.straddle[..mid]);
                two.copy_from_slice(&self.straddle[mid..n]);
            }
            chunk.commit_all();
        }
        true
    }
}

/// The product's ring.
struct Product(RingWriter);

impl Product {
    fn ends() -> Ends {
        let (writer, reader) = ring(RingLimits::for_triggers(RING_BYTES / 128));
        (Box::new(Product(writer)), Box::new(reader))
    }
}

impl Write for Product {
    fn write(&mut self, from: u64, count: usize, workload: &Workload) -> bool {
        // A batch goes in whole or not at all, as with the others; below the pause level one look answers for all.
        for seq in from..from + count as u64 {
            let header = header_of(seq, workload);
            let incoming = Incoming {
                seq: Seq(seq),
                accepted: Nanos(header.accepted),
                event_time_ms: header.event_time_ms,
                hash: header.hash,
                partition: PartitionId(header.partition),
                state: State::Enter,
                priority: Priority::High,
                device_id: &workload.device,
                fence_id: &workload.fence,
                attributes: &workload.attributes,
            };
            while self.0.stage(&incoming).is_err() {
                if seq == from {
                    return false;
                }
                self.0.publish();
                std::thread::yield_now();
            }
        }
        self.0.publish();
        true
    }
}

impl Read for RingReader {
    fn read(&mut self, most: usize, answer: &mut Answer) -> usize {
        self.take(most, |got| {
            answer.add(got.seq.0, got.hash, got.device_id, got.fence_id, got.attributes);
            Take::Taken
        })
    }
}

/// What must come out of `records` records of a workload.
fn expected(records: u64, workload: &Workload) -> Answer {
    let mut answer = Answer::default();
    for seq in 0..records {
        answer.add(seq, header_of(seq, workload).hash, &workload.device, &workload.fence, &workload.attributes);
    }
    answer
}

/// One thread: a batch in, a batch out. Answers with nanoseconds a record.
fn one_thread((writer, reader): &mut Ends, records: u64, workload: &Workload, want: Answer) -> f64 {
    let start = Instant::now();
    let mut answer = Answer::default();
    for from in (0..records).step_by(BATCH) {
        assert!(writer.write(black_box(from), BATCH, workload), "an empty ring takes a batch");
        reader.read(BATCH, &mut answer);
    }
    let ns = start.elapsed().as_nanos() as f64;
    assert_eq!(answer, want, "what went in came out");
    ns / records as f64
}

/// Two threads, both as fast as they can. Answers with nanoseconds a record.
fn two_threads((writer, reader): &mut Ends, records: u64, workload: &Workload, want: Answer) -> f64 {
    let wait = |turns: &mut u32| {
        *turns += 1;
        // The other end may share this core: spin a little, then let it run.
        if turns.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
    };
    let start = Instant::now();
    let mut answer = Answer::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for from in (0..records).step_by(BATCH) {
                let mut turns = 0;
                while !writer.write(black_box(from), BATCH, workload) {
                    wait(&mut turns);
                }
            }
        });
        let mut turns = 0;
        while answer.records < records {
            if reader.read(BATCH, &mut answer) == 0 {
                wait(&mut turns);
            }
        }
    });
    let ns = start.elapsed().as_nanos() as f64;
    assert_eq!(answer, want, "what went in came out");
    ns / records as f64
}

fn best_and_median(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2])
}

type Measure = fn(&mut Ends, u64, &Workload, Answer) -> f64;

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    // Short rounds and many: on a shared machine some of them run undisturbed.
    let (rounds, records) = if full { (151, 16 * 1024) } else { (1, 4 * 1024) };
    let measures: [(&str, Measure); 2] = [("one thread", one_thread), ("two threads", two_threads)];
    for workload in &workloads() {
        let records = if workload.record_bytes() > 1000 { records / 4 } else { records };
        let want = expected(records, workload);
        for (threads, measure) in measures {
            let mut candidates: Vec<(String, Ends, Vec<f64>)> = [
                ("the product".to_owned(), Product::ends()),
                (format!("{}, staged", Line::NAME), Staged::<Line>::ends()),
                (format!("{}, in place", Line::NAME), InPlace::<Line>::ends()),
                (format!("{}, each", Line::NAME), Each::<Line>::ends()),
                (format!("{}, staged", Slot::NAME), Staged::<Slot>::ends()),
                (format!("{}, in place", Slot::NAME), InPlace::<Slot>::ends()),
                (format!("{}, staged", u64::NAME), Staged::<u64>::ends()),
                (format!("{}, in place", u64::NAME), InPlace::<u64>::ends()),
                (format!("{}, staged", u8::NAME), Staged::<u8>::ends()),
                (format!("{}, in place", u8::NAME), InPlace::<u8>::ends()),
            ]
            .into_iter()
            .map(|(name, ends)| (name, ends, vec![]))
            .collect();
            for _ in 0..rounds {
                for (_, ends, times) in &mut candidates {
                    times.push(measure(ends, records, workload, want));
                }
            }
            println!("{threads}, {} ({rounds} rounds of {records}, batches of {BATCH}):", workload.name);
            // The staged lines, the layout that was chosen, are the measure of the others.
            let (base_best, base) = best_and_median(&mut candidates[1].2);
            for (name, _, times) in &mut candidates {
                let (best, middle) = best_and_median(times);
                println!(
                    "  {name:24} best {best:7.1} ({:4.2})  median {middle:7.1} ns/record ({:4.2})",
                    best / base_best,
                    middle / base
                );
            }
        }
    }
}

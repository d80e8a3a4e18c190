//! Known answers first, then a model, then two threads.

use super::*;
use crate::trigger::State;
use crate::units::{Nanos, PartitionId, Seq};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A record as the tests keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    seq: u64,
    state: State,
    priority: Priority,
    device: Vec<u8>,
    fence: Vec<u8>,
    attributes: Vec<u8>,
}

impl Owned {
    /// Every field and byte follows from `seq`, so that a mix-up of two records shows.
    fn new(seq: u64, priority: Priority, device: usize, fence: usize, attributes: usize) -> Owned {
        let bytes = |len: usize, salt: u64| {
            (0..len as u64).map(|at| (seq.wrapping_mul(131) + at * 7 + salt) as u8).collect::<Vec<u8>>()
        };
        let state = [State::Enter, State::Exit, State::Dwell][(seq % 3) as usize];
        Owned {
            seq,
            state,
            priority,
            device: bytes(device, 1),
            fence: bytes(fence, 2),
            attributes: bytes(attributes, 3),
        }
    }

    /// A record of exactly `lines` lines.
    fn of_lines(seq: u64, priority: Priority, lines: usize) -> Owned {
        let bytes = lines * 64 - 40;
        let device = bytes.saturating_sub(1).clamp(1, 256);
        let fence = (bytes - device).clamp(1, 256);
        let owned = Owned::new(seq, priority, device, fence, (bytes - device - fence).min(1024));
        assert_eq!(lines_of(owned.incoming().bytes()), lines);
        owned
    }

    fn incoming(&self) -> Incoming<'_> {
        Incoming {
            seq: Seq(self.seq),
            accepted: Nanos(self.seq ^ 0xAAAA_5555_0000_FFFF),
            event_time_ms: -(self.seq as i64) * 3,
            hash: self.seq.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            partition: PartitionId((self.seq as u32).wrapping_mul(77)),
            state: self.state,
            priority: self.priority,
            device_id: &self.device,
            fence_id: &self.fence,
            attributes: &self.attributes,
        }
    }
}

fn limits(triggers: usize, lines: usize) -> RingLimits {
    RingLimits { triggers, lines, ..RingLimits::for_triggers(triggers) }
}

fn take_all(reader: &mut RingReader) -> Vec<u64> {
    let mut seqs = vec![];
    reader.take(usize::MAX, |incoming| {
        seqs.push(incoming.seq.0);
        Take::Taken
    });
    seqs
}

#[test]
fn lines_at_the_edges_of_a_line() {
    assert_eq!(lines_of(2), 1);
    assert_eq!(lines_of(24), 1);
    assert_eq!(lines_of(25), 2);
    assert_eq!(lines_of(80), 2, "ids of 80 bytes in all cost two cache lines");
    assert_eq!(lines_of(88), 2);
    assert_eq!(lines_of(89), 3);
    assert_eq!(lines_of(256 + 256 + 1024), RECORD_LINES_MAX);
}

#[test]
fn every_field_comes_out_as_it_went_in() {
    let (mut writer, mut reader) = ring(limits(10, 100));
    for state in [State::Enter, State::Exit, State::Dwell] {
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            for (device, fence, attributes) in [(1, 1, 0), (256, 256, 1024), (1, 256, 1), (256, 1, 1023), (12, 12, 0)] {
                let mut owned = Owned::new(7, priority, device, fence, attributes);
                owned.state = state;
                writer.push(&owned.incoming()).unwrap();
                let taken = reader.take(1, |got| {
                    assert_eq!(got, owned.incoming());
                    Take::Taken
                });
                assert_eq!(taken, 1);
            }
        }
    }
    let owned = Owned::new(0, Priority::High, 1, 1, 0);
    let extremes = Incoming {
        seq: Seq(u64::MAX),
        accepted: Nanos::MAX,
        event_time_ms: i64::MIN,
        hash: u64::MAX,
        partition: PartitionId(u32::MAX),
        ..owned.incoming()
    };
    writer.push(&extremes).unwrap();
    assert_eq!(reader.take(1, |got| if got == extremes { Take::Taken } else { Take::Leave }), 1);
}

#[test]
fn a_record_may_straddle_the_end_at_each_of_its_lines() {
    // A ring of 31 lines: each offset in front of the end, for each length of record.
    let size = 31;
    for lines in 1..=RECORD_LINES_MAX {
        for offset in 0..size {
            let (mut writer, mut reader) = ring(limits(100, size));
            for seq in 0..offset as u64 {
                writer.push(&Owned::of_lines(seq, Priority::High, 1).incoming()).unwrap();
            }
            assert_eq!(take_all(&mut reader).len(), offset);
            let one = Owned::of_lines(1000, Priority::High, lines);
            let next = Owned::of_lines(1001, Priority::High, 1);
            writer.stage(&one.incoming()).unwrap();
            writer.stage(&next.incoming()).unwrap();
            writer.publish();
            let mut want = [&one, &next].into_iter();
            let taken = reader.take_with_next(9, |got, hash| {
                assert_eq!(got, want.next().unwrap().incoming(), "{lines} lines at {offset}");
                // In sight, unless this one ends where the memory does, or beyond.
                let is_in_sight = want.len() > 0 && offset + lines < size;
                assert_eq!(hash, is_in_sight.then(|| next.incoming().hash), "{lines} lines at {offset}");
                Take::Taken
            });
            assert_eq!(taken, 2);
            assert!(reader.is_empty());
        }
    }
}

#[test]
fn the_longest_record_fits_the_smallest_ring_and_fills_it() {
    let (mut writer, mut reader) = ring(limits(5, RingLimits::LINES_MIN));
    for seq in 0..40 {
        let longest = Owned::of_lines(seq, Priority::Low, RECORD_LINES_MAX);
        assert_eq!(writer.push(&longest.incoming()), Ok(Pressure::SlowDown));
        let shortest = Owned::of_lines(99, Priority::High, 1);
        assert_eq!(writer.push(&shortest.incoming()), Err(Shed::Full));
        assert_eq!(reader.take(9, |got| if got == longest.incoming() { Take::Taken } else { Take::Leave }), 1);
    }
}

#[test]
fn exactly_full_by_lines_and_by_triggers() {
    // 30 lines, 100 triggers: lines rule.
    let (mut writer, mut reader) = ring(limits(100, 30));
    for seq in 0..15 {
        writer.push(&Owned::of_lines(seq, Priority::High, 2).incoming()).unwrap();
    }
    assert_eq!(writer.push(&Owned::of_lines(15, Priority::High, 1).incoming()), Err(Shed::Full));
    assert_eq!(reader.take(1, |_| Take::Taken), 1);
    assert_eq!(writer.push(&Owned::of_lines(15, Priority::High, 3).incoming()), Err(Shed::Full));
    assert_eq!(writer.push(&Owned::of_lines(15, Priority::High, 2).incoming()), Ok(Pressure::SlowDown));
    assert_eq!(take_all(&mut reader), (1..=15).collect::<Vec<_>>());
    // 10 triggers, 100 lines: triggers rule.
    let (mut writer, mut reader) = ring(limits(10, 100));
    for seq in 0..10 {
        writer.push(&Owned::of_lines(seq, Priority::High, 1).incoming()).unwrap();
    }
    assert_eq!(writer.push(&Owned::of_lines(10, Priority::High, 1).incoming()), Err(Shed::Full));
    assert_eq!(take_all(&mut reader).len(), 10);
    assert_eq!(writer.push(&Owned::of_lines(10, Priority::High, 1).incoming()), Ok(Pressure::Clear));
}

/// Fills to `inside` triggers of High, then asks for one more of `priority`.
fn answer_at(limits: RingLimits, inside: usize, lines: usize, priority: Priority) -> Result<Pressure, Shed> {
    let (mut writer, _reader) = ring(limits);
    for seq in 0..inside as u64 {
        writer.push(&Owned::of_lines(seq, Priority::High, lines).incoming()).unwrap();
    }
    let next = Owned::of_lines(inside as u64, priority, lines);
    let asked = writer.admit(priority, next.incoming().bytes());
    let pushed = writer.pushed();
    let answer = writer.push(&next.incoming());
    assert_eq!(asked, answer, "admit and push agree");
    assert_eq!(writer.pushed(), pushed + u64::from(answer.is_ok()), "what is shed is not recorded");
    answer
}

#[test]
fn each_level_at_one_below_at_and_one_above() {
    use Pressure::{Clear, SlowDown};
    use Priority::{High, Low, Normal};
    // The same table by triggers (100 of them, lines to spare) and by lines (100 of them, triggers to spare).
    for limits in [limits(100, 1_000), limits(1_000, 100)] {
        let at = |inside, priority| answer_at(limits, inside, 1, priority);
        // The answer speaks of the ring with the trigger in it: the 70th is the first to slow down.
        assert_eq!(at(68, Low), Ok(Clear));
        assert_eq!(at(69, Low), Ok(SlowDown));
        assert_eq!(at(70, Low), Ok(SlowDown));
        // Shedding speaks of the ring as it was found.
        assert_eq!(at(79, Low), Ok(SlowDown));
        assert_eq!(at(80, Low), Err(Shed::Priority));
        assert_eq!(at(81, Low), Err(Shed::Priority));
        assert_eq!(at(89, Normal), Ok(SlowDown));
        assert_eq!(at(90, Normal), Err(Shed::Priority));
        assert_eq!(at(91, Normal), Err(Shed::Priority));
        assert_eq!(at(99, High), Ok(SlowDown));
        assert_eq!(at(100, High), Err(Shed::Full));
        assert_eq!(at(100, Low), Err(Shed::Full));
    }
}

#[test]
fn a_level_is_the_least_count_at_or_above_its_ratio() {
    for count in 1..2_000usize {
        for millionths in [1, 100_000, 333_333, 700_000, 800_000, 900_000, 999_999, 1_000_000usize] {
            let level = Fill::at(millionths as f64 / 1e6, Fill { triggers: count, lines: count }).triggers;
            assert!(level * 1_000_000 >= count * millionths);
            assert!(level == 0 || (level - 1) * 1_000_000 < count * millionths, "{count} {millionths} {level}");
        }
    }
}

#[test]
fn p3_low_is_shed_first_and_high_only_when_full() {
    let (mut writer, mut reader) = ring(limits(100, 200));
    let mut seq = 0;
    let (mut low_in, mut low_shed) = (0, 0);
    for _ in 0..200 {
        match writer.push(&Owned::new(seq, Priority::Low, 40, 40, 0).incoming()) {
            Ok(_) => (seq, low_in) = (seq + 1, low_in + 1),
            Err(shed) => {
                assert_eq!(shed, Shed::Priority);
                low_shed += 1;
            }
        }
    }
    assert_eq!((low_in, low_shed), (80, 120));
    for k in 0..20 {
        assert!(writer.push(&Owned::new(seq, Priority::High, 40, 40, 0).incoming()).is_ok(), "High {k} of 20");
        seq += 1;
    }
    assert_eq!(writer.push(&Owned::new(seq, Priority::High, 40, 40, 0).incoming()), Err(Shed::Full));
    assert_eq!(writer.gauge().in_ring(), 100, "the total bound holds");
    assert_eq!(take_all(&mut reader), (0..100).collect::<Vec<_>>());
}

#[test]
fn staged_is_counted_and_shown_only_when_published() {
    let (mut writer, mut reader) = ring(limits(20, 100));
    for seq in 0..13 {
        assert_eq!(writer.stage(&Owned::of_lines(seq, Priority::Low, 1).incoming()), Ok(Pressure::Clear));
    }
    assert_eq!(writer.stage(&Owned::of_lines(13, Priority::Low, 1).incoming()), Ok(Pressure::SlowDown));
    assert!(reader.is_empty());
    assert_eq!((writer.pushed(), writer.gauge().pushed()), (14, 0));
    assert_eq!(reader.take(9, |_| Take::Taken), 0);
    writer.publish();
    assert_eq!(writer.gauge().in_ring(), 14);
    assert_eq!(take_all(&mut reader), (0..14).collect::<Vec<_>>());
    assert_eq!((reader.taken(), reader.gauge().taken(), writer.gauge().in_ring()), (14, 14, 0));
    writer.publish();
    assert!(reader.is_empty(), "publishing nothing shows nothing");
}

#[test]
fn a_full_stage_publishes_itself_in_order() {
    let (mut writer, mut reader) = ring(limits(1_000, 2_000));
    for seq in 0..100 {
        writer.stage(&Owned::of_lines(seq, Priority::Normal, 1 + seq as usize % 5).incoming()).unwrap();
    }
    let early = take_all(&mut reader).len() as u64;
    assert!(early > 0 && early < 100);
    writer.publish();
    assert_eq!(take_all(&mut reader), (early..100).collect::<Vec<_>>());
}

#[test]
fn what_was_staged_survives_its_writer() {
    let (mut writer, mut reader) = ring(limits(10, 100));
    for seq in 0..3 {
        writer.stage(&Owned::of_lines(seq, Priority::Normal, 2).incoming()).unwrap();
    }
    assert!(!reader.is_abandoned() && !reader.is_finished());
    drop(writer);
    assert!(reader.is_abandoned() && !reader.is_finished());
    assert_eq!(take_all(&mut reader), [0, 1, 2]);
    assert!(reader.is_finished());
}

#[test]
fn the_writer_sees_that_the_reader_is_gone() {
    let (writer, reader) = ring(limits(10, 100));
    assert!(!writer.is_abandoned());
    drop(reader);
    assert!(writer.is_abandoned());
}

#[test]
fn a_record_left_is_the_first_of_the_next_time() {
    let (mut writer, mut reader) = ring(limits(10, 100));
    for seq in 0..5 {
        writer.push(&Owned::of_lines(seq, Priority::Normal, 2).incoming()).unwrap();
    }
    let mut seen = vec![];
    let taken = reader.take(9, |got| {
        seen.push(got.seq.0);
        if got.seq.0 == 2 { Take::Leave } else { Take::Taken }
    });
    assert_eq!((taken, seen), (2, vec![0, 1, 2]));
    assert_eq!(writer.gauge().in_ring(), 3);
    assert_eq!(reader.take(0, |_| panic!("asked for none")), 0);
    assert_eq!(reader.take(1, |_| Take::Leave), 0);
    assert_eq!(take_all(&mut reader), [2, 3, 4]);
}

#[test]
fn a_panic_in_the_readers_function_frees_what_it_took_and_keeps_the_rest() {
    let (mut writer, mut reader) = ring(limits(10, 100));
    for seq in 0..5 {
        writer.push(&Owned::of_lines(seq, Priority::Normal, 2).incoming()).unwrap();
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        reader.take(9, |got| if got.seq.0 == 3 { panic!("on purpose") } else { Take::Taken })
    }));
    assert!(outcome.is_err());
    assert_eq!((reader.taken(), writer.gauge().in_ring()), (3, 2));
    assert_eq!(take_all(&mut reader), [3, 4]);
}

#[test]
fn touching_shows_the_reader_nothing() {
    let (mut writer, mut reader) = ring(limits(10, 40));
    writer.touch();
    assert!(reader.is_empty());
    writer.push(&Owned::of_lines(0, Priority::Normal, 2).incoming()).unwrap();
    writer.touch();
    assert_eq!(take_all(&mut reader), [0]);
}

#[test]
fn parts_out_of_their_bounds_are_our_mistake() {
    let (mut writer, mut reader) = ring(limits(10, 100));
    for (device, fence, attributes) in [(0, 1, 0), (1, 0, 0), (257, 1, 0), (1, 257, 0), (1, 1, 1025)] {
        let owned = Owned::new(0, Priority::High, device, fence, attributes);
        assert!(catch_unwind(AssertUnwindSafe(|| writer.push(&owned.incoming()))).is_err());
    }
    assert_eq!(writer.pushed(), 0);
    writer.push(&Owned::of_lines(1, Priority::High, 2).incoming()).unwrap();
    assert_eq!(take_all(&mut reader), [1]);
}

#[test]
fn limits_out_of_their_range_are_refused() {
    let good = limits(1, RingLimits::LINES_MIN);
    drop(ring(good));
    drop(ring(RingLimits { pause_ratio: 1.0, shed_low_ratio: 1.0, shed_normal_ratio: 1.0, ..good }));
    for bad in [
        RingLimits { triggers: 0, ..good },
        RingLimits { lines: RingLimits::LINES_MIN - 1, ..good },
        RingLimits { pause_ratio: 0.0, ..good },
        RingLimits { pause_ratio: f64::NAN, ..good },
        RingLimits { pause_ratio: 0.81, ..good },
        RingLimits { shed_low_ratio: 0.91, ..good },
        RingLimits { shed_normal_ratio: 1.1, ..good },
    ] {
        assert!(catch_unwind(|| drop(ring(bad))).is_err(), "{bad:?}");
    }
}

#[test]
fn memory_is_what_the_limits_say() {
    let limits = RingLimits::for_triggers(12_500);
    assert_eq!(limits.lines, 25_000);
    let memory = limits.memory_bytes();
    assert!((25_000 * 64..25_000 * 64 + 16 * 1024).contains(&memory), "{memory}");
    assert_eq!(RingLimits::for_triggers(1).lines, RingLimits::LINES_MIN);
}

#[test]
fn the_ends_may_move_to_other_threads() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<RingWriter>();
    is_send::<RingReader>();
    is_shared::<RingGauge>();
}

// -- a model: the obvious queue, asked the same questions

#[derive(Clone, Debug)]
enum Step {
    Stage { priority: Priority, device: usize, fence: usize, attributes: usize },
    Push { priority: Priority, device: usize, fence: usize, attributes: usize },
    Publish,
    Take { most: usize, leave_at: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)];
    let parts = prop_oneof![
        4 => (1..=50usize, 1..=50usize, Just(0usize)),
        2 => (1..=256usize, 1..=256usize, 0..=1024usize),
        1 => Just((256usize, 256usize, 1024usize)),
    ];
    let record = (priority, parts);
    prop_oneof![
        6 => record.clone().prop_map(|(priority, (device, fence, attributes))| Step::Stage { priority, device, fence, attributes }),
        3 => record.prop_map(|(priority, (device, fence, attributes))| Step::Push { priority, device, fence, attributes }),
        2 => Just(Step::Publish),
        3 => (0..12usize, 0..16usize).prop_map(|(most, leave_at)| Step::Take { most, leave_at }),
    ]
}

/// The slow, obvious way: one queue of owned records, the first `shown` of them published.
struct Model {
    limits: RingLimits,
    queue: VecDeque<Owned>,
}

impl Model {
    fn lines(&self) -> usize {
        self.queue.iter().map(|owned| (40 + owned.incoming().bytes()).div_ceil(64)).sum()
    }

    fn answer(&self, owned: &Owned) -> Result<Pressure, Shed> {
        let (triggers, lines) = (self.queue.len(), self.lines());
        let ratio = |triggers: usize, lines: usize| {
            (triggers as f64 / self.limits.triggers as f64).max(lines as f64 / self.limits.lines as f64)
        };
        let found = ratio(triggers, lines);
        let left = ratio(triggers + 1, lines + (40 + owned.incoming().bytes()).div_ceil(64));
        let level = match owned.priority {
            Priority::Low => self.limits.shed_low_ratio,
            Priority::Normal => self.limits.shed_normal_ratio,
            Priority::High => f64::MAX,
        };
        if left > 1.0 {
            Err(Shed::Full)
        } else if found >= level {
            Err(Shed::Priority)
        } else if left >= self.limits.pause_ratio {
            Ok(Pressure::SlowDown)
        } else {
            Ok(Pressure::Clear)
        }
    }
}

proptest! {
    #[test]
    fn the_ring_is_a_queue(
        // Powers of two, so that the model's floats are exact at the ratios below.
        triggers in prop_oneof![Just(4usize), Just(16), Just(64)],
        lines in prop_oneof![Just(32usize), Just(64), Just(256)],
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let limits =
            RingLimits { triggers, lines, pause_ratio: 0.5, shed_low_ratio: 0.75, shed_normal_ratio: 0.875 };
        let (mut writer, mut reader) = ring(limits);
        let mut model = Model { limits, queue: VecDeque::new() };
        let (mut seq, mut taken_in_all) = (0u64, 0u64);
        for step in steps {
            match step {
                Step::Stage { priority, device, fence, attributes }
                | Step::Push { priority, device, fence, attributes } => {
                    let owned = Owned::new(seq, priority, device, fence, attributes);
                    let want = model.answer(&owned);
                    let is_push = matches!(step, Step::Push { .. });
                    let got =
                        if is_push { writer.push(&owned.incoming()) } else { writer.stage(&owned.incoming()) };
                    prop_assert_eq!(got, want);
                    if got.is_ok() {
                        seq += 1;
                        model.queue.push_back(owned);
                    }
                    if is_push && got.is_ok() {
                        prop_assert_eq!(writer.gauge().pushed(), seq);
                    }
                }
                Step::Publish => {
                    writer.publish();
                    prop_assert_eq!(writer.gauge().pushed(), seq);
                }
                Step::Take { most, leave_at } => {
                    let shown = (writer.gauge().pushed() - taken_in_all) as usize;
                    let want = shown.min(most).min(leave_at);
                    let mut asked = 0;
                    let queue = &mut model.queue;
                    let taken = reader.take(most, |got| {
                        let first = &queue[0];
                        assert_eq!(got, first.incoming());
                        asked += 1;
                        if asked > leave_at {
                            return Take::Leave;
                        }
                        queue.pop_front();
                        Take::Taken
                    });
                    prop_assert_eq!(taken, want);
                    taken_in_all += taken as u64;
                    prop_assert_eq!(reader.taken(), taken_in_all);
                    prop_assert_eq!(reader.is_empty(), shown == taken);
                }
            }
            prop_assert_eq!(writer.pushed() - reader.taken(), model.queue.len() as u64);
            prop_assert!(model.queue.len() <= triggers && model.lines() <= lines);
        }
        drop(writer);
        let rest: Vec<u64> = model.queue.iter().map(|owned| owned.seq).collect();
        prop_assert_eq!(take_all(&mut reader), rest);
        prop_assert!(reader.is_finished());
    }
}

// -- two threads

/// A cheap, seeded source of sizes and batches, the same in both threads.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The parts of record `seq`: slices of one text, their places and lengths drawn from `luck`.
fn drawn<'a>(seq: u64, text: &'a [u8], luck: &mut Lcg) -> Incoming<'a> {
    let mut part = |least: u64, most: u64| {
        let len = (least + luck.below(most - least + 1)) as usize;
        let at = luck.below((text.len() - len) as u64) as usize;
        &text[at..at + len]
    };
    let (most, attributes_most) = if seq.is_multiple_of(64) { (256, 1024) } else { (48, 0) };
    let (device_id, fence_id, attributes) = (part(1, most), part(1, most), part(0, attributes_most));
    Incoming {
        seq: Seq(seq),
        accepted: Nanos(luck.below(1 << 30)),
        event_time_ms: luck.below(1 << 30) as i64,
        hash: luck.below(1 << 30),
        partition: PartitionId(luck.below(24) as u32),
        state: [State::Enter, State::Exit, State::Dwell][luck.below(3) as usize],
        priority: Priority::High,
        device_id,
        fence_id,
        attributes,
    }
}

/// The other thread may need this core: spin a little, then let it run.
fn wait(turns: &mut u32) {
    *turns = turns.wrapping_add(1);
    if turns.is_multiple_of(256) { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Tells the threads that wait for this one that it is gone, however it went.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed, as is its load: the flag ends a loop and guards no memory.
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn two_threads_every_record_whole_and_in_order() {
    const RECORDS: u64 = 3_000_000;
    let text: Vec<u8> = (0..4096u64).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
    // Small: the ring wraps some 15,000 times and is full and empty all the while.
    let (mut writer, reader) = ring(limits(256, 401));
    let gauge = writer.gauge();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Dropped by a failed assertion, these two end the other threads.
        let (mut reader, _done) = (reader, SetOnDrop(&done));
        let (text, done) = (&text, &done);
        scope.spawn(move || {
            let mut content = Lcg(1);
            let mut batches = Lcg(2);
            let (mut left, mut turns) = (0, 0);
            for seq in 0..RECORDS {
                let incoming = drawn(seq, text, &mut content);
                while writer.stage(&incoming).is_err() {
                    writer.publish();
                    assert!(!writer.is_abandoned(), "the reader failed");
                    wait(&mut turns);
                }
                if left == 0 {
                    writer.publish();
                    left = batches.below(20);
                } else {
                    left -= 1;
                }
            }
            // What is still staged is published by the drop.
        });
        let watched = scope.spawn({
            let gauge = gauge.clone();
            move || {
                let mut looks = 0u64;
                while gauge.taken() < RECORDS && !done.load(Ordering::Relaxed) {
                    // `in_ring` subtracts: a count of taken ahead of pushed would panic here.
                    assert!(gauge.in_ring() <= RECORDS);
                    looks += 1;
                    std::thread::sleep(Duration::from_micros(50));
                }
                looks
            }
        });
        let mut content = Lcg(1);
        let mut batches = Lcg(3);
        let (mut seq, mut turns) = (0, 0);
        while !reader.is_finished() {
            let most = 1 + batches.below(40) as usize;
            let leave_at = batches.below(60);
            let mut asked = 0;
            let taken = reader.take(most, |got| {
                if asked == leave_at {
                    return Take::Leave;
                }
                asked += 1;
                assert_eq!(got, drawn(seq, text, &mut content), "record {seq}");
                seq += 1;
                Take::Taken
            });
            if taken == 0 {
                wait(&mut turns);
            }
        }
        assert_eq!(seq, RECORDS);
        assert_eq!(reader.taken(), RECORDS);
        assert!(watched.join().unwrap() > 0);
    });
    assert_eq!((gauge.pushed(), gauge.in_ring()), (RECORDS, 0));
}

//! The cases D1, L3, L4 and S3 as far as they are the desk's, and random schedules of faults and crashes.

use super::{Desk, DeskCounts, DeskLimits, Settled, TakeError};
use super::{Header, Headers, Letter, LetterSink, Notes, PostBusy, Posted, Reason};
use crate::spill::faulty::{FaultyDisk, Operation};
use crate::spill::{Spill, SpillLimits};
use crate::units::{Nanos, PartitionId, UnixMs};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

const PARTITIONS: u32 = 3;
const STEP: Nanos = Nanos::from_millis(50);

/// What the topic of dead letters does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Takes all.
    Up,
    /// Takes them and says nothing.
    Silent,
    /// Takes them and says that it did not work.
    Away,
    /// Will never take one.
    Refusing,
    /// Does not know the topic.
    NotReady,
}

/// A letter as the topic has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    partition: u32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    record_time: Option<i64>,
}

fn keep(letter: &Letter<'_>) -> Kept {
    let own = letter.headers.iter();
    let mut headers: Vec<_> = own.map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec))).collect();
    letter.notes.each_header(|name, value| headers.push((name.as_bytes().to_vec(), Some(value.to_vec()))));
    Kept {
        partition: letter.partition.0,
        key: letter.key.map(<[u8]>::to_vec),
        value: letter.value.map(<[u8]>::to_vec),
        headers,
        record_time: letter.record_time.map(|time| time.0),
    }
}

struct World {
    mode: Mode,
    /// The topic's records, in the order they came.
    topic: Vec<Kept>,
    held: VecDeque<(u64, Kept)>,
    queue: usize,
    posts: u64,
}

/// A topic that outlives its sinks.
#[derive(Clone)]
struct FakeSink(Arc<Mutex<World>>);

impl FakeSink {
    fn new(mode: Mode) -> FakeSink {
        FakeSink(Arc::new(Mutex::new(World { mode, topic: Vec::new(), held: VecDeque::new(), queue: 64, posts: 0 })))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn set(&self, mode: Mode) {
        self.world().mode = mode;
    }

    fn ids(&self) -> Vec<u64> {
        self.world().topic.iter().map(id_of).collect()
    }
}

impl LetterSink for FakeSink {
    fn post(&mut self, token: u64, letter: &Letter<'_>) -> Result<(), PostBusy> {
        let mut world = self.world();
        if world.mode == Mode::NotReady {
            return Err(PostBusy::NotReady);
        }
        if world.held.len() == world.queue {
            return Err(PostBusy::QueueFull);
        }
        world.posts += 1;
        world.held.push_back((token, keep(letter)));
        Ok(())
    }

    fn collect(&mut self, each: &mut dyn FnMut(u64, Posted<'_>)) {
        let mut world = self.world();
        if matches!(world.mode, Mode::Silent | Mode::NotReady) {
            return;
        }
        while let Some((token, kept)) = world.held.pop_front() {
            match world.mode {
                Mode::Up => {
                    world.topic.push(kept);
                    each(token, Posted::Acked);
                }
                Mode::Refusing => each(token, Posted::Refused { code: 10, text: "Broker: Message size too large" }),
                _ => each(token, Posted::Retry { text: "Local: Message timed out" }),
            }
        }
    }
}

/// The letter number `id`, and what the topic must have of it.
fn with_letter<T>(id: u64, f: impl FnOnce(&Letter<'_>) -> T) -> T {
    let key = format!("device-{}", id % 7);
    let mut value = id.to_le_bytes().to_vec();
    value.extend((0..id % 1_400).map(|byte| byte as u8));
    let headers = [
        Header { name: b"trace", value: Some(&[0xff, 0, id as u8]) },
        Header { name: b"trace", value: None },
        Header { name: b"", value: Some(b"") },
    ];
    let printed = format!("device-{}/f/enter/{id}", id % 7);
    let letter = Letter {
        partition: PartitionId((id % u64::from(PARTITIONS)) as u32),
        key: (!id.is_multiple_of(5)).then_some(key.as_bytes()),
        value: Some(&value),
        headers: Headers::List(&headers[..(id % 4) as usize]),
        record_time: id.is_multiple_of(2).then_some(UnixMs(id as i64)),
        notes: Notes {
            reason: if id.is_multiple_of(3) { Reason::Diverted } else { Reason::Other("too late") },
            stage: "publish",
            topic: "triggers",
            partition: Some((id % u64::from(PARTITIONS)) as u32),
            attempts: id as u32,
            key: &printed,
            ..Notes::default()
        },
    };
    f(&letter)
}

fn id_of(kept: &Kept) -> u64 {
    u64::from_le_bytes(kept.value.as_ref().unwrap()[..8].try_into().unwrap())
}

fn limits() -> DeskLimits {
    DeskLimits { memory_bytes: 64 << 10, letter_bytes: 8 << 10, drain_letters: 8, ..DeskLimits::new(PARTITIONS) }
}

fn spill_limits() -> SpillLimits {
    SpillLimits {
        partitions: PARTITIONS,
        limit_bytes: 4 << 20,
        reserve_bytes: 64 << 10,
        partition_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        batch_bytes: 32 << 10,
        record_bytes: 2 << 10,
        marks: 64,
    }
}

fn whole(counts: &DeskCounts) {
    assert_eq!(counts.taken, counts.durable + counts.refused + counts.waiting, "{counts:?}");
    assert_eq!(counts.recovered + counts.to_disk, counts.drained + counts.on_disk + counts.lost, "{counts:?}");
}

/// A desk, its topic, its disk, and what was reported.
struct Rig {
    desk: Desk<FakeSink, FaultyDisk>,
    sink: FakeSink,
    disk: FaultyDisk,
    now: Nanos,
    reports: BTreeMap<u64, String>,
}

impl Rig {
    fn new(mode: Mode) -> Rig {
        let (sink, disk) = (FakeSink::new(mode), FaultyDisk::new(1));
        Rig { desk: open(&sink, &disk), sink, disk, now: Nanos(1), reports: BTreeMap::new() }
    }

    fn without_disk(mode: Mode) -> Rig {
        let sink = FakeSink::new(mode);
        let desk = Desk::new(sink.clone(), None, limits());
        Rig { desk, sink, disk: FaultyDisk::new(1), now: Nanos(1), reports: BTreeMap::new() }
    }

    fn take(&mut self, id: u64) -> Result<(), TakeError> {
        with_letter(id, |letter| self.desk.take(id, letter, self.now))
    }

    fn take_all(&mut self, ids: std::ops::Range<u64>) {
        ids.for_each(|id| self.take(id).unwrap());
    }

    fn turn(&mut self) {
        self.turn_as(Desk::turn);
    }

    fn turn_as<T>(
        &mut self,
        turn: impl FnOnce(&mut Desk<FakeSink, FaultyDisk>, Nanos, &mut dyn FnMut(u64, Settled<'_>)) -> T,
    ) -> T {
        self.now = self.now + STEP;
        let (reports, mut fresh) = (&mut self.reports, Vec::new());
        let returned = turn(&mut self.desk, self.now, &mut |token, settled| {
            let text = match settled {
                Settled::Durable { on_disk: false } => "topic".to_owned(),
                Settled::Durable { on_disk: true } => "disk".to_owned(),
                Settled::Refused { text } => format!("refused: {text}"),
            };
            if text == "topic" {
                fresh.push(token);
            }
            let earlier = reports.insert(token, text);
            assert_eq!(earlier, None, "{token} is reported twice");
        });
        whole(&self.desk.counts());
        if !fresh.is_empty() {
            let topic: BTreeSet<u64> = self.sink.ids().into_iter().collect();
            assert!(fresh.iter().all(|token| topic.contains(token)), "said to be in the topic: {fresh:?}");
        }
        returned
    }

    fn turns(&mut self, count: u32) {
        (0..count).for_each(|_| self.turn());
    }

    fn seconds(&mut self, seconds: u64) {
        self.turns((seconds * 1_000 / 50) as u32);
    }

    fn reported(&self, report: &str) -> Vec<u64> {
        self.reports.iter().filter(|(_, found)| *found == report).map(|(id, _)| *id).collect()
    }

    /// The process ends without a goodbye, or the machine does, and both come back.
    fn reopen(&mut self, machine: bool) {
        if machine {
            self.disk.crash();
        } else {
            self.disk.end_process();
        }
        self.sink.world().held.clear();
        self.desk = open(&self.sink, &self.disk);
    }
}

fn open(sink: &FakeSink, disk: &FaultyDisk) -> Desk<FakeSink, FaultyDisk> {
    let (spill, recovery) = Spill::open(disk.clone(), Path::new("dead-letters"), spill_limits()).unwrap();
    Desk::new(sink.clone(), Some((spill, &recovery)), limits())
}

fn ids(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn l3_what_the_topic_takes_is_byte_exact_straight_and_by_way_of_the_disk() {
    let mut rig = Rig::new(Mode::Up);
    rig.take_all(0..20);
    rig.turns(2);
    rig.sink.set(Mode::Away);
    rig.take_all(20..40);
    rig.seconds(7);
    assert_eq!((rig.reported("topic"), rig.reported("disk")), (ids(0..20), ids(20..40)));
    rig.sink.set(Mode::Up);
    rig.seconds(3);
    let world = rig.sink.world();
    assert_eq!(world.topic.len(), 40);
    for kept in &world.topic {
        assert_eq!(*kept, with_letter(id_of(kept), keep));
    }
}

#[test]
fn a_topic_that_is_away_is_waited_for_then_the_disk_is_used_and_drained_in_order() {
    for mode in [Mode::Silent, Mode::Away, Mode::NotReady] {
        let mut rig = Rig::new(mode);
        rig.take_all(0..30);
        rig.turns(90);
        assert_eq!(rig.reports.len(), 0, "{mode:?}: 4.5 s are inside the grace");
        rig.turns(20);
        assert_eq!(rig.reported("disk"), ids(0..30), "{mode:?}");
        assert!(rig.desk.is_stalled());
        // It is asked now and then, with one letter.
        rig.seconds(2);
        let posts = rig.sink.world().posts;
        rig.seconds(10);
        assert!(rig.sink.world().posts - posts <= 20, "{mode:?}: {}", rig.sink.world().posts - posts);
        // What comes now does not wait for another grace.
        rig.take_all(30..60);
        rig.turns(2);
        assert_eq!(rig.reported("disk"), ids(0..60), "{mode:?}");
        let counts = rig.desk.counts();
        assert_eq!((counts.to_disk, counts.on_disk, counts.drained, counts.waiting), (60, 60, 0, 0), "{mode:?}");

        rig.sink.set(Mode::Up);
        rig.seconds(4);
        let counts = rig.desk.counts();
        assert_eq!((counts.on_disk, counts.drained, counts.refused), (0, 60, 0), "{mode:?}");
        assert!(!rig.desk.is_stalled() && rig.desk.is_idle(), "{mode:?}: {counts:?}");
        assert_eq!(rig.desk.spill().unwrap().records(), 0, "{mode:?}: what was taken off was committed");
        let topic = rig.sink.ids();
        assert_eq!(topic.len(), 60, "{mode:?}: none twice");
        for partition in 0..u64::from(PARTITIONS) {
            let line: Vec<u64> = topic.iter().copied().filter(|id| id % u64::from(PARTITIONS) == partition).collect();
            assert!(line.is_sorted() || mode == Mode::Silent, "{mode:?}: {line:?}");
        }
        rig.take_all(60..61);
        rig.turns(2);
        assert_eq!(rig.reported("topic"), [60], "{mode:?}: straight to the topic again");
    }
}

#[test]
fn one_letter_that_never_comes_back_goes_to_the_disk_while_the_others_flow() {
    let mut rig = Rig::new(Mode::Up);
    rig.take_all(0..1);
    rig.sink.set(Mode::Silent);
    rig.turn();
    let stuck = rig.sink.world().held.pop_front().unwrap();
    rig.sink.set(Mode::Up);
    for id in 1..150 {
        rig.take_all(id..id + 1);
        rig.turn();
    }
    assert!(!rig.desk.is_stalled());
    assert_eq!(rig.reported("disk"), [0]);
    assert_eq!(rig.desk.counts().on_disk, 1, "not posted again while the topic may still take it");
    rig.sink.world().held.push_back(stuck);
    rig.turns(4);
    assert_eq!((rig.desk.counts().on_disk, rig.desk.counts().drained), (0, 1));
    assert_eq!(rig.sink.ids().iter().filter(|id| **id == 0).count(), 1);
}

#[test]
fn l4_both_blocked_then_unblocked_loses_nothing() {
    // Without a disk, and with one that is full.
    for with_disk in [false, true] {
        let mut rig = if with_disk { Rig::new(Mode::Away) } else { Rig::without_disk(Mode::Away) };
        let next = block_both(&mut rig);
        let reported = rig.reports.len() as u64;
        assert_eq!(reported, rig.desk.counts().to_disk);
        assert_eq!(reported > 0, with_disk);
        rig.seconds(30);
        assert_eq!(rig.reports.len() as u64, reported, "nothing is said while both are blocked");
        assert_eq!(rig.desk.counts().waiting, next - reported);
        assert_eq!(rig.take(next), Err(TakeError::Full), "bounded");
        rig.sink.set(Mode::Up);
        rig.seconds(30);
        let counts = rig.desk.counts();
        assert_eq!((counts.waiting, counts.refused, counts.on_disk, counts.lost), (0, 0, 0, 0), "{counts:?}");
        assert_eq!(rig.reports.keys().copied().collect::<Vec<_>>(), ids(0..next));
        assert_eq!(rig.sink.ids().into_iter().collect::<BTreeSet<_>>(), (0..next).collect(), "0 lost");
    }
}

/// Takes letters until neither the disk nor the memory takes more; says how many that were.
fn block_both(rig: &mut Rig) -> u64 {
    rig.disk.set_capacity(rig.disk.used());
    let mut next = 0;
    loop {
        let before = next;
        while rig.take(next).is_ok() {
            next += 1;
        }
        if next == before {
            return next;
        }
        rig.seconds(7);
    }
}

#[test]
fn d1_refused_by_the_topic_and_by_the_disk_is_said_with_the_topic_s_words() {
    let mut rig = Rig::new(Mode::Refusing);
    rig.disk.set_likelihood(Operation::Sync, 65_536);
    rig.take_all(0..3);
    rig.seconds(2);
    assert_eq!(rig.reported("refused: Broker: Message size too large"), ids(0..3));
    let counts = rig.desk.counts();
    assert_eq!((counts.refused, counts.durable, counts.on_disk), (3, 0, 0), "{counts:?}");
    // The same again with the topic up: delivered.
    rig.disk.heal();
    rig.sink.set(Mode::Up);
    rig.reports.clear();
    rig.take_all(0..1);
    rig.turns(3);
    assert_eq!(rig.reported("topic"), [0]);
    assert_eq!(rig.sink.ids(), [0], "exactly one record");

    let mut rig = Rig::without_disk(Mode::Refusing);
    rig.take_all(0..1);
    rig.turns(2);
    assert_eq!(rig.reported("refused: Broker: Message size too large"), [0]);
}

#[test]
fn s3_what_the_topic_refuses_for_good_goes_to_the_disk_and_holds_up_nothing() {
    let mut rig = Rig::new(Mode::Up);
    for id in 0..100 {
        rig.sink.set(if [10, 50, 90].contains(&id) { Mode::Refusing } else { Mode::Up });
        rig.take_all(id..id + 1);
        rig.turns(2);
    }
    rig.sink.set(Mode::Up);
    rig.seconds(1);
    // Those three were drained as soon as the topic took them.
    let counts = rig.desk.counts();
    assert_eq!((rig.reported("topic").len(), rig.reported("disk")), (97, vec![10, 50, 90]));
    assert_eq!((counts.refused, counts.on_disk + counts.drained), (0, 3), "{counts:?}");

    // Refused again from the disk: they stay there and are not posted over and over, and the next run tries again.
    let mut rig = Rig::new(Mode::Refusing);
    rig.take_all(0..9);
    rig.seconds(3);
    assert_eq!(rig.reported("disk"), ids(0..9));
    let posts = rig.sink.world().posts;
    assert_eq!(posts, 18, "once from memory, once from the disk");
    rig.sink.set(Mode::Up);
    rig.take_all(9..12);
    rig.seconds(3);
    assert_eq!((rig.sink.ids(), rig.desk.counts().on_disk), (ids(9..12), 9));
    rig.reopen(true);
    rig.seconds(3);
    let counts = rig.desk.counts();
    assert_eq!((counts.recovered, counts.drained, counts.on_disk, counts.lost), (9, 9, 0, 0), "{counts:?}");
    assert_eq!(rig.sink.ids().len(), 12);
}

#[test]
fn a_disk_that_fails_once_is_asked_again_and_nothing_is_refused() {
    let mut rig = Rig::new(Mode::Away);
    rig.take_all(0..20);
    // More than a commit tries.
    rig.disk.fail_next(Operation::Sync, 4);
    rig.seconds(6);
    assert!(rig.desk.counts().disk_errors > 0);
    rig.seconds(3);
    assert_eq!(rig.reported("disk"), ids(0..20));
    rig.reopen(true);
    assert_eq!(rig.desk.counts().recovered, 20);
}

#[test]
fn a_full_disk_that_is_freed_takes_what_waits() {
    let mut rig = Rig::new(Mode::Away);
    let next = block_both(&mut rig);
    let counts = rig.desk.counts();
    assert!(counts.waiting > 0 && counts.disk_errors > 0, "{counts:?}");
    rig.disk.set_capacity(1 << 30);
    rig.seconds(7);
    let counts = rig.desk.counts();
    assert_eq!((counts.waiting, counts.on_disk), (0, next), "{counts:?}");
    assert_eq!(rig.reported("disk"), ids(0..next));
}

/// What was taken off the disk makes the room that what waits for it needs: the one must not wait for the other.
#[test]
fn a_refused_letter_and_a_full_disk_do_not_wait_for_one_another() {
    let mut rig = Rig::new(Mode::Silent);
    rig.disk.set_capacity(rig.disk.used());
    rig.take_all(0..16);
    rig.turns(101);
    // Both tries of a commit fail, and with them go the segments that were allocated ahead.
    for id in 16..18 {
        rig.take_all(id..id + 1);
        rig.disk.fail_next(Operation::Write, 2);
        rig.turns(11);
    }
    rig.sink.set(Mode::Refusing);
    rig.turns(1);
    rig.sink.set(Mode::Up);
    rig.disk.set_capacity(1 << 30);
    rig.seconds(3);
    let counts = rig.desk.counts();
    assert_eq!((counts.waiting, counts.on_disk, counts.refused), (0, 0, 0), "{counts:?}");
}

#[test]
fn shutdown_puts_everything_on_the_disk_at_once() {
    let mut rig = Rig::new(Mode::Silent);
    rig.take_all(0..10);
    rig.turn();
    rig.take_all(10..20);
    let left = rig.turn_as(Desk::shutdown);
    assert_eq!((left, rig.reported("disk")), (0, ids(0..20)));
    rig.reopen(true);
    rig.sink.set(Mode::Up);
    rig.seconds(3);
    assert_eq!(rig.sink.ids().into_iter().collect::<BTreeSet<_>>(), (0..20).collect());

    // Without a disk it says what is left.
    let mut rig = Rig::without_disk(Mode::Silent);
    rig.take_all(0..10);
    assert_eq!(rig.turn_as(Desk::shutdown), 10);
    rig.sink.set(Mode::Up);
    assert_eq!(rig.turn_as(Desk::shutdown), 0);
    assert_eq!(rig.reported("topic"), ids(0..10));
}

#[test]
fn a_letter_that_is_too_long_is_refused_by_its_bound_and_one_too_long_for_the_disk_is_the_topic_s() {
    let mut rig = Rig::new(Mode::Away);
    let long = vec![7; 8 << 10];
    let headers = [Header { name: b"h", value: Some(&[1; 66_000]) }];
    with_letter(1, |letter| {
        let too_long = Letter { value: Some(&long), ..*letter };
        let error = rig.desk.take(1, &too_long, rig.now).unwrap_err();
        assert!(matches!(error, TakeError::TooLong { got, most: 8_192 } if got > 8_192), "{error}");
        let too_long = Letter { headers: Headers::List(&headers), ..*letter };
        let error = rig.desk.take(1, &too_long, rig.now).unwrap_err();
        assert!(matches!(error, TakeError::TooLong { got, most: 65_535 } if got > 66_000), "{error}");
    });
    assert_eq!(rig.desk.counts().taken, 0);

    let (spill, recovery) = Spill::open(
        rig.disk.clone(),
        Path::new("small"),
        SpillLimits { record_bytes: 256, partitions: PARTITIONS, ..spill_limits() },
    )
    .unwrap();
    rig.desk = Desk::new(rig.sink.clone(), Some((spill, &recovery)), limits());
    rig.take_all(1_000..1_001);
    rig.take_all(1..2);
    rig.seconds(6);
    assert_eq!(rig.reported("disk"), [1], "{}", rig.desk.trouble());
    rig.sink.set(Mode::Refusing);
    rig.seconds(1);
    assert_eq!(rig.reported("refused: Broker: Message size too large"), [1_000]);
}

#[test]
fn a_record_of_another_version_stays_on_the_disk_and_is_counted() {
    let rig = Rig::new(Mode::Up);
    let (mut spill, _) = Spill::open(rig.disk.clone(), Path::new("dead-letters"), spill_limits()).unwrap();
    let kind = crate::spill::Kind::DeadLetter;
    let partition = PartitionId(0);
    spill.append(crate::spill::Record { partition, kind, meta: b"\x02 of a later version", frame: b"x" }).unwrap();
    spill.commit().unwrap();
    let mut rig = rig;
    rig.reopen(false);
    rig.take_all(0..3);
    rig.seconds(2);
    let counts = rig.desk.counts();
    assert_eq!((counts.recovered, counts.unreadable, counts.on_disk), (1, 1, 1), "{counts:?}");
    assert_eq!(rig.sink.ids(), ids(0..3));
}

#[test]
fn memory_is_what_was_said_at_the_start() {
    let mut rig = Rig::new(Mode::Away);
    let at_start = rig.desk.memory_bytes();
    assert!(at_start > limits().memory_bytes);
    rig.take_all(0..40);
    rig.seconds(20);
    rig.sink.set(Mode::Up);
    rig.seconds(5);
    let spill = rig.desk.spill().unwrap().memory_bytes();
    let (fresh, _) = Spill::open(FaultyDisk::new(2), Path::new("x"), spill_limits()).unwrap();
    assert_eq!(rig.desk.memory_bytes() - spill, at_start - fresh.memory_bytes());
}

#[derive(Clone, Debug)]
enum Step {
    Take(u8),
    Turns(u8),
    Topic(Mode),
    Queue(u8),
    FailDisk(Operation, u8),
    Capacity(bool),
    Reopen(bool),
    Shutdown,
}

fn any_step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![
        Mode::Up,
        Mode::Up,
        Mode::Silent,
        Mode::Away,
        Mode::Away,
        Mode::Refusing,
        Mode::NotReady,
    ]);
    let operation = prop::sample::select(vec![Operation::Create, Operation::Write, Operation::Sync, Operation::Rename]);
    prop_oneof![
        6 => (1..30_u8).prop_map(Step::Take),
        8 => (1..140_u8).prop_map(Step::Turns),
        4 => mode.prop_map(Step::Topic),
        1 => (1..64_u8).prop_map(Step::Queue),
        2 => (operation, 1..6_u8).prop_map(|(operation, times)| Step::FailDisk(operation, times)),
        1 => any::<bool>().prop_map(Step::Capacity),
        1 => any::<bool>().prop_map(Step::Reopen),
        1 => Just(Step::Shutdown),
    ]
}

/// A case is a long story on a faulty disk: fewer than usual will do, unless somebody asks.
fn cases() -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(192, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn whatever_fails_each_letter_is_reported_once_and_what_is_durable_reaches_the_topic(
        steps in prop::collection::vec(any_step(), 1..40),
        seed in any::<u64>(),
    ) {
        let (sink, disk) = (FakeSink::new(Mode::Up), FaultyDisk::new(seed));
        let mut rig = Rig { desk: open(&sink, &disk), sink, disk, now: Nanos(1), reports: BTreeMap::new() };
        let mut next = 0;
        // Since the last start.
        let mut taken = BTreeSet::new();
        let mut has_refused = false;
        for step in &steps {
            match step {
                Step::Take(count) => {
                    for _ in 0..*count {
                        if rig.take(next).is_ok() {
                            taken.insert(next);
                        }
                        next += 1;
                    }
                }
                Step::Turns(count) => rig.turns((*count).into()),
                Step::Topic(mode) => {
                    has_refused |= *mode == Mode::Refusing;
                    rig.sink.set(*mode);
                }
                Step::Queue(queue) => rig.sink.world().queue = (*queue).into(),
                Step::FailDisk(operation, times) => rig.disk.fail_next(*operation, (*times).into()),
                Step::Capacity(is_full) => {
                    let bytes = if *is_full { rig.disk.used() } else { 1 << 30 };
                    rig.disk.set_capacity(bytes);
                }
                Step::Reopen(machine) => {
                    rig.disk.heal();
                    rig.disk.set_capacity(1 << 30);
                    rig.reopen(*machine);
                    // What was not reported is the caller's.
                    taken.clear();
                }
                Step::Shutdown => {
                    rig.turn_as(Desk::shutdown);
                    let left = rig.desk.counts().waiting;
                    prop_assert_eq!(left as usize, taken.iter().filter(|id| !rig.reports.contains_key(id)).count());
                    rig.disk.heal();
                    rig.disk.set_capacity(1 << 30);
                    rig.reopen(false);
                    taken.clear();
                }
            }
        }
        rig.disk.heal();
        rig.disk.set_capacity(1 << 30);
        rig.sink.set(Mode::Up);
        rig.sink.world().queue = 64;
        rig.seconds(12);
        let counts = rig.desk.counts();
        prop_assert_eq!((counts.waiting, counts.lost), (0, 0));
        for id in &taken {
            prop_assert!(rig.reports.contains_key(id), "{} was taken and never reported", id);
        }
        // What the topic once refused from the disk is tried again by the next run.
        rig.reopen(true);
        rig.seconds(12);
        let counts = rig.desk.counts();
        prop_assert!(counts.on_disk == 0 && rig.desk.is_idle(), "{:?}", counts);
        let world = rig.sink.world();
        let topic: BTreeSet<u64> = world.topic.iter().map(id_of).collect();
        for kept in &world.topic {
            prop_assert_eq!(kept, &with_letter(id_of(kept), keep));
        }
        for (id, report) in &rig.reports {
            match report.as_str() {
                "topic" | "disk" => prop_assert!(topic.contains(id), "{} is durable ({}) and not there", id, report),
                refused => prop_assert!(has_refused && refused.starts_with("refused: Broker"), "{}", refused),
            }
        }
    }
}

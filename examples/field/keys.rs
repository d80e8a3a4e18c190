//! What the key of a record decides: the order of a device's triggers as a group of consumers sees them, and how evenly
//! the partitions are loaded. Real records through brokers: a fleet's triggers, in the router's frames, handed to one idempotent
//! producer in their order, each to the partition that the product's own partitioner gives its key; without a key to the one that
//! the client's sticky partitioner picks.
//!
//! **Order.** A device's triggers are numbered as they are handed to the producer. Each consumer, the moment it gets a record,
//! takes the next of one row of numbers that all consumers share. Two consecutive triggers of a device are a misordered pair
//! when the later one was consumed before the earlier one. It is counted twice: `live`, by a consumer group of eight while
//! the producer is at work at a steady rate, and `backlog`, by eight readers among which the full topic's partitions are shared
//! out and which begin together, as after an outage of the consumers.
//!
//! **Skew** is the fullest partition's records ÷ the mean.

use super::Failed;
use super::input::{Row, rows, spread_text};
use fencepost::hlc::Hlc;
use fencepost::partition::partition_of;
use fencepost::trigger::Priority;
use fencepost::units::UnixMicros;
use fencepost::verify::frame::Frame;
use fencepost::wire;
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long all of a turn may take, beyond its pace: only a hang takes longer.
const LIMIT: Duration = Duration::from_secs(600);

/// What a record's partition is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBy {
    /// The device.
    Device,
    /// The fence.
    Fence,
    /// Device and fence together.
    Pair,
    /// Nothing: the client's sticky partitioner.
    Nothing,
}

impl KeyBy {
    /// All four, in the table's order.
    pub const ALL: [KeyBy; 4] = [KeyBy::Device, KeyBy::Fence, KeyBy::Pair, KeyBy::Nothing];

    /// For the table.
    pub const fn name(self) -> &'static str {
        match self {
            KeyBy::Device => "device",
            KeyBy::Fence => "fence",
            KeyBy::Pair => "(device, fence)",
            KeyBy::Nothing => "none, sticky",
        }
    }

    fn partition(self, row: &Row, partitions: u32) -> Option<u32> {
        let (device, fence) = (row.device_id.as_bytes(), row.fence_id.as_bytes());
        match self {
            KeyBy::Device => Some(partition_of(device, partitions).0),
            KeyBy::Fence => Some(partition_of(fence, partitions).0),
            KeyBy::Pair => Some(partition_of(&[device, b"\0", fence].concat(), partitions).0),
            KeyBy::Nothing => None,
        }
    }
}

/// A measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the brokers are.
    pub bootstrap: String,
    /// Triggers of a turn.
    pub triggers: usize,
    /// Handed over a second; 0 for as fast as it goes.
    pub rate: u64,
    /// Of the fleet.
    pub devices: u32,
    /// Of the fleet.
    pub fences: u32,
    /// Of the topic.
    pub partitions: u32,
    /// In the group.
    pub consumers: u32,
    /// Of the fleet.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            bootstrap: String::new(),
            triggers: 500_000,
            rate: 50_000,
            devices: 4_000,
            fences: 6_000,
            partitions: 24,
            consumers: 8,
            seed: 1,
        }
    }
}

/// What one turn found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Pairs of consecutive triggers of a device.
    pub pairs: u64,
    /// Of those, misordered for the group while the producer was at work.
    pub live: u64,
    /// … and for the readers of the full topic.
    pub backlog: u64,
    /// The fullest partition ÷ the mean.
    pub skew: f64,
}

/// When each trigger was consumed first, by device and number; written by all consumers.
struct Board {
    moments: Vec<Vec<AtomicU64>>,
    /// The row of numbers that all consumers share.
    next: AtomicU64,
    /// Triggers that were consumed; a record that comes again, after the group shared anew, is not counted again.
    consumed: AtomicUsize,
}

/// No moment yet.
const NEVER: u64 = u64::MAX;

impl Board {
    fn new(plan: &Plan, triggers: &[Row]) -> Board {
        let mut moments: Vec<Vec<AtomicU64>> = (0..plan.devices).map(|_| Vec::new()).collect();
        triggers.iter().for_each(|row| moments[row.device as usize].push(AtomicU64::new(NEVER)));
        Board { moments, next: AtomicU64::new(0), consumed: AtomicUsize::new(0) }
    }

    fn note(&self, device: u32, number: u64, moment: u64) -> Result<(), Failed> {
        let place = self.moments[device as usize].get(number as usize).ok_or("a number that no trigger has")?;
        if place.fetch_min(moment, SeqCst) == NEVER {
            self.consumed.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// Pairs of consecutive triggers of a device in all, and those whose later one was consumed first.
    fn misordered(&self, triggers: usize) -> Result<(u64, u64), Failed> {
        let consumed = self.consumed.load(SeqCst);
        if consumed != triggers {
            return Err(format!("{consumed} of {triggers} triggers were consumed").into());
        }
        let pairs = self.moments.iter().flat_map(|each| each.windows(2));
        Ok(pairs.fold((0, 0), |(all, wrong), pair| {
            (all + 1, wrong + u64::from(pair[1].load(SeqCst) < pair[0].load(SeqCst)))
        }))
    }
}

/// One turn on a topic that is there, empty, and has the plan's partitions.
///
/// # Errors
/// What the brokers say; or records that did not all come.
pub fn turn(plan: &Plan, topic: &str, triggers: &[Row], by: KeyBy) -> Result<Found, Failed> {
    let devices: HashMap<&str, u32> = triggers.iter().map(|row| (row.device_id.as_str(), row.device)).collect();
    let board = Board::new(plan, triggers);
    live(plan, topic, triggers, by, &devices, &board)?;
    let (pairs, live) = board.misordered(triggers.len())?;
    let board = Board::new(plan, triggers);
    let per_partition = backlog(plan, topic, triggers.len(), &devices, &board)?;
    let (_, backlog) = board.misordered(triggers.len())?;
    let fullest = per_partition.iter().copied().max().unwrap_or(0);
    // The partitioner's own answer, where there is one, must be what is in the topic.
    if by != KeyBy::Nothing {
        let mut want = vec![0_u64; plan.partitions as usize];
        triggers.iter().filter_map(|row| by.partition(row, plan.partitions)).for_each(|at| want[at as usize] += 1);
        if want != per_partition {
            return Err(format!("partitions hold {per_partition:?}, the partitioner says {want:?}").into());
        }
    }
    let skew = fullest as f64 * f64::from(plan.partitions) / triggers.len() as f64;
    Ok(Found { pairs, live, backlog, skew })
}

fn consumer(plan: &Plan, group: &str) -> Result<BaseConsumer, KafkaError> {
    ClientConfig::new()
        .set("bootstrap.servers", &plan.bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()
}

/// Takes what there is until all have come or the time is over.
fn consume(
    consumer: &BaseConsumer,
    devices: &HashMap<&str, u32>,
    board: &Board,
    mut more: impl FnMut() -> bool,
    mut count: impl FnMut(i32),
) -> Result<(), Failed> {
    while more() {
        let Some(record) = consumer.poll(Duration::from_millis(20)) else { continue };
        let record = record?;
        let moment = board.next.fetch_add(1, SeqCst);
        let frame = Frame::read(record.payload().unwrap_or_default())?;
        let device = *devices.get(frame.device_id).ok_or("a device that is not of the fleet")?;
        board.note(device, frame.partition_seq, moment)?;
        count(record.partition());
    }
    Ok(())
}

fn live(
    plan: &Plan,
    topic: &str,
    triggers: &[Row],
    by: KeyBy,
    devices: &HashMap<&str, u32>,
    board: &Board,
) -> Result<(), Failed> {
    let (shared_out, working, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let pace = Duration::from_secs((triggers.len() as u64).checked_div(plan.rate).unwrap_or(0));
    let until = Instant::now() + LIMIT + pace;
    let wanted = triggers.len();
    std::thread::scope(|scope| {
        let members: Vec<_> = (0..plan.consumers)
            .map(|_| {
                scope.spawn(|| {
                    let consumer = consumer(plan, &format!("{topic}-live"))?;
                    consumer.subscribe(&[topic])?;
                    let mut mine = 0;
                    let more = || {
                        let now = consumer.assignment().map_or(0, |list| list.count());
                        if now != mine {
                            shared_out.fetch_add(now.wrapping_sub(mine), SeqCst);
                            working.fetch_add(usize::from(now > 0).wrapping_sub(usize::from(mine > 0)), SeqCst);
                            mine = now;
                        }
                        !stop.load(SeqCst) && board.consumed.load(SeqCst) < wanted && Instant::now() < until
                    };
                    consume(&consumer, devices, board, more, |_| ())
                })
            })
            .collect();
        // The group is whole when for a second every partition has had a member, and every member a partition.
        let mut whole_since = None;
        while whole_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(1))
            && Instant::now() < until
        {
            let is_whole =
                (shared_out.load(SeqCst), working.load(SeqCst)) == (plan.partitions as usize, plan.consumers as usize);
            whole_since = if is_whole { whole_since.or(Some(Instant::now())) } else { None };
            std::thread::sleep(Duration::from_millis(50));
        }
        let produced = produce(plan, topic, triggers, by);
        if produced.is_err() {
            stop.store(true, SeqCst);
        }
        let ends: Result<(), Failed> =
            members.into_iter().try_for_each(|member| member.join().expect("a consumer panicked"));
        produced.and(ends)
    })
}

/// Returns how many records each partition holds.
fn backlog(
    plan: &Plan,
    topic: &str,
    wanted: usize,
    devices: &HashMap<&str, u32>,
    board: &Board,
) -> Result<Vec<u64>, Failed> {
    let until = Instant::now() + LIMIT;
    let barrier = Barrier::new(plan.consumers as usize);
    let counts: Vec<AtomicU64> = (0..plan.partitions).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..plan.consumers)
            .map(|reader| {
                let (barrier, counts) = (&barrier, &counts);
                scope.spawn(move || {
                    let consumer = consumer(plan, &format!("{topic}-backlog"));
                    barrier.wait();
                    let consumer = consumer?;
                    let mut list = TopicPartitionList::new();
                    for partition in (0..plan.partitions).filter(|at| at % plan.consumers == reader) {
                        list.add_partition_offset(topic, partition as i32, Offset::Beginning)?;
                    }
                    consumer.assign(&list)?;
                    let more = || board.consumed.load(SeqCst) < wanted && Instant::now() < until;
                    consume(&consumer, devices, board, more, |partition| {
                        counts[partition as usize].fetch_add(1, SeqCst);
                    })
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("a reader panicked"))
    })?;
    Ok(counts.into_iter().map(AtomicU64::into_inner).collect())
}

/// All triggers, in their order, to one producer, at the plan's rate.
fn produce(plan: &Plan, topic: &str, triggers: &[Row], by: KeyBy) -> Result<(), Failed> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &plan.bootstrap)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "5")
        .create()?;
    let mut numbers = vec![0_u64; plan.devices as usize];
    let mut place = [0; wire::FRAME_BYTES_MAX];
    let began = Instant::now();
    for (at, row) in triggers.iter().enumerate() {
        if let Some(due) = (at as u64 * 1_000_000_000).checked_div(plan.rate).map(Duration::from_nanos) {
            while let Some(early) = due.checked_sub(began.elapsed()).filter(|early| !early.is_zero()) {
                producer.poll(early.min(Duration::from_micros(500)));
            }
        }
        let number = numbers[row.device as usize];
        numbers[row.device as usize] += 1;
        let len = wire::encode(&frame(row, number), &mut place);
        let mut record = BaseRecord::<[u8], [u8]>::to(topic).payload(&place[..len]);
        if let Some(partition) = by.partition(row, plan.partitions) {
            record = record.partition(partition as i32).key(row.device_id.as_bytes());
        }
        while let Err((error, back)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(5));
            record = back;
        }
        if at % 1_024 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(LIMIT)?;
    Ok(())
}

/// The frame that the router would write; the trigger's number of its device stands where the router counts.
fn frame(row: &Row, number: u64) -> wire::Frame<'_> {
    wire::Frame {
        device_id: row.device_id.as_bytes(),
        fence_id: row.fence_id.as_bytes(),
        state: row.state,
        event_time_ms: row.event_time_ms,
        hlc: Hlc::new(row.event_time_ms as u64, 0),
        accepted: UnixMicros(row.event_time_ms * 1_000),
        priority: Priority::Normal,
        attributes: b"",
        router_id: b"field",
        incarnation: 1,
        partition_seq: number,
        salt: 0,
    }
}

/// The table, in Markdown; each turn on a topic of its own.
///
/// # Errors
/// What the brokers say, or a device's order broken although the device is the key.
pub fn table(plan: &Plan, rounds: u64) -> Result<String, Failed> {
    let triggers = rows(plan.triggers, plan.devices, plan.fences, plan.seed);
    let mut found: Vec<Vec<Found>> = vec![Vec::new(); 4];
    for round in 0..rounds as usize {
        for turn_of in 0..4 {
            let who = (round + turn_of) % 4;
            let topic = format!("field-keys-{}-{round}-{who}", std::process::id());
            super::topic::create(&plan.bootstrap, &topic, plan.partitions)?;
            let one = turn(plan, &topic, &triggers, KeyBy::ALL[who])?;
            eprintln!("  round {}: {:<16} {one:?}", round + 1, KeyBy::ALL[who].name());
            found[who].push(one);
        }
    }
    let mut text = String::from(
        "| key | misordered pairs per million, live | the same, from a backlog | fullest partition ÷ mean |\n|---|---|---|---|\n",
    );
    for (by, found) in KeyBy::ALL.iter().zip(&found) {
        let per_million = |count: &dyn Fn(&Found) -> u64| {
            let each = found.iter().map(|one| count(one) as f64 * 1e6 / one.pairs as f64).collect();
            spread_text(each, super::input::grouped)
        };
        let skew = spread_text(found.iter().map(|one| one.skew).collect(), |value| format!("{value:.2}"));
        let (live, backlog) = (per_million(&|one| one.live), per_million(&|one| one.backlog));
        writeln!(text, "| {} | {live} | {backlog} | {skew} |", by.name())?;
        if *by == KeyBy::Device && found.iter().any(|one| one.live + one.backlog > 0) {
            return Err(format!("the device is the key and its order is broken: {found:?}").into());
        }
    }
    Ok(text)
}

//! Reads the tail of the topic: what a start fills the dedup window from, and where it looks up what may be there already.
//!
//! - A partition is read from the offset that is known for it. Without one it is searched backwards from its end, in steps
//!   that double, until a frame is older than the newest one by the dedup ttl.
//! - Every partition ends where it ended when the reading began; what comes later is not read. Control records, aborted
//!   transactions and what compaction took are passed over and never waited for.
//! - Records of a partition are handed over in order and once; partitions are read side by side.
//! - It needs READ on the topic, no group, and commits nothing. Its client's threads run on the CPUs it is given, and are
//!   gone when the answer is there, or soon after.
//!
//! Costs 16 MB for what is read ahead, and one request to each leader for the ends. Speed: docs/numbers.md, "Warm start".

mod part;

use self::part::{Edges, Part};
use super::connection_properties;
use super::handle::{HandleError, error_name};
use super::reader::{Edge, Isolation, Reader, Taken};
use crate::topology::CpuSet;
use crate::units::{Nanos, PartitionId, UnixMicros, UnixMs};
use rdkafka_sys::rd_kafka_resp_err_t as code;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How long the client's queue is waited for at once.
const TAKE: Duration = Duration::from_millis(10);
/// One question for the ends of the partitions; it is asked again until the deadline.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Between two of them.
const ASK_PAUSE: Duration = Duration::from_millis(100);
/// How long a partition is waited for that says it ends before its end: a broker that became its leader a moment ago may
/// not know yet how far it goes; an open transaction hides what lies behind it, and is ended soon, mostly.
const HELD_LIMIT: Duration = Duration::from_secs(2);

/// What is known of a partition beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailPart {
    /// The partition.
    pub partition: PartitionId,
    /// The first offset to read; `None`: it is searched for.
    pub from: Option<i64>,
    /// The last offset that was acknowledged to us, if any: a partition that ends before it is not the one it was.
    pub acked: Option<i64>,
}

/// What to read.
#[derive(Clone, Debug)]
pub struct TailPlan {
    /// The producer's properties ([`super::properties`]); the connection is taken from them.
    pub properties: Vec<(String, String)>,
    /// The topic.
    pub topic: String,
    /// Each partition once. One without a leader is waited for until the deadline: leave it out.
    pub partitions: Vec<TailPart>,
    /// The dedup ttl: how far before its newest frame a partition is searched.
    pub ttl: Nanos,
    /// When a frame was accepted; `None`: these bytes are no frame.
    pub accepted_of: fn(&[u8]) -> Option<UnixMicros>,
    /// The wall clock now: a frame from the future counts as one of now, so that one wrong date does not end the search.
    pub now: UnixMicros,
    /// When to give up.
    pub deadline: Instant,
    /// How far a search goes back at the most, in offsets of a partition.
    pub records_max_per_partition: u64,
    /// Where the client's threads shall run.
    pub cpus: CpuSet,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailRecord<'a> {
    /// Where it is.
    pub partition: PartitionId,
    /// And at which offset.
    pub offset: i64,
    /// Its key; empty if it has none.
    pub key: &'a [u8],
    /// Its value; empty if it has none.
    pub value: &'a [u8],
    /// The record's own timestamp.
    pub timestamp: Option<UnixMs>,
}

/// Why a partition was read from where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// The offset was known.
    Known,
    /// It is the first that is left.
    Low,
    /// The frame there is older than the ttl.
    Searched,
    /// The search may go no further back.
    Limit,
}

/// What was read of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRead {
    /// Which one.
    pub partition: PartitionId,
    /// The first offset that was asked for.
    pub from: i64,
    /// The end it had: the offset of the next record then, or the first that an open transaction held back.
    pub end: i64,
    /// How far it was read: `end`, unless the reading was stopped or something is held back.
    pub upto: i64,
    /// Records that were handed over.
    pub records: u64,
    /// Why `from`.
    pub began: Began,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRead {
    /// Records that were handed over.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// How long it took, the client's start and the search included.
    pub took: Duration,
    /// Of that, the time until the first record could be read: connecting, the ends, the search.
    pub searched: Duration,
    /// Each partition of the plan, in its order.
    pub partitions: Vec<PartRead>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// Whether the reader of the records stopped it.
    pub is_stopped: bool,
}

/// Why the tail could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TailError {
    /// No client.
    #[error("reading the tail of topic {topic}: {error}")]
    Client {
        /// The topic.
        topic: String,
        /// What the client library says.
        error: HandleError,
    },
    /// We may not.
    #[error(
        "topic {topic}{}: {operation} is not allowed ({name}): at start the dedup window is filled from the topic, which \
         needs READ on it; allow it: kafka-acls --add --allow-principal User:NAME --operation Read --topic {topic}",
        of(partition)
    )]
    Unauthorized {
        /// The topic.
        topic: String,
        /// The partition that said so, if one did.
        partition: Option<PartitionId>,
        /// What was tried.
        operation: &'static str,
        /// The broker's code.
        name: String,
    },
    /// Time ran out.
    #[error(
        "topic {topic}{}: {operation} did not end within {} ms ({progress}){}; is the partition's leader up? \
         start.timeout says how long a start waits",
        of(partition), limit.as_millis(), last_words(why)
    )]
    Deadline {
        /// The topic.
        topic: String,
        /// The first partition that was not done.
        partition: Option<PartitionId>,
        /// What was tried.
        operation: &'static str,
        /// How long there was for all of it.
        limit: Duration,
        /// How far it came.
        progress: String,
        /// What the client said last.
        why: Option<String>,
    },
    /// The client does not read the partition.
    #[error("topic {topic}, partition {partition}: {operation} was refused: {name}")]
    Refused {
        /// The topic.
        topic: String,
        /// The partition.
        partition: PartitionId,
        /// What was tried.
        operation: &'static str,
        /// The code.
        name: String,
    },
}

fn of(partition: &Option<PartitionId>) -> String {
    partition.map(|partition| format!(", partition {partition}")).unwrap_or_default()
}

fn last_words(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!("; the client's last words: {why}")).unwrap_or_default()
}

/// Reads what the plan says and hands each record to `each`, which stops it all by answering false. Blocks.
///
/// # Errors
/// [`TailError`]: with the partition, what was tried, and what to mend. What was handed over until then was in order.
///
/// # Panics
/// If the plan names a partition twice.
pub fn read_tail(plan: &TailPlan, each: &mut dyn FnMut(TailRecord<'_>) -> bool) -> Result<TailRead, TailError> {
    let began = Instant::now();
    if plan.partitions.is_empty() {
        let (took, searched) = (began.elapsed(), began.elapsed());
        let (partitions, warnings) = (Vec::new(), Vec::new());
        return Ok(TailRead { records: 0, bytes: 0, took, searched, partitions, warnings, is_stopped: false });
    }
    let target = Target { topic: &plan.topic, began, deadline: plan.deadline };
    // Both connect meanwhile; the second is for the ends alone.
    let mut tail = Tail::open(target, &plan.properties, &plan.cpus)?;
    let mut uncommitted = target.reader(&plan.properties, Isolation::Uncommitted, &plan.cpus)?;
    let partitions: Vec<PartitionId> = plan.partitions.iter().map(|part| part.partition).collect();
    let edges = tail.edges(&partitions, Some(&mut uncommitted))?;
    drop(uncommitted);
    for (part, edges) in plan.partitions.iter().zip(edges) {
        tail.add(Part::new(part, edges, plan.records_max_per_partition));
    }
    tail.search(plan)?;
    let searched = began.elapsed();
    let (mut records, mut bytes) = (0, 0);
    let is_stopped = tail.read("reading the tail", &mut |part, record| {
        part.records += 1;
        records += 1;
        bytes += (record.key.len() + record.value.len()) as u64;
        if each(record) { Next::More } else { Next::Stop }
    })?;
    let partitions = tail.parts.iter().map(Part::as_read).collect();
    Ok(TailRead { records, bytes, took: began.elapsed(), searched, partitions, warnings: tail.warnings(), is_stopped })
}

/// Whether READ on the topic is granted: asks the partition's leader for what comes after its end. Hands over nothing.
///
/// # Errors
/// [`TailError::Unauthorized`] if it is not; the others if it cannot be told.
pub fn may_read(
    properties: &[(String, String)],
    topic: &str,
    partition: PartitionId,
    cpus: &CpuSet,
    limit: Duration,
) -> Result<(), TailError> {
    let began = Instant::now();
    let target = Target { topic, began, deadline: began + limit };
    let mut tail = Tail::open(target, properties, cpus)?;
    // A partition that lags behind its own end, or hides it behind a transaction, is read all the same.
    tail.held_limit = Duration::ZERO;
    let edges = tail.edges(&[partition], None)?[0];
    let known = TailPart { partition, from: Some(edges.readable), acked: None };
    let mut part = Part::new(&known, edges, 0);
    // The answer is either that there is nothing yet, or a record that came just now.
    part.until = part.from + 1;
    tail.add(part);
    tail.read("reading", &mut |_, _| Next::Stop).map(drop)
}

/// What is read, and until when.
#[derive(Clone, Copy)]
struct Target<'a> {
    topic: &'a str,
    began: Instant,
    deadline: Instant,
}

impl Target<'_> {
    fn reader(
        &self,
        properties: &[(String, String)],
        isolation: Isolation,
        cpus: &CpuSet,
    ) -> Result<Reader, TailError> {
        let reader = Reader::open(&connection_properties(properties), self.topic, isolation, cpus);
        reader.map_err(|error| TailError::Client { topic: self.topic.to_string(), error })
    }
}

/// What the reader of a record answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    /// Enough of this partition.
    Enough,
    /// Enough of all.
    Stop,
}

struct Tail<'a> {
    target: Target<'a>,
    reader: Reader,
    parts: Vec<Part>,
    /// By partition number: its place in `parts` plus one.
    places: Vec<u32>,
    held_limit: Duration,
}

impl<'a> Tail<'a> {
    fn open(target: Target<'a>, properties: &[(String, String)], cpus: &CpuSet) -> Result<Tail<'a>, TailError> {
        let reader = target.reader(properties, Isolation::Committed, cpus)?;
        Ok(Tail { target, reader, parts: Vec::new(), places: Vec::new(), held_limit: HELD_LIMIT })
    }

    fn add(&mut self, part: Part) {
        let number = part.partition.0 as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        assert_eq!(self.places[number], 0, "partition {number} is in the plan twice");
        self.parts.push(part);
        self.places[number] = self.parts.len() as u32;
    }

    /// Where the partitions begin and end, asked until there is an answer. What an open transaction holds back is waited for a
    /// moment; without a reader that is shown it, nothing is known to be held back.
    fn edges(&mut self, partitions: &[PartitionId], uncommitted: Option<&mut Reader>) -> Result<Vec<Edges>, TailError> {
        let ends = match uncommitted {
            Some(uncommitted) => Some(self.ask(Some(uncommitted), partitions, Edge::End)?),
            None => None,
        };
        let asked = Instant::now();
        let readable = loop {
            let readable = self.ask(None, partitions, Edge::End)?;
            let is_held = ends.iter().flatten().zip(&readable).any(|(end, readable)| readable < end);
            if !is_held || asked.elapsed() >= self.held_limit.min(self.left() / 2) {
                break readable;
            }
            std::thread::sleep(ASK_PAUSE);
        };
        let lows = self.ask(None, partitions, Edge::Low)?;
        let ends = ends.unwrap_or_else(|| readable.clone());
        let edges = lows.into_iter().zip(readable).zip(ends);
        // What comes after the end is not read, though it could be by now.
        Ok(edges.map(|((low, readable), end)| Edges { low, readable: readable.min(end), end }).collect())
    }

    /// Asks `reader`, or our own.
    fn ask(
        &mut self,
        mut reader: Option<&mut Reader>,
        partitions: &[PartitionId],
        edge: Edge,
    ) -> Result<Vec<i64>, TailError> {
        const OPERATION: &str = "asking where it begins and ends";
        let mut said = None;
        loop {
            let left = self.left();
            if left.is_zero() {
                let (partition, name) = said.unwrap_or((None, "not asked".to_string()));
                return Err(self.deadline(partition, OPERATION, name));
            }
            let reader = reader.as_deref_mut().unwrap_or(&mut self.reader);
            match reader.edges(partitions, edge, left.min(ASK_LIMIT)) {
                Ok(offsets) => return Ok(offsets),
                Err((partition, code)) => {
                    let limit = self.left().min(ASK_LIMIT);
                    let code = if is_forbidden(code) { code } else { self.reader.topic_error(limit).unwrap_or(code) };
                    if is_forbidden(code) {
                        return Err(self.forbidden(partition, OPERATION, code));
                    }
                    log::debug!("{OPERATION}: topic {}: {}", self.target.topic, error_name(code));
                    said = Some((partition, error_name(code)));
                }
            }
            std::thread::sleep(ASK_PAUSE.min(left));
        }
    }

    fn left(&self) -> Duration {
        self.target.deadline.saturating_duration_since(Instant::now())
    }

    /// Finds where to begin, for the partitions of which that is not known.
    fn search(&mut self, plan: &TailPlan) -> Result<(), TailError> {
        loop {
            // What is found stays out of the readings of the search: it ends where it begins.
            let mut is_done = true;
            for part in &mut self.parts {
                let was_found = part.is_found;
                if !was_found {
                    part.step_back();
                }
                if part.is_found {
                    part.until = part.from;
                }
                is_done &= part.is_found;
            }
            if is_done {
                break;
            }
            self.read("searching the tail", &mut |part, record| {
                let Some(accepted) = (plan.accepted_of)(record.value) else { return Next::More };
                let accepted = accepted.min(plan.now);
                part.first.get_or_insert(accepted);
                if part.knows_newest {
                    return Next::Enough;
                }
                part.newest = part.newest.max(Some(accepted));
                Next::More
            })?;
            for part in &mut self.parts {
                if !part.is_found {
                    part.judge(plan.ttl);
                }
            }
        }
        for part in &mut self.parts {
            part.until = part.end;
        }
        Ok(())
    }

    /// Reads each partition from `from` to `until`. True: it was stopped.
    fn read(
        &mut self,
        operation: &'static str,
        each: &mut dyn FnMut(&mut Part, TailRecord<'_>) -> Next,
    ) -> Result<bool, TailError> {
        for index in 0..self.parts.len() {
            let part = &mut self.parts[index];
            (part.next, part.held) = (part.from, None);
            part.is_open = part.from < part.until;
            let (partition, from) = (part.partition, part.from);
            if part.is_open {
                let begun = self.reader.begin(partition, from);
                begun.map_err(|code| self.refused(partition, operation, code))?;
            }
        }
        let mut said = None;
        let mut is_stopped = false;
        while !is_stopped && self.parts.iter().any(|part| part.is_open) {
            if Instant::now() >= self.target.deadline {
                let first = self.parts.iter().find(|part| part.is_open).expect("one is open");
                let left = self.parts.iter().filter(|part| part.is_open).count();
                let mut progress = format!("at offset {} of {}, {left} partitions to go", first.next, first.until);
                if let Some(name) = said {
                    // Writing to a string cannot fail.
                    let _ = write!(progress, "; {name}");
                }
                return Err(self.deadline(Some(first.partition), operation, progress));
            }
            let (parts, places) = (&mut self.parts, &self.places);
            let mut faults: Vec<(PartitionId, i32)> = Vec::new();
            self.reader.take(TAKE, &mut |taken| {
                let part = |partition: PartitionId| {
                    let place = places.get(partition.0 as usize).and_then(|place| place.checked_sub(1));
                    place.map(|place| place as usize)
                };
                match taken {
                    Taken::Record { partition, offset, key, value, timestamp_ms } => {
                        let Some(part) = part(partition).map(|place| &mut parts[place]) else { return true };
                        if !part.is_open || offset < part.next {
                            return true;
                        }
                        part.held = None;
                        if offset >= part.until {
                            (part.next, part.is_open) = (part.until, false);
                            return true;
                        }
                        part.next = offset + 1;
                        let timestamp = timestamp_ms.map(UnixMs);
                        let next = each(part, TailRecord { partition, offset, key, value, timestamp });
                        part.is_open = next == Next::More && part.next < part.until;
                        is_stopped = next == Next::Stop;
                        !is_stopped
                    }
                    Taken::End { partition, offset } => {
                        let Some(part) = part(partition).map(|place| &mut parts[place]) else { return true };
                        if part.is_open {
                            part.next = part.next.max(offset.min(part.until));
                            part.is_open = part.next < part.until;
                            part.held = Some(Instant::now());
                        }
                        true
                    }
                    Taken::Fault { partition, code } => {
                        faults.push((partition, code));
                        true
                    }
                }
            });
            for (partition, code) in faults {
                if is_forbidden(code) {
                    return Err(self.forbidden(Some(partition), operation, code));
                }
                log::debug!("{operation}: topic {}, partition {partition}: {}", self.target.topic, error_name(code));
                if code == code::RD_KAFKA_RESP_ERR__BAD_MSG as i32
                    && let Some(part) = self.parts.iter_mut().find(|part| part.partition == partition)
                {
                    part.is_damaged = true;
                }
                said = Some(error_name(code));
            }
            for part in &mut self.parts {
                if part.is_open && part.held.is_some_and(|since| since.elapsed() >= self.held_limit) {
                    (part.is_open, part.was_held) = (false, true);
                }
                // A partition that is read no more would fill the queue.
                if !part.is_open {
                    self.reader.end(part.partition);
                }
            }
        }
        for part in &mut self.parts {
            part.is_open = false;
            self.reader.end(part.partition);
        }
        Ok(is_stopped)
    }

    /// One line for each kind, whatever the number of partitions.
    fn warnings(&self) -> Vec<String> {
        let topic = self.target.topic;
        let of = |is: fn(&Part) -> bool| -> Vec<u32> {
            self.parts.iter().filter(|part| is(part)).map(|part| part.partition.0).collect()
        };
        let (others, held) =
            (of(|part| part.is_other), of(|part| part.is_held_back || part.was_held && part.next < part.end));
        let (damaged, limited) = (of(|part| part.is_damaged), of(|part| part.began == Began::Limit));
        let mut warnings = Vec::new();
        if !others.is_empty() {
            warnings.push(format!(
                "partitions {others:?} of topic {topic} end before what was acknowledged: the topic was made anew, or a \
                 leader lost records; their tail was searched from the end"
            ));
        }
        if !held.is_empty() {
            warnings.push(format!(
                "partitions {held:?} of topic {topic} hold back their last records, behind an open transaction for \
                 instance: triggers among them can be published again"
            ));
        }
        if !damaged.is_empty() {
            warnings.push(format!(
                "partitions {damaged:?} of topic {topic} have records whose checksum is wrong: they were passed over"
            ));
        }
        if !limited.is_empty() {
            warnings.push(format!(
                "partitions {limited:?} of topic {topic} were read back to their limit, which is less than dedup.ttl before \
                 their newest frame: older triggers can be published again"
            ));
        }
        warnings
    }

    fn deadline(&mut self, partition: Option<PartitionId>, operation: &'static str, progress: String) -> TailError {
        TailError::Deadline {
            topic: self.target.topic.to_string(),
            partition,
            operation,
            limit: self.target.deadline.saturating_duration_since(self.target.began),
            progress,
            why: self.reader.last_words().map(str::to_string),
        }
    }

    fn forbidden(&self, partition: Option<PartitionId>, operation: &'static str, code: i32) -> TailError {
        TailError::Unauthorized { topic: self.target.topic.to_string(), partition, operation, name: error_name(code) }
    }

    fn refused(&self, partition: PartitionId, operation: &'static str, code: i32) -> TailError {
        TailError::Refused { topic: self.target.topic.to_string(), partition, operation, name: error_name(code) }
    }
}

fn is_forbidden(code: i32) -> bool {
    code == code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED as i32
}

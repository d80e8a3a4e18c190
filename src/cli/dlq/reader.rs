//! Reads a topic from offsets it is told up to the end it had then. No group is joined and nothing is committed.

use crate::cli::CliError;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the cluster may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// How long nothing may come while there is more to read.
const STANDSTILL_MAX: Duration = Duration::from_secs(30);
/// One wait for a record: how soon a signal is seen.
const WAIT: Duration = Duration::from_millis(100);

/// Keeps the client's last words: the call that fails only says that time ran out.
#[derive(Default)]
struct Listener(Mutex<Option<String>>);

impl ClientContext for Listener {
    fn error(&self, error: KafkaError, reason: &str) {
        // That all are down follows from what was said before.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
    }
}

impl ConsumerContext for Listener {}

/// How a reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All was read.
    End,
    /// Whoever took the records, or watched, said that it is enough for now.
    Paused,
}

/// A topic, being read: once, from a beginning to an end. The client pauses what is read to its end, and a pause may outlive
/// the assignment it was made in, so the next reading takes a new reader.
pub(super) struct TopicReader {
    consumer: BaseConsumer<Listener>,
    topic: String,
    bootstrap: String,
    /// Where each partition ends that is not read to its end.
    ends: BTreeMap<u32, i64>,
    /// Offsets to be read, in all.
    total: u64,
    /// Of these, how many are behind.
    next: BTreeMap<u32, i64>,
    first: BTreeMap<u32, i64>,
}

impl TopicReader {
    /// With a client's connection properties. Nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// The client does not take its properties.
    pub(super) fn new(connection: &ClientConfig, topic: &str) -> Result<TopicReader, CliError> {
        let mut client = connection.clone();
        for (name, value) in [
            // The client asks for a name even where no group is joined.
            ("group.id", "fencepost-dlq"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            // What retention deleted while it was read is passed over.
            ("auto.offset.reset", "earliest"),
            ("enable.partition.eof", "true"),
            ("isolation.level", "read_committed"),
            ("fetch.wait.max.ms", "50"),
            ("queued.max.messages.kbytes", "16384"),
            // Between two batches nobody polls.
            ("max.poll.interval.ms", "86400000"),
            ("allow.auto.create.topics", "false"),
            ("log.connection.close", "false"),
        ] {
            client.set(name, value);
        }
        let consumer = client
            .create_with_context(Listener::default())
            .map_err(|error| CliError::Usage(format!("the Kafka client refused its configuration: {error}")))?;
        Ok(TopicReader {
            consumer,
            topic: topic.to_owned(),
            bootstrap: client.get("bootstrap.servers").unwrap_or_default().to_owned(),
            ends: BTreeMap::new(),
            total: 0,
            next: BTreeMap::new(),
            first: BTreeMap::new(),
        })
    }

    fn unavailable(&self, what: &str, error: impl std::fmt::Display) -> CliError {
        let words = self.consumer.context().0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let words = words.map(|words| format!(" ({words})")).unwrap_or_default();
        let Self { topic, bootstrap, .. } = self;
        CliError::Unavailable(format!("topic {topic} on {bootstrap}: {what}: {error}{words}"))
    }

    /// How many partitions the topic has; `None`: there is no such topic.
    ///
    /// # Errors
    /// No answer.
    pub(super) fn partitions(&self) -> Result<Option<u32>, CliError> {
        let metadata = self
            .consumer
            .fetch_metadata(Some(&self.topic), ANSWER_LIMIT)
            .map_err(|error| self.unavailable("asking for its partitions", error))?;
        let found = metadata.topics().iter().find(|found| found.name() == self.topic);
        let Some(found) = found else { return Ok(None) };
        match found.error().map(RDKafkaErrorCode::from) {
            None => Ok((!found.partitions().is_empty()).then_some(found.partitions().len() as u32)),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            Some(code) => Err(self.unavailable("asking for its partitions", code)),
        }
    }

    /// The cluster's own id; empty if it tells none.
    pub(super) fn cluster_id(&self) -> String {
        self.consumer.client().fetch_cluster_id(ANSWER_LIMIT).unwrap_or_default()
    }

    /// For each of these partitions the offset of the first record that is not older than this; [`i64::MAX`] when all are
    /// older. Where the broker does not say, the partition's beginning.
    ///
    /// # Errors
    /// The list cannot be made: a partition's number is beyond all bounds.
    pub(super) fn offsets_from(&self, partitions: &[u32], since_ms: i64) -> Result<BTreeMap<u32, i64>, CliError> {
        let mut offsets = self.ask_by_time(partitions, since_ms.max(0))?;
        // "All are older" is also what a broker says that does not know times. One that does finds a record of any time.
        let doubtful: Vec<u32> = offsets.iter().filter(|(_, offset)| **offset == i64::MAX).map(|(of, _)| *of).collect();
        if !doubtful.is_empty() {
            let of_any_time = self.ask_by_time(&doubtful, 0)?;
            for (partition, _) in of_any_time.into_iter().filter(|(_, offset)| *offset == i64::MAX) {
                offsets.insert(partition, 0);
            }
        }
        Ok(offsets)
    }

    fn ask_by_time(&self, partitions: &[u32], since_ms: i64) -> Result<BTreeMap<u32, i64>, CliError> {
        let mut asked = TopicPartitionList::new();
        for partition in partitions {
            asked
                .add_partition_offset(&self.topic, *partition as i32, Offset::Offset(since_ms))
                .map_err(|error| self.unavailable("asking for offsets by time", error))?;
        }
        let mut offsets: BTreeMap<u32, i64> = partitions.iter().map(|partition| (*partition, 0)).collect();
        match self.consumer.offsets_for_times(asked, ANSWER_LIMIT) {
            Ok(answers) => {
                for answer in answers.elements() {
                    let offset = match (answer.error(), answer.offset()) {
                        (Ok(()), Offset::Offset(offset)) => offset,
                        (Ok(()), Offset::End) => i64::MAX,
                        _ => 0,
                    };
                    offsets.insert(answer.partition() as u32, offset);
                }
            }
            Err(error) => log::info!("topic {} is read from its beginning: offsets by time: {error}", self.topic),
        }
        Ok(offsets)
    }

    /// Reads these partitions from these offsets on, up to the end they have now. An offset before the first record that is
    /// still there means that record. Returns the partitions whose offset lies behind their end, which are read from their
    /// beginning if `anew`, and not at all otherwise.
    ///
    /// # Errors
    /// No answer.
    ///
    /// # Panics
    /// If it has begun before.
    pub(super) fn begin(&mut self, from: &BTreeMap<u32, i64>, anew: bool) -> Result<Vec<u32>, CliError> {
        assert!(self.first.is_empty(), "a reader reads once");
        let mut assignment = TopicPartitionList::new();
        let mut beyond = Vec::new();
        for (&partition, &wanted) in from {
            let (low, high) = self
                .consumer
                .fetch_watermarks(&self.topic, partition as i32, ANSWER_LIMIT)
                .map_err(|error| self.unavailable("asking for its ends", error))?;
            let mut first = wanted.max(low);
            if wanted > high {
                beyond.push(partition);
                first = if anew { low } else { high };
            }
            self.first.insert(partition, first);
            self.next.insert(partition, first);
            if first < high {
                self.total += (high - first) as u64;
                self.ends.insert(partition, high);
                assignment
                    .add_partition_offset(&self.topic, partition as i32, Offset::Offset(first))
                    .map_err(|error| self.unavailable("beginning to read", error))?;
            }
        }
        self.consumer.assign(&assignment).map_err(|error| self.unavailable("beginning to read", error))?;
        Ok(beyond)
    }

    /// Where each partition's reading began.
    pub(super) fn first(&self) -> &BTreeMap<u32, i64> {
        &self.first
    }

    /// Offsets that are behind, and all there are.
    pub(super) fn progress(&self) -> (u64, u64) {
        let behind =
            self.next.iter().map(|(partition, next)| (next - self.first[partition]).max(0) as u64).sum::<u64>();
        (behind.min(self.total), self.total)
    }

    /// Hands over records until `each` says that it is enough, or `watch` does, which is asked at least every 100 ms.
    ///
    /// # Errors
    /// The cluster is away, or reading is not allowed.
    pub(super) fn read(
        &mut self,
        mut watch: impl FnMut((u64, u64)) -> bool,
        mut each: impl FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> Result<Ended, CliError> {
        let mut last_sign = Instant::now();
        let mut asked = Instant::now();
        let mut last_error = None;
        while !self.ends.is_empty() {
            let polled = self.consumer.poll(WAIT);
            let (mut goes_on, mut ended) = (true, None);
            match polled {
                None => {}
                Some(Ok(record)) => {
                    last_sign = Instant::now();
                    let (partition, offset) = (record.partition() as u32, record.offset());
                    // What came after the reading began is left for the next one.
                    if let Some(&end) = self.ends.get(&partition) {
                        if offset < end {
                            goes_on = each(&record);
                            self.next.insert(partition, offset + 1);
                        }
                        ended = (offset + 1 >= end).then_some(partition);
                    }
                }
                // Behind markers of transactions there may be no record at the last offsets.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    last_sign = Instant::now();
                    ended = Some(partition as u32);
                }
                Some(Err(error)) => {
                    use RDKafkaErrorCode::{
                        GroupAuthorizationFailed, TopicAuthorizationFailed, UnknownTopicOrPartition,
                    };
                    let code = error.rdkafka_error_code();
                    if let Some(TopicAuthorizationFailed | UnknownTopicOrPartition) = code {
                        return Err(self.unavailable("reading it", error));
                    }
                    // No group is joined, so the right to one is not needed.
                    if code != Some(GroupAuthorizationFailed) {
                        last_error = Some(error);
                    }
                }
            }
            if let Some(partition) = ended
                && let Some(end) = self.ends.remove(&partition)
            {
                self.next.insert(partition, end);
                let mut done = TopicPartitionList::new();
                done.add_partition(&self.topic, partition as i32);
                // Only spares the fetching of what is not looked at.
                if let Err(error) = self.consumer.pause(&done) {
                    log::debug!("pausing partition {partition}: {error}");
                }
            }
            let is_due = asked.elapsed() >= WAIT;
            if is_due {
                asked = Instant::now();
            }
            if !goes_on || (is_due && !watch(self.progress())) {
                return Ok(if self.ends.is_empty() { Ended::End } else { Ended::Paused });
            }
            if last_sign.elapsed() >= STANDSTILL_MAX {
                let error = last_error.map_or_else(|| "no reason given".to_owned(), |error| error.to_string());
                return Err(self.unavailable("nothing came for 30 s", error));
            }
        }
        Ok(Ended::End)
    }
}

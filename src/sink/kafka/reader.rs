//! A consumer of one topic that reads partitions from offsets it is told, without a group: it needs READ on the topic and
//! nothing else, commits nothing, and takes records in arrays.
//!
//! Rests on librdkafka's interface of a queue per reader, not on the one for groups, which cannot read without a group's
//! name and asks for its coordinator. Measured in docs/numbers.md, "Warm start".

use super::handle::{self, HandleError};
use crate::topology::{CpuSet, affinity};
use crate::units::PartitionId;
use rdkafka_sys as sys;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};
use std::time::Duration;

/// Records that are taken at once.
const BATCH: usize = 4_096;

/// Where a partition begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The first offset there is.
    Low,
    /// How far it can be read.
    End,
}

/// What a reader is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// No transaction that is open or was given up: a partition ends before the first open one.
    Committed,
    /// Everything: a partition ends at the offset that the next record will get.
    Uncommitted,
}

/// Functions whose result is a code, read as a number: a broker may answer with a code that the bindings do not name, and
/// no Rust enum may hold it.
mod by_number {
    use super::{c_int, sys};
    #[allow(clashing_extern_declarations)]
    unsafe extern "C" {
        pub fn rd_kafka_last_error() -> c_int;
        pub fn rd_kafka_event_error(event: *mut sys::rd_kafka_event_t) -> c_int;
        pub fn rd_kafka_offsets_for_times(
            client: *mut sys::rd_kafka_t,
            offsets: *mut sys::rd_kafka_topic_partition_list_t,
            timeout_ms: c_int,
        ) -> c_int;
        pub fn rd_kafka_metadata(
            client: *mut sys::rd_kafka_t,
            all_topics: c_int,
            only: *mut sys::rd_kafka_topic_t,
            answer: *mut *const sys::rd_kafka_metadata,
            timeout_ms: c_int,
        ) -> c_int;
    }
}

/// Something that came from a partition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken<'a> {
    /// A record; absent bytes are empty ones.
    Record { partition: PartitionId, offset: i64, key: &'a [u8], value: &'a [u8], timestamp_ms: Option<i64> },
    /// There is nothing at this offset yet.
    End { partition: PartitionId, offset: i64 },
    /// librdkafka says that something is wrong; it goes on trying where that can help.
    Fault { partition: PartitionId, code: i32 },
}

/// A time limit as librdkafka takes it, where 0 is none and -1 for ever.
fn millis(limit: Duration) -> c_int {
    limit.as_millis().clamp(1, 60_000) as c_int
}

/// The code of a failure, and the partition if it is of one alone.
pub(super) type EdgeError = (Option<PartitionId>, i32);

/// Partitions of the topic, with an offset each.
struct OffsetList(NonNull<sys::rd_kafka_topic_partition_list_t>);

impl OffsetList {
    fn new(topic: &CStr, partitions: &[PartitionId], offset: i64) -> OffsetList {
        // SAFETY: no pointers; never returns null.
        let list = unsafe { sys::rd_kafka_topic_partition_list_new(partitions.len() as c_int) };
        let list = OffsetList(NonNull::new(list).expect("a list can be made"));
        for partition in partitions {
            // SAFETY: list and name live; the name is copied. The answer is an element of the list.
            unsafe {
                let element =
                    sys::rd_kafka_topic_partition_list_add(list.0.as_ptr(), topic.as_ptr(), partition.0 as i32);
                (*element).offset = offset;
            }
        }
        list
    }
}

impl Drop for OffsetList {
    fn drop(&mut self) {
        // SAFETY: the list is ours and destroyed once.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.0.as_ptr()) }
    }
}

/// Puts the offsets of an answer where their partitions are.
fn put_in_order(
    partitions: &[PartitionId],
    answers: impl Iterator<Item = *const sys::rd_kafka_topic_partition_t>,
    offsets: &mut [Option<i64>],
) -> Result<(), EdgeError> {
    for (index, answer) in answers.enumerate() {
        // SAFETY: the caller's answer lives; the code is an integer for C.
        let (number, offset, code) =
            unsafe { ((*answer).partition, (*answer).offset, (&raw const (*answer).err).cast::<i32>().read()) };
        let partition = PartitionId(number as u32);
        if code != 0 {
            return Err((Some(partition), code));
        }
        // In order, as they were asked for, mostly.
        let is_at = |place: &usize| partitions.get(*place) == Some(&partition);
        let place = Some(index).filter(is_at).or_else(|| partitions.iter().position(|asked| *asked == partition));
        if let Some(place) = place {
            offsets[place] = Some(offset);
        }
    }
    Ok(())
}

/// Every partition's offset, or which has none.
fn all_of(partitions: &[PartitionId], offsets: Vec<Option<i64>>) -> Result<Vec<i64>, EdgeError> {
    let missing = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__NO_OFFSET as i32;
    let known = |(partition, offset): (&PartitionId, Option<i64>)| {
        offset.filter(|offset| *offset >= 0).ok_or((Some(*partition), missing))
    };
    partitions.iter().zip(offsets).map(known).collect()
}

struct Event(NonNull<sys::rd_kafka_event_t>);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event came from `rd_kafka_queue_poll`, is owned by us and destroyed once.
        unsafe { sys::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

/// The consumer. What it is given lives until the next call.
pub(super) struct Reader {
    client: NonNull<sys::rd_kafka_t>,
    topic: NonNull<sys::rd_kafka_topic_t>,
    /// Where all partitions deliver to.
    queue: NonNull<sys::rd_kafka_queue_t>,
    /// What the client says of itself.
    events: NonNull<sys::rd_kafka_queue_t>,
    topic_name: CString,
    messages: Vec<*mut sys::rd_kafka_message_t>,
    /// Partitions that are being read.
    open: Vec<PartitionId>,
    cpus: CpuSet,
    last_words: Option<String>,
}

// WHY: a reader is made on a helper thread (for its CPUs) and used by the one that starts the router.
// SAFETY: librdkafka's handles may be used from any thread; `Reader` has no thread-bound state and is not shared.
unsafe impl Send for Reader {}

impl Reader {
    /// Makes one, on a thread that is allowed `cpus` only. `properties` are a client's connection.
    ///
    /// WHY: whoever needs the ends under both isolations has two readers. librdkafka 2.12.1 has a question that says its
    /// isolation (`rd_kafka_ListOffsets`), but looks for leaders it lacks on the thread that asks and on its own at once, and
    /// the one uses what the other has freed: a start ended by a signal, once in thousands (`tests/leaders.rs`).
    ///
    /// # Errors
    /// [`HandleError`], with librdkafka's own words.
    pub(super) fn open(
        properties: &[(String, String)],
        topic: &str,
        isolation: Isolation,
        cpus: &CpuSet,
    ) -> Result<Reader, HandleError> {
        let isolation = match isolation {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        };
        let ours = [
            ("allow.auto.create.topics", "false"),
            ("log.connection.close", "false"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            // What retention deleted while it was read is passed over.
            ("auto.offset.reset", "earliest"),
            ("enable.partition.eof", "true"),
            ("check.crcs", "true"),
            ("isolation.level", isolation),
            // The end of a partition is found by its offset, mostly; where it is not, no more than this is waited for.
            ("fetch.wait.max.ms", "20"),
            ("fetch.error.backoff.ms", "50"),
            // Bytes, not a number of records, bound what is read ahead; a full queue is looked at again at once.
            ("queued.min.messages", "1000000"),
            ("queued.max.messages.kbytes", "16384"),
            ("fetch.queue.backoff.ms", "1"),
            ("topic.metadata.refresh.fast.interval.ms", "100"),
        ];
        let mut properties = properties.to_vec();
        properties.extend(ours.map(|(name, value)| (name.to_string(), value.to_string())));
        let topic = CString::new(topic);
        let topic = topic.map_err(|_| HandleError::Create("the topic's name holds a NUL byte".into()))?;
        let own_cpus = cpus.clone();
        handle::made_on(cpus, move || Reader::open_here(&properties, topic, own_cpus))
    }

    fn open_here(properties: &[(String, String)], topic_name: CString, cpus: CpuSet) -> Result<Reader, HandleError> {
        let mut why = [0 as c_char; 512];
        let conf = handle::configuration(properties)?;
        // SAFETY: the configuration is ours.
        unsafe { sys::rd_kafka_conf_set_events(conf, sys::RD_KAFKA_EVENT_ERROR) }
        let consumer = sys::rd_kafka_type_t::RD_KAFKA_CONSUMER;
        // SAFETY: on success the configuration belongs to the client; the place is as long as said.
        let client = unsafe { sys::rd_kafka_new(consumer, conf, why.as_mut_ptr(), why.len()) };
        let Some(client) = NonNull::new(client) else {
            // SAFETY: on failure the configuration is still ours.
            unsafe { sys::rd_kafka_conf_destroy(conf) }
            return Err(HandleError::Create(handle::text_of(&why)));
        };
        // SAFETY: the client lives; a null configuration means the defaults set above.
        let topic = unsafe { sys::rd_kafka_topic_new(client.as_ptr(), topic_name.as_ptr(), ptr::null_mut()) };
        let Some(topic) = NonNull::new(topic) else {
            // SAFETY: the client is ours and nothing else uses it.
            unsafe { sys::rd_kafka_destroy(client.as_ptr()) }
            return Err(HandleError::Create(format!("topic {} was refused", topic_name.to_string_lossy())));
        };
        // SAFETY: the client lives.
        let queue = unsafe { sys::rd_kafka_queue_new(client.as_ptr()) };
        // SAFETY: as above.
        let events = unsafe { sys::rd_kafka_queue_get_main(client.as_ptr()) };
        Ok(Reader {
            client,
            topic,
            queue: NonNull::new(queue).expect("a queue can be made"),
            events: NonNull::new(events).expect("a client has a main queue"),
            topic_name,
            messages: Vec::with_capacity(BATCH),
            open: Vec::new(),
            cpus,
            last_words: None,
        })
    }

    /// An edge of each of these partitions, in their order: one request to each leader.
    ///
    /// # Errors
    /// The code, and the partition if it is of one alone.
    pub(super) fn edges(
        &mut self,
        partitions: &[PartitionId],
        edge: Edge,
        limit: Duration,
    ) -> Result<Vec<i64>, EdgeError> {
        let which = match edge {
            Edge::Low => sys::RD_KAFKA_OFFSET_BEGINNING,
            Edge::End => sys::RD_KAFKA_OFFSET_END,
        };
        let list = OffsetList::new(&self.topic_name, partitions, which.into());
        let limit_ms = millis(limit);
        // Asked with the reader's own isolation. The two words for begin and end are the protocol's "times" for them.
        // SAFETY: client and list live.
        let code = unsafe { by_number::rd_kafka_offsets_for_times(self.client.as_ptr(), list.0.as_ptr(), limit_ms) };
        let mut offsets = vec![None; partitions.len()];
        // SAFETY: the list keeps the elements that were added, in their order.
        let element = |index| unsafe { (*list.0.as_ptr()).elems.add(index).cast_const() };
        put_in_order(partitions, (0..partitions.len()).map(element), &mut offsets)?;
        if code == 0 { all_of(partitions, offsets) } else { Err((None, code)) }
    }

    /// What the cluster says against the topic as a whole: a question for its partitions only says then that there are
    /// none. `None`: nothing, or there was no answer.
    pub(super) fn topic_error(&mut self, limit: Duration) -> Option<i32> {
        let mut metadata = ptr::null();
        // SAFETY: client and topic live; the place for the answer is ours.
        let answer = unsafe {
            let (client, topic, limit_ms) = (self.client.as_ptr(), self.topic.as_ptr(), millis(limit));
            by_number::rd_kafka_metadata(client, 0, topic, &raw mut metadata, limit_ms)
        };
        if answer != 0 || metadata.is_null() {
            return None;
        }
        // SAFETY: the answer has as many topics as it says; the code is an integer for C. It is ours, destroyed once.
        unsafe {
            let topics = (0..(*metadata).topic_cnt as usize).map(|index| (*metadata).topics.add(index));
            let codes = topics.map(|topic| (&raw const (*topic).err).cast::<i32>().read());
            let code = codes.fold(0, |said, code| if code == 0 { said } else { code });
            sys::rd_kafka_metadata_destroy(metadata);
            Some(code).filter(|code| *code != 0)
        }
    }

    /// Begins to read a partition at an offset.
    ///
    /// # Errors
    /// librdkafka's code.
    pub(super) fn begin(&mut self, partition: PartitionId, offset: i64) -> Result<(), i32> {
        debug_assert!(!self.open.contains(&partition), "{partition} is being read");
        // SAFETY: topic and queue live.
        let answer = unsafe {
            sys::rd_kafka_consume_start_queue(self.topic.as_ptr(), partition.0 as i32, offset, self.queue.as_ptr())
        };
        if answer == 0 {
            self.open.push(partition);
            return Ok(());
        }
        // SAFETY: reads a thread-local of librdkafka.
        Err(unsafe { by_number::rd_kafka_last_error() })
    }

    /// Ends to read a partition. What of it is queued already is never taken.
    pub(super) fn end(&mut self, partition: PartitionId) {
        let Some(index) = self.open.iter().position(|open| *open == partition) else { return };
        self.open.swap_remove(index);
        // SAFETY: the topic lives. Waits for librdkafka's main thread, not for a broker.
        let answer = unsafe { sys::rd_kafka_consume_stop(self.topic.as_ptr(), partition.0 as i32) };
        if answer != 0 {
            log::debug!("partition {partition} was not being read");
        }
    }

    /// Takes what came, as long as `each` says to go on; waits up to `wait` for the first of it and for a full array.
    /// Returns how much it was.
    pub(super) fn take(&mut self, wait: Duration, each: &mut dyn FnMut(Taken<'_>) -> bool) -> usize {
        let mut messages = std::mem::take(&mut self.messages);
        // SAFETY: the queue lives; the array has room for as many as said. The messages written to it become ours.
        let count = unsafe {
            sys::rd_kafka_consume_batch_queue(
                self.queue.as_ptr(),
                wait.as_millis() as c_int,
                messages.as_mut_ptr(),
                BATCH,
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: so many were written.
        unsafe { messages.set_len(count) }
        let mut goes_on = true;
        for message in messages.drain(..) {
            let _own = Message(message);
            goes_on = goes_on && each(taken(message));
        }
        self.messages = messages;
        self.listen();
        count
    }

    /// Why the client got no connection, in its own words: the call that fails for it only says that time ran out.
    pub(super) fn last_words(&mut self) -> Option<&str> {
        self.listen();
        self.last_words.as_deref()
    }

    fn listen(&mut self) {
        loop {
            // SAFETY: the queue lives; a time-out of 0 does not wait.
            let event = unsafe { sys::rd_kafka_queue_poll(self.events.as_ptr(), 0) };
            let Some(event) = NonNull::new(event).map(Event) else { return };
            // SAFETY: the event is ours; its text lives as long as it.
            let (code, text) = unsafe {
                let text = sys::rd_kafka_event_error_string(event.0.as_ptr());
                (by_number::rd_kafka_event_error(event.0.as_ptr()), CStr::from_ptr(text).to_string_lossy())
            };
            // That all are down follows from what was said before.
            if code != 0 && code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN as i32 {
                log::debug!("reading the topic's tail: {text}");
                self.last_words = Some(text.into_owned());
            }
        }
    }
}

/// One message, destroyed when it was looked at.
struct Message(*mut sys::rd_kafka_message_t);

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the message is ours and destroyed once.
        unsafe { sys::rd_kafka_message_destroy(self.0) }
    }
}

/// What a message says. It lives as long as the message, which the caller holds.
fn taken<'a>(message: *const sys::rd_kafka_message_t) -> Taken<'a> {
    let partition = PartitionId(handle::partition_of(message) as u32);
    // SAFETY: the caller holds the message.
    let offset = unsafe { (*message).offset };
    match handle::code_of(message) {
        0 => {}
        code if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF as i32 => {
            return Taken::End { partition, offset };
        }
        code => return Taken::Fault { partition, code },
    }
    let bytes = |start: *mut std::ffi::c_void, len: usize| match NonNull::new(start) {
        None => &[][..],
        // SAFETY: key and payload are null, or point to as many bytes as said, which live as long as the message.
        Some(start) => unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u8>(), len) },
    };
    // SAFETY: as above; the kind of time is written to our own place.
    let (key, value, time) = unsafe {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        let time = sys::rd_kafka_message_timestamp(message, &raw mut kind);
        (bytes((*message).key, (*message).key_len), bytes((*message).payload, (*message).len), time)
    };
    Taken::Record { partition, offset, key, value, timestamp_ms: Some(time).filter(|time| *time >= 0) }
}

impl Drop for Reader {
    /// Destroying joins librdkafka's threads, which may take long while a broker does not answer: it happens on a thread of
    /// its own. If none can be had, the handle is leaked, and the log says so.
    fn drop(&mut self) {
        struct Remains {
            client: NonNull<sys::rd_kafka_t>,
            topic: NonNull<sys::rd_kafka_topic_t>,
            queues: [NonNull<sys::rd_kafka_queue_t>; 2],
            open: Vec<PartitionId>,
        }
        // SAFETY: as for `Reader`.
        unsafe impl Send for Remains {}
        impl Remains {
            fn destroy(self) {
                for partition in &self.open {
                    // SAFETY: the topic lives.
                    unsafe { sys::rd_kafka_consume_stop(self.topic.as_ptr(), partition.0 as i32) };
                }
                for queue in self.queues {
                    // SAFETY: the queue is ours and destroyed once, before its client.
                    unsafe { sys::rd_kafka_queue_destroy(queue.as_ptr()) }
                }
                // SAFETY: both are ours, used by nobody else any more, and destroyed once, the client last.
                unsafe {
                    sys::rd_kafka_topic_destroy(self.topic.as_ptr());
                    sys::rd_kafka_destroy(self.client.as_ptr());
                }
            }
        }
        let (cpus, open) = (std::mem::take(&mut self.cpus), std::mem::take(&mut self.open));
        let remains = Remains { client: self.client, topic: self.topic, queues: [self.queue, self.events], open };
        let spawned = std::thread::Builder::new().name("fencepost-destroy".into()).spawn(move || {
            if let Err(error) = affinity::restrict_to(&cpus) {
                log::debug!("a thread that destroys a Kafka client stays where it was made: {error}");
            }
            remains.destroy();
        });
        if let Err(error) = spawned {
            log::error!("no thread to destroy a Kafka client on, it is leaked: {error}");
        }
    }
}

//! One producer handle of librdkafka: created on the right CPUs, fed without copies, read by events, destroyed aside.

use crate::sink::{Busy, Fault, Outcome, Outgoing, Persisted, Report};
use crate::slab::{Arena, SlotId};
use crate::topology::{CpuSet, affinity};
use crate::units::PartitionId;
use rdkafka_sys as sys;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages of an event that are taken without an allocation: the most of a batch, unless `batch.num.messages` is higher.
const BATCH: usize = 10_000;

/// What makes a handle: every property librdkafka is given.
#[derive(Clone)]
pub struct HandleSettings {
    /// The topic to produce to.
    pub topic: String,
    /// All properties, ours last: name and value. Values may be secret and are never printed.
    pub properties: Vec<(String, String)>,
    /// Where librdkafka's threads shall run.
    pub cpus: CpuSet,
}

/// librdkafka refused to make a handle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// One property.
    #[error("kafka property {name}: {why}")]
    Property {
        /// Its name; the value may be secret.
        name: String,
        /// What librdkafka says.
        why: String,
    },
    /// The handle or the topic.
    #[error("the Kafka client could not be created: {0}")]
    Create(String),
    /// The thread that creates it.
    #[error("no thread for the Kafka client: {0}")]
    Thread(String),
}

/// Functions whose result is a code, read as a number: a broker may answer with a code that the bindings do not name, and
/// no Rust enum may hold it.
pub(super) mod by_number {
    use super::{c_char, c_int, sys};
    #[allow(clashing_extern_declarations)]
    unsafe extern "C" {
        pub fn rd_kafka_last_error() -> c_int;
        pub fn rd_kafka_event_error(event: *mut sys::rd_kafka_event_t) -> c_int;
        pub fn rd_kafka_fatal_error(client: *mut sys::rd_kafka_t, why: *mut c_char, why_len: usize) -> c_int;
        pub fn rd_kafka_error_code(error: *const sys::rd_kafka_error_t) -> c_int;
        pub fn rd_kafka_err2name(code: c_int) -> *const c_char;
        pub fn rd_kafka_err2str(code: c_int) -> *const c_char;
    }
}

/// Handles that are being destroyed and may still read frames. Relaxed: a number to look at, it guards no memory.
static BEING_DESTROYED: AtomicUsize = AtomicUsize::new(0);

/// How many given-up handles have not gone yet.
#[must_use]
pub fn being_destroyed() -> usize {
    BEING_DESTROYED.load(Ordering::Relaxed)
}

/// Chooses a record's partition among so many, from its key and the number it was handed over with.
pub(super) type Partitioner = unsafe extern "C" fn(
    topic: *const sys::rd_kafka_topic_t,
    key: *const c_void,
    key_len: usize,
    partitions: i32,
    of_topic: *mut c_void,
    opaque: *mut c_void,
) -> i32;

/// A live producer. Its frames lie in `arena`, which it keeps alive until librdkafka is done with them.
pub struct Handle {
    pub(super) client: NonNull<sys::rd_kafka_t>,
    pub(super) topic: NonNull<sys::rd_kafka_topic_t>,
    queue: NonNull<sys::rd_kafka_queue_t>,
    /// `None`: whoever uses the handle has librdkafka copy what it is given.
    arena: Option<Arc<Arena>>,
    /// Room for the messages of one event.
    messages: Vec<*const sys::rd_kafka_message_t>,
    /// Where a thread that destroys the handle may run.
    cpus: CpuSet,
    /// Whether statistics are passed on as news.
    pub reads_statistics: bool,
}

// WHY: a handle is made on a helper thread (for its CPUs) and used by the shard's.
// SAFETY: librdkafka's handles may be used from any thread; `Handle` has no thread-bound state and is not shared.
unsafe impl Send for Handle {}

/// Something librdkafka said that is not a delivery report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An error of the client; `is_fatal`: the handle is of no further use.
    Error {
        /// librdkafka's code.
        code: i32,
        /// Its words.
        text: String,
        /// Whether nothing can be produced any more.
        is_fatal: bool,
    },
    /// Statistics, as JSON.
    Statistics(String),
}

struct Event(NonNull<sys::rd_kafka_event_t>);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event came from `rd_kafka_queue_poll`, is owned by us and destroyed once.
        unsafe { sys::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

impl Handle {
    /// Makes a handle on a thread that is allowed `settings.cpus` only, since librdkafka's threads inherit that.
    ///
    /// # Errors
    /// [`HandleError`], with librdkafka's own words.
    pub fn create(settings: &HandleSettings, arena: Arc<Arena>) -> Result<Handle, HandleError> {
        Handle::create_with(settings, Some(arena), None)
    }

    /// As [`Handle::create`], for records that librdkafka copies and whose partition it asks for once it knows how many
    /// there are.
    ///
    /// # Errors
    /// [`HandleError`], with librdkafka's own words.
    pub(super) fn create_copying(settings: &HandleSettings, partitioner: Partitioner) -> Result<Handle, HandleError> {
        Handle::create_with(settings, None, Some(partitioner))
    }

    fn create_with(
        settings: &HandleSettings,
        arena: Option<Arc<Arena>>,
        partitioner: Option<Partitioner>,
    ) -> Result<Handle, HandleError> {
        let settings = settings.clone();
        made_on(&settings.cpus.clone(), move || Handle::create_here(&settings, arena, partitioner))
    }

    fn create_here(
        settings: &HandleSettings,
        arena: Option<Arc<Arena>>,
        partitioner: Option<Partitioner>,
    ) -> Result<Handle, HandleError> {
        let mut why = [0 as c_char; 512];
        let name = CString::new(settings.topic.as_str());
        let name = name.map_err(|_| HandleError::Create("the topic's name holds a NUL byte".into()))?;
        let conf = configuration(&settings.properties)?;
        let events = sys::RD_KAFKA_EVENT_DR | sys::RD_KAFKA_EVENT_ERROR | sys::RD_KAFKA_EVENT_STATS;
        // SAFETY: the configuration is ours.
        unsafe { sys::rd_kafka_conf_set_events(conf, events) }
        let producer = sys::rd_kafka_type_t::RD_KAFKA_PRODUCER;
        // SAFETY: on success the configuration belongs to the client; the place is as long as said.
        let client = unsafe { sys::rd_kafka_new(producer, conf, why.as_mut_ptr(), why.len()) };
        let Some(client) = NonNull::new(client) else {
            // SAFETY: on failure the configuration is still ours.
            unsafe { sys::rd_kafka_conf_destroy(conf) }
            return Err(HandleError::Create(text_of(&why)));
        };
        // A null configuration means the defaults set above.
        let topic_conf = partitioner.map_or(ptr::null_mut(), |partitioner| {
            // SAFETY: the client lives; the copy of its defaults is ours and never null. The function is one of this
            // crate's and keeps nothing.
            unsafe {
                let conf = sys::rd_kafka_default_topic_conf_dup(client.as_ptr());
                sys::rd_kafka_topic_conf_set_partitioner_cb(conf, Some(partitioner));
                conf
            }
        });
        // SAFETY: the client lives; the topic's configuration belongs to librdkafka from here on.
        let topic = unsafe { sys::rd_kafka_topic_new(client.as_ptr(), name.as_ptr(), topic_conf) };
        let Some(topic) = NonNull::new(topic) else {
            // SAFETY: the client is ours and nothing else uses it.
            unsafe { sys::rd_kafka_destroy(client.as_ptr()) }
            return Err(HandleError::Create(format!("topic {} was refused", settings.topic)));
        };
        // SAFETY: the client lives.
        let queue = unsafe { sys::rd_kafka_queue_get_main(client.as_ptr()) };
        let queue = NonNull::new(queue).expect("a client has a main queue");
        Ok(Handle {
            client,
            topic,
            queue,
            arena,
            messages: Vec::with_capacity(BATCH),
            cpus: settings.cpus.clone(),
            reads_statistics: false,
        })
    }

    /// Hands a frame over without copying it.
    ///
    /// # Errors
    /// [`Busy`]; nothing was taken.
    pub fn produce(&mut self, outgoing: &Outgoing) -> Result<(), Busy> {
        let frame = &outgoing.frame;
        let payload = frame.start().as_ptr().cast::<c_void>();
        assert!(usize::from(outgoing.key.0) + usize::from(outgoing.key.1) <= frame.len(), "the key is in the frame");
        assert!(self.arena.as_ref().is_some_and(|arena| arena.holds(frame)), "the frame is of the arena we keep alive");
        let key = payload.wrapping_byte_add(outgoing.key.0.into());
        let partition = outgoing.partition.0 as i32;
        let opaque = ptr::without_provenance_mut::<c_void>(frame.slot().0 as usize);
        match outgoing.record_time {
            None => {
                // WHY: the safe producer copies the frame, makes a C string of the topic for each record, and shows neither
                // the status of a failed one nor many reports at once; its rate beside this one's is `base` in
                // docs/numbers.md.
                // SAFETY: the topic lives. The frame is lent: its bytes stay valid and unchanged until its report is
                // taken back from this handle, and the arena is held by this handle until librdkafka is destroyed.
                // The key is inside the frame and is copied by librdkafka.
                let answer = unsafe {
                    sys::rd_kafka_produce(
                        self.topic.as_ptr(),
                        partition,
                        0,
                        payload,
                        frame.len(),
                        key,
                        outgoing.key.1.into(),
                        opaque,
                    )
                };
                if answer == 0 {
                    return Ok(());
                }
                // SAFETY: reads a thread-local of librdkafka.
                Err(busy_of(unsafe { by_number::rd_kafka_last_error() }))
            }
            Some(time) => {
                self.produce_at(time.0, partition, (payload, frame.len()), (key, outgoing.key.1.into()), opaque)
            }
        }
    }

    fn produce_at(
        &mut self,
        time_ms: i64,
        partition: i32,
        (payload, payload_len): (*mut c_void, usize),
        (key, key_len): (*mut c_void, usize),
        opaque: *mut c_void,
    ) -> Result<(), Busy> {
        use sys::rd_kafka_vtype_t as kind;
        let memory = |ptr, size| sys::rd_kafka_vu_s__bindgen_ty_1 {
            mem: sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size },
        };
        let arguments = [
            vu(kind::RD_KAFKA_VTYPE_RKT, sys::rd_kafka_vu_s__bindgen_ty_1 { rkt: self.topic.as_ptr() }),
            vu(kind::RD_KAFKA_VTYPE_PARTITION, sys::rd_kafka_vu_s__bindgen_ty_1 { i32_: partition }),
            vu(kind::RD_KAFKA_VTYPE_VALUE, memory(payload, payload_len)),
            vu(kind::RD_KAFKA_VTYPE_KEY, memory(key, key_len)),
            vu(kind::RD_KAFKA_VTYPE_MSGFLAGS, sys::rd_kafka_vu_s__bindgen_ty_1 { i: 0 }),
            vu(kind::RD_KAFKA_VTYPE_OPAQUE, sys::rd_kafka_vu_s__bindgen_ty_1 { ptr: opaque }),
            vu(kind::RD_KAFKA_VTYPE_TIMESTAMP, sys::rd_kafka_vu_s__bindgen_ty_1 { i64_: time_ms }),
        ];
        // SAFETY: as in `produce`; the arguments are as many as said and of the kinds they name.
        let error = unsafe { sys::rd_kafka_produceva(self.client.as_ptr(), arguments.as_ptr(), arguments.len()) };
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: the error is ours.
        let code = unsafe { by_number::rd_kafka_error_code(error) };
        // SAFETY: the error is ours and destroyed once.
        unsafe { sys::rd_kafka_error_destroy(error) }
        Err(busy_of(code))
    }

    /// Takes the delivery reports that are there, batch by batch until there were `most`, and whatever news. After each
    /// batch, `batches` is told its partition and how many it had. Never waits.
    pub fn poll(
        &mut self,
        most: usize,
        each: &mut impl FnMut(Report),
        batches: &mut dyn FnMut(PartitionId, usize),
        news: &mut VecDeque<News>,
    ) -> usize {
        let mut count = 0;
        while count < most {
            // SAFETY: the queue lives; a time-out of 0 does not wait.
            let event = unsafe { sys::rd_kafka_queue_poll(self.queue.as_ptr(), 0) };
            let Some(event) = NonNull::new(event).map(Event) else { break };
            // SAFETY: the event is ours.
            match unsafe { sys::rd_kafka_event_type(event.0.as_ptr()) } {
                sys::RD_KAFKA_EVENT_DR => count += self.take_batch(&event, each, batches),
                sys::RD_KAFKA_EVENT_ERROR => news.push_back(self.error_of(&event)),
                // Copied only while someone reads them: the shard's thread allocates nothing once warm.
                sys::RD_KAFKA_EVENT_STATS if self.reads_statistics => {
                    // SAFETY: a statistics event holds a C string that lives as long as the event.
                    let json = unsafe { CStr::from_ptr(sys::rd_kafka_event_stats(event.0.as_ptr())) };
                    news.push_back(News::Statistics(json.to_string_lossy().into_owned()));
                }
                _ => {}
            }
        }
        count
    }

    /// All messages of one event. Those of one partition shared a batch; one event may speak of several partitions when
    /// a queue is given up as a whole.
    fn take_batch(
        &mut self,
        event: &Event,
        each: &mut impl FnMut(Report),
        batches: &mut dyn FnMut(PartitionId, usize),
    ) -> usize {
        let mut messages = std::mem::take(&mut self.messages);
        // SAFETY: the event is ours and holds messages.
        let count = unsafe { sys::rd_kafka_event_message_count(event.0.as_ptr()) };
        messages.resize(count, ptr::null());
        // SAFETY: the event is ours; the array has room for as many as said.
        let taken = unsafe { sys::rd_kafka_event_message_array(event.0.as_ptr(), messages.as_mut_ptr(), count) };
        debug_assert_eq!(taken, count);
        for batch in messages[..taken].chunk_by(|one, next| partition_of(*one) == partition_of(*next)) {
            // A broker that names the bad records says of the others that they are not; then those named stand alone.
            let are_named = batch.iter().any(|message| code_of(*message) == NEIGHBOUR);
            let shared_by = if are_named { 1 } else { batch.len() as u32 };
            for (index, message) in batch.iter().enumerate() {
                each(self.report_of(*message, shared_by, index == 0));
            }
            batches(PartitionId(partition_of(batch[0]).cast_unsigned()), batch.len());
        }
        messages.clear();
        self.messages = messages;
        taken
    }

    fn report_of(&self, message: *const sys::rd_kafka_message_t, batch: u32, first: bool) -> Report {
        // SAFETY: the message belongs to the event at hand, which lives.
        let (opaque, offset) = unsafe { ((*message)._private, (*message).offset) };
        let code = code_of(message);
        let slot = SlotId(opaque.addr() as u32);
        if code == 0 {
            return Report { slot, outcome: Outcome::Acked { offset }, batch, first };
        }
        // SAFETY: as above.
        let status = unsafe { sys::rd_kafka_message_status(message) };
        let persisted = match status {
            sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED => Persisted::No,
            sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED => Persisted::Possibly,
            // In the log although its acknowledgement was lost: delivered, at an offset nobody told us.
            sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_PERSISTED => {
                return Report { slot, outcome: Outcome::Acked { offset: -1 }, batch, first };
            }
        };
        let fault = if self.fatal_error().is_some() { Fault::Purged } else { fault_of(code) };
        Report { slot, outcome: Outcome::Failed { fault, persisted }, batch, first }
    }

    fn error_of(&self, event: &Event) -> News {
        // SAFETY: the event is ours; the string lives as long as it.
        let (code, text) = unsafe {
            let code = by_number::rd_kafka_event_error(event.0.as_ptr());
            (code, CStr::from_ptr(sys::rd_kafka_event_error_string(event.0.as_ptr())).to_string_lossy().into_owned())
        };
        News::Error { code, text, is_fatal: self.fatal_error().is_some() }
    }

    /// The error after which nothing can be produced any more, if there was one.
    #[must_use]
    pub fn fatal_error(&self) -> Option<(i32, String)> {
        let mut why = [0 as c_char; 256];
        // SAFETY: the client lives; the place is as long as said.
        let code = unsafe { by_number::rd_kafka_fatal_error(self.client.as_ptr(), why.as_mut_ptr(), why.len()) };
        (code != 0).then(|| (code, text_of(&why)))
    }

    /// Takes back what was handed over and is not on its way: reports with [`Fault::Purged`] follow. With `in_flight`, also
    /// what is, whose fate nobody knows then. Does not wait.
    pub fn purge(&self, in_flight: bool) {
        let queue = sys::RD_KAFKA_PURGE_F_QUEUE | sys::RD_KAFKA_PURGE_F_NON_BLOCKING;
        let flags = if in_flight { queue | sys::RD_KAFKA_PURGE_F_INFLIGHT } else { queue };
        // SAFETY: the client lives.
        let answer = unsafe { sys::rd_kafka_purge(self.client.as_ptr(), flags) } as i32;
        if answer != 0 {
            log::warn!("the Kafka client did not purge its queue: {}", error_name(answer));
        }
    }

    /// Raises a fatal error as a broker's answer would: for tests of what follows.
    pub fn raise_fatal_error_for_test(&self) {
        let code = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        // SAFETY: the client lives; the text is copied.
        unsafe { sys::rd_kafka_test_fatal_error(self.client.as_ptr(), code, c"raised by a test".as_ptr()) };
    }
}

impl Drop for Handle {
    /// Destroying joins librdkafka's threads, which may take for ever: it happens on a thread of its own, which keeps the
    /// frames' memory alive meanwhile. If no thread can be had, memory and handle are leaked, and the log says so.
    fn drop(&mut self) {
        struct Remains {
            client: NonNull<sys::rd_kafka_t>,
            topic: NonNull<sys::rd_kafka_topic_t>,
            queue: NonNull<sys::rd_kafka_queue_t>,
            arena: Option<Arc<Arena>>,
        }
        // SAFETY: as for `Handle`.
        unsafe impl Send for Remains {}
        impl Remains {
            fn destroy(mut self) {
                // SAFETY: each of the three is ours, used by nobody else any more, and destroyed once, the client last.
                unsafe {
                    sys::rd_kafka_queue_destroy(self.queue.as_ptr());
                    sys::rd_kafka_topic_destroy(self.topic.as_ptr());
                    sys::rd_kafka_destroy(self.client.as_ptr());
                }
                drop(self.arena.take());
                BEING_DESTROYED.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.purge(true);
        let cpus = std::mem::take(&mut self.cpus);
        let remains = Remains { client: self.client, topic: self.topic, queue: self.queue, arena: self.arena.take() };
        // Should no thread be had, the closure is dropped unrun: the arena must not go with it.
        let kept = remains.arena.clone();
        BEING_DESTROYED.fetch_add(1, Ordering::Relaxed);
        let spawned = std::thread::Builder::new().name("fencepost-destroy".into()).spawn(move || {
            // The thread that drops a handle may be a shard's, pinned.
            if let Err(error) = affinity::restrict_to(&cpus) {
                log::debug!("a thread that destroys a Kafka client stays where it was made: {error}");
            }
            remains.destroy();
        });
        if let Err(error) = spawned {
            std::mem::forget(kept);
            log::error!("no thread to destroy a Kafka client on, it is leaked with its frames: {error}");
        }
    }
}

/// Has a client made on a thread that is allowed these CPUs only, since librdkafka's threads inherit that.
pub(super) fn made_on<T: Send + 'static>(
    cpus: &CpuSet,
    make: impl FnOnce() -> Result<T, HandleError> + Send + 'static,
) -> Result<T, HandleError> {
    let cpus = cpus.clone();
    let maker = std::thread::Builder::new().name("fencepost-client".into()).spawn(move || {
        if let Err(error) = affinity::restrict_to(&cpus) {
            log::warn!("the Kafka client's threads are not kept on CPUs {cpus}: {error}");
        }
        make()
    });
    let maker = maker.map_err(|error| HandleError::Thread(error.to_string()))?;
    maker.join().map_err(|_| HandleError::Thread("it panicked".into()))?
}

/// A configuration with these properties, whose log lines go to `log`. It is the caller's, to give to a client or to destroy.
pub(super) fn configuration(properties: &[(String, String)]) -> Result<*mut sys::rd_kafka_conf_t, HandleError> {
    let mut why = [0 as c_char; 512];
    // SAFETY: no arguments; never returns null.
    let conf = unsafe { sys::rd_kafka_conf_new() };
    for (name, value) in properties {
        let set = |place: &mut [c_char; 512]| {
            let name = CString::new(name.as_str()).ok()?;
            let value = CString::new(value.as_str()).ok()?;
            // SAFETY: both strings end in NUL and outlive the call; the place is as long as said.
            Some(unsafe {
                sys::rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), place.as_mut_ptr(), place.len())
            })
        };
        if set(&mut why) != Some(sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK) {
            // SAFETY: the configuration is still ours.
            unsafe { sys::rd_kafka_conf_destroy(conf) }
            let said = text_of(&why);
            let why = if said.is_empty() { "contains a NUL byte".into() } else { said };
            return Err(HandleError::Property { name: name.clone(), why });
        }
    }
    // SAFETY: the callback is a function of this file and keeps nothing.
    unsafe { sys::rd_kafka_conf_set_log_cb(conf, Some(log_line)) }
    Ok(conf)
}

/// What the broker says of a record whose batch was refused for another one.
const NEIGHBOUR: i32 = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD as i32;

/// A message's code, as a number.
pub(super) fn code_of(message: *const sys::rd_kafka_message_t) -> i32 {
    // SAFETY: called for messages that live; the field is an integer for C.
    unsafe { (&raw const (*message).err).cast::<i32>().read() }
}

pub(super) fn partition_of(message: *const sys::rd_kafka_message_t) -> i32 {
    // SAFETY: called for messages that live.
    unsafe { (*message).partition }
}

pub(super) fn vu(vtype: sys::rd_kafka_vtype_t, u: sys::rd_kafka_vu_s__bindgen_ty_1) -> sys::rd_kafka_vu_t {
    sys::rd_kafka_vu_t { vtype, u }
}

fn busy_of(code: i32) -> Busy {
    use sys::rd_kafka_resp_err_t as error;
    match code {
        code if code == error::RD_KAFKA_RESP_ERR__QUEUE_FULL as i32 => Busy::QueueFull,
        code if code == error::RD_KAFKA_RESP_ERR__FATAL as i32 => Busy::NotReady,
        code => Busy::Fault(fault_of(code)),
    }
}

/// Which kind of refusal a code is. Whatever is not about the record itself may be tried again.
fn fault_of(code: i32) -> Fault {
    use sys::rd_kafka_resp_err_t as error;
    let purged = [error::RD_KAFKA_RESP_ERR__PURGE_QUEUE, error::RD_KAFKA_RESP_ERR__PURGE_INFLIGHT];
    let own = [
        error::RD_KAFKA_RESP_ERR_INVALID_MSG,
        error::RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE,
        error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        error::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
        error::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
        error::RD_KAFKA_RESP_ERR_INVALID_RECORD,
    ];
    let is_one_of = |list: &[error]| list.iter().any(|known| *known as i32 == code);
    if is_one_of(&purged) {
        Fault::Purged
    } else if code == NEIGHBOUR {
        Fault::Neighbour
    } else if is_one_of(&own) {
        Fault::Frame(code)
    } else {
        Fault::Partition(code)
    }
}

/// librdkafka's name of a code.
#[must_use]
pub fn error_name(code: i32) -> String {
    // SAFETY: the function takes any number and returns a static C string.
    let name = unsafe { CStr::from_ptr(by_number::rd_kafka_err2name(code)) };
    name.to_string_lossy().into_owned()
}

/// librdkafka's description of a code.
pub(super) fn error_text(code: i32) -> String {
    // SAFETY: the function takes any number and returns a C string that is static, or this thread's until its next call.
    let text = unsafe { CStr::from_ptr(by_number::rd_kafka_err2str(code)) };
    text.to_string_lossy().into_owned()
}

/// The version of librdkafka that is linked: number as `0xMMmmrrxx`.
#[must_use]
pub fn version() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { sys::rd_kafka_version() as u32 }
}

pub(super) fn text_of(place: &[c_char]) -> String {
    let bytes: Vec<u8> = place.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// librdkafka's own log lines, passed on to `log`.
unsafe extern "C" fn log_line(
    _client: *const sys::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    text: *const c_char,
) {
    // SAFETY: librdkafka passes two C strings that live during the call.
    let (facility, text) = unsafe { (CStr::from_ptr(facility), CStr::from_ptr(text)) };
    let level = match level {
        0..=3 => log::Level::Warn,
        4..=5 => log::Level::Info,
        _ => log::Level::Debug,
    };
    log::log!(target: "librdkafka", level, "{} {}", facility.to_string_lossy(), text.to_string_lossy());
}

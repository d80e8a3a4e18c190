//! The topic of dead letters: a producer of its own, idempotent, whose records librdkafka copies. Order is not promised
//! and a repeat does no harm, so a record expires after 30 s and is handed back, to be tried again or written to the disk.
//!
//! A letter goes to the partition of its number; where the topic has fewer, to the number modulo their count. A record
//! that the broker refuses takes its batch with it: then each is sent alone, so that only the one to blame is refused.
//! A record time of 0 cannot be told from "now": that is the client's interface.

use super::handle::{Handle, HandleSettings, News, by_number, error_name, error_text, vu};
use super::{HandleError, LOG_INTERVAL, PURGE_INTERVAL, REMAKE_PAUSE, properties};
use crate::clock::{Clock, SystemClock};
use crate::config::KafkaSettings;
use crate::letter::{Letter, LetterSink, PostBusy, Posted};
use crate::sink::{Fault, Outcome};
use crate::units::Nanos;
use rdkafka_sys as sys;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};
use std::thread::JoinHandle;

/// Bits of a record's number that say its place in the table of tokens; those above are its partition.
const PLACE_BITS: u32 = 13;
/// Letters that may be under way.
const PLACES: usize = 1 << PLACE_BITS;
/// Bytes of them, in KiB.
const QUEUE_KIB: &str = "32768";
/// The client asks for the partition when it knows how many there are.
const ANY_PARTITION: i32 = -1;
/// What a failed handle gets to hand back what it holds.
const COLLECT_LIMIT: Nanos = Nanos::from_millis(2_000);

const _: () = assert!(100_000 << PLACE_BITS <= u32::MAX as u64, "a place and a partition fit 32 bits");

/// What librdkafka is told for dead letters: as for triggers, but for what rests on order.
#[must_use]
pub fn letter_properties(settings: &KafkaSettings) -> Vec<(String, String)> {
    let mut all = properties(settings, 1);
    let ours = [
        ("message.timeout.ms", "30000"),
        // A topic that is missing is said to be, and asked for again with the next letter.
        ("topic.metadata.propagation.max.ms", "5000"),
        ("queue.buffering.max.kbytes", QUEUE_KIB),
        // Beyond it the client refuses; what the topic takes is the broker's to say.
        ("message.max.bytes", "16777216"),
        // What one bad record can drag along.
        ("batch.num.messages", "100"),
        // Else a record without a key would be put anywhere.
        ("sticky.partitioning.linger.ms", "0"),
        ("statistics.interval.ms", "0"),
    ];
    all.extend(ours.map(|(name, value)| (name.to_string(), value.to_string())));
    all
}

/// The topic of dead letters.
pub struct KafkaLetters {
    settings: HandleSettings,
    handle: Handle,
    /// The tokens of what is under way, by the place in each record's number.
    tokens: Box<[Option<u64>]>,
    free: Vec<u32>,
    /// Taken and refused at once, not reported yet.
    early: VecDeque<(u64, i32)>,
    /// Letters to send alone, since one of a batch was refused.
    alone: usize,
    given_up: Option<GivenUp>,
    news: VecDeque<News>,
    errors: u64,
    logged: (i32, Nanos),
    clock: SystemClock,
}

/// A handle on its way out.
struct GivenUp {
    /// Until then it may report what it holds.
    until: Nanos,
    purge_at: Nanos,
    maker: Option<JoinHandle<Result<Handle, HandleError>>>,
    retry_at: Nanos,
}

impl KafkaLetters {
    /// A producer for the topic named in the settings, whose properties are [`letter_properties`].
    ///
    /// # Errors
    /// What librdkafka says to the settings.
    pub fn new(settings: HandleSettings) -> Result<KafkaLetters, HandleError> {
        let handle = Handle::create_copying(&settings, partition_of_letter)?;
        Ok(KafkaLetters {
            settings,
            handle,
            tokens: vec![None; PLACES].into(),
            free: (0..PLACES as u32).rev().collect(),
            early: VecDeque::with_capacity(PLACES),
            alone: 0,
            given_up: None,
            news: VecDeque::new(),
            errors: 0,
            logged: (0, Nanos(0)),
            clock: SystemClock::new(),
        })
    }

    /// Letters at the client and not reported.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        PLACES - self.free.len()
    }

    /// Errors the client raised that are not about one letter.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// The handle, for a test that breaks it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    fn read_news(&mut self) {
        while let Some(news) = self.news.pop_front() {
            let News::Error { code, text, is_fatal } = news else { continue };
            self.errors += 1;
            let now = self.clock.mono();
            if self.logged.0 != code || now.since(self.logged.1) >= LOG_INTERVAL {
                self.logged = (code, now);
                log::warn!("Kafka client of the dead letters: {} ({})", text, error_name(code));
            }
            if is_fatal {
                self.give_up();
            }
        }
    }

    fn give_up(&mut self) {
        if self.given_up.is_some() {
            return;
        }
        let now = self.clock.mono();
        log::warn!("the producer of the dead letters failed for good and is replaced; it held {}", self.outstanding());
        self.given_up = Some(GivenUp { until: now + COLLECT_LIMIT, purge_at: now, maker: None, retry_at: now });
    }

    /// Puts a new handle in place once the old one holds nothing, or has had its time: what it still holds is handed back
    /// then, and may be in the topic all the same.
    fn try_replace(&mut self, each: &mut dyn FnMut(u64, Posted<'_>)) {
        let outstanding = self.outstanding();
        let now = self.clock.mono();
        let Some(given_up) = &mut self.given_up else { return };
        if given_up.maker.is_none() && now >= given_up.retry_at {
            given_up.retry_at = now + REMAKE_PAUSE;
            let settings = self.settings.clone();
            let make = move || Handle::create_copying(&settings, partition_of_letter);
            let started = std::thread::Builder::new().name("fencepost-maker".into()).spawn(make);
            given_up.maker =
                started.inspect_err(|error| log::error!("no thread to make a Kafka producer on: {error}")).ok();
        }
        if outstanding > 0 && now < given_up.until {
            if now >= given_up.purge_at {
                given_up.purge_at = now + PURGE_INTERVAL;
                self.handle.purge(true);
            }
            return;
        }
        let Some(maker) = given_up.maker.take_if(|maker| maker.is_finished()) else { return };
        match maker.join() {
            Ok(Ok(handle)) => self.handle = handle,
            Ok(Err(error)) => {
                return log::error!("a new producer for dead letters could not be made, trying again: {error}");
            }
            Err(_) => return log::error!("the thread that makes a producer for dead letters panicked, trying again"),
        }
        self.given_up = None;
        for (place, token) in self.tokens.iter_mut().enumerate() {
            if let Some(token) = token.take() {
                self.free.push(place as u32);
                each(token, Posted::Retry { text: "the producer was replaced" });
            }
        }
    }

    /// Hands a copy to librdkafka.
    fn produce(&self, place: u32, letter: &Letter<'_>) -> Result<(), i32> {
        use sys::rd_kafka_vtype_t as kind;
        let headers = HeaderList::of(letter)?;
        let memory = |bytes: Option<&[u8]>| {
            let (ptr, size) = bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
            sys::rd_kafka_vu_s__bindgen_ty_1 {
                mem: sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: ptr.cast_mut().cast(), size },
            }
        };
        let opaque = ptr::without_provenance_mut((letter.partition.0 << PLACE_BITS | place) as usize);
        let time_ms = letter.record_time.map_or(0, |time| time.0);
        let arguments = [
            vu(kind::RD_KAFKA_VTYPE_RKT, sys::rd_kafka_vu_s__bindgen_ty_1 { rkt: self.handle.topic.as_ptr() }),
            vu(kind::RD_KAFKA_VTYPE_PARTITION, sys::rd_kafka_vu_s__bindgen_ty_1 { i32_: ANY_PARTITION }),
            vu(kind::RD_KAFKA_VTYPE_VALUE, memory(letter.value)),
            vu(kind::RD_KAFKA_VTYPE_KEY, memory(letter.key)),
            vu(kind::RD_KAFKA_VTYPE_MSGFLAGS, sys::rd_kafka_vu_s__bindgen_ty_1 { i: sys::RD_KAFKA_MSG_F_COPY }),
            vu(kind::RD_KAFKA_VTYPE_OPAQUE, sys::rd_kafka_vu_s__bindgen_ty_1 { ptr: opaque }),
            vu(kind::RD_KAFKA_VTYPE_TIMESTAMP, sys::rd_kafka_vu_s__bindgen_ty_1 { i64_: time_ms }),
            vu(kind::RD_KAFKA_VTYPE_HEADERS, sys::rd_kafka_vu_s__bindgen_ty_1 { headers: headers.0.as_ptr() }),
        ];
        // WHY: the safe producer cannot show a report's batch, nor choose a partition whose count it does not know yet.
        // SAFETY: client and topic live; the arguments are as many as said and of the kinds they name. Value and key live
        // during the call, which copies them. The headers are ours.
        let error =
            unsafe { sys::rd_kafka_produceva(self.handle.client.as_ptr(), arguments.as_ptr(), arguments.len()) };
        if error.is_null() {
            // They belong to the record now.
            std::mem::forget(headers);
            return Ok(());
        }
        // SAFETY: the error is ours.
        let code = unsafe { by_number::rd_kafka_error_code(error) };
        // SAFETY: the error is ours and destroyed once.
        unsafe { sys::rd_kafka_error_destroy(error) }
        Err(code)
    }
}

impl LetterSink for KafkaLetters {
    fn post(&mut self, token: u64, letter: &Letter<'_>) -> Result<(), PostBusy> {
        if self.given_up.is_some() {
            return Err(PostBusy::NotReady);
        }
        if self.alone > 0 && self.outstanding() > 0 {
            return Err(PostBusy::QueueFull);
        }
        let Some(&place) = self.free.last() else { return Err(PostBusy::QueueFull) };
        if self.early.len() == PLACES {
            return Err(PostBusy::QueueFull);
        }
        match self.produce(place, letter) {
            Ok(()) => {
                self.free.pop();
                self.tokens[place as usize] = Some(token);
                self.alone = self.alone.saturating_sub(1);
            }
            Err(code) if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__QUEUE_FULL as i32 => {
                return Err(PostBusy::QueueFull);
            }
            Err(code) if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__FATAL as i32 => {
                self.give_up();
                return Err(PostBusy::NotReady);
            }
            Err(code) => self.early.push_back((token, code)),
        }
        Ok(())
    }

    fn collect(&mut self, each: &mut dyn FnMut(u64, Posted<'_>)) {
        while let Some((token, code)) = self.early.pop_front() {
            let text = error_text(code);
            match is_for_good(code) {
                true => each(token, Posted::Refused { code, text: &text }),
                false => each(token, Posted::Retry { text: &text }),
            }
        }
        let KafkaLetters { handle, tokens, free, alone, news, .. } = self;
        handle.poll(
            PLACES,
            &mut |report| {
                let place = report.slot.0 & (PLACES as u32 - 1);
                let token = tokens[place as usize].take().expect("librdkafka reports what is under way, once");
                free.push(place);
                let fault = match report.outcome {
                    Outcome::Acked { .. } => return each(token, Posted::Acked),
                    Outcome::Failed { fault, .. } => fault,
                };
                match fault {
                    Fault::Frame(code) | Fault::Partition(code) if is_for_good(code) && report.batch == 1 => {
                        each(token, Posted::Refused { code, text: &error_text(code) });
                    }
                    Fault::Frame(code) | Fault::Partition(code) => {
                        // Twice as many: letters that were not in the batch may be first.
                        *alone += if is_for_good(code) { 2 } else { 0 };
                        each(token, Posted::Retry { text: &error_text(code) });
                    }
                    Fault::Neighbour => each(token, Posted::Retry { text: "its batch was refused for another record" }),
                    Fault::Purged => each(token, Posted::Retry { text: "taken back from a producer that failed" }),
                }
            },
            &mut |_, _| {},
            news,
        );
        self.read_news();
        self.try_replace(each);
    }
}

/// Whether the topic will never take the record as it is.
fn is_for_good(code: i32) -> bool {
    use sys::rd_kafka_resp_err_t as error;
    let for_good = [
        error::RD_KAFKA_RESP_ERR_INVALID_MSG,
        error::RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE,
        error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        error::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
        error::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
        error::RD_KAFKA_RESP_ERR_INVALID_RECORD,
        error::RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT,
        error::RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
        error::RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
    ];
    for_good.iter().any(|known| *known as i32 == code)
}

/// The partition a letter asks for in its number, among those the topic has.
unsafe extern "C" fn partition_of_letter(
    _topic: *const sys::rd_kafka_topic_t,
    _key: *const c_void,
    _key_len: usize,
    partitions: i32,
    _of_topic: *mut c_void,
    opaque: *mut c_void,
) -> i32 {
    let wanted = opaque.addr() as u32 >> PLACE_BITS;
    (wanted % partitions.max(1) as u32) as i32
}

/// Headers that are not librdkafka's yet.
struct HeaderList(NonNull<sys::rd_kafka_headers_t>);

impl HeaderList {
    /// The record's own, then those of the notes.
    fn of(letter: &Letter<'_>) -> Result<HeaderList, i32> {
        let count = letter.headers.len() + crate::letter::notes::header::ALL.len();
        // SAFETY: takes any number; never returns null.
        let list = NonNull::new(unsafe { sys::rd_kafka_headers_new(count) }).expect("memory for headers");
        let list = HeaderList(list);
        let mut outcome = Ok(());
        let mut add = |name: &[u8], value: Option<&[u8]>| {
            let (start, len) = value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
            let (name, name_len) = (name.as_ptr().cast::<c_char>(), name.len() as isize);
            // SAFETY: the list is ours; name and value live during the call, which copies them, and are as long as said.
            let code = unsafe {
                sys::rd_kafka_header_add(list.0.as_ptr(), name, name_len, start.cast::<c_void>(), len as isize)
            } as i32;
            if code != 0 {
                outcome = Err(code);
            }
        };
        letter.headers.iter().for_each(|header| add(header.name, header.value));
        letter.notes.each_header(|name, value| add(name.as_bytes(), Some(value)));
        outcome.map(|()| list)
    }
}

impl Drop for HeaderList {
    fn drop(&mut self) {
        // SAFETY: the list is ours, no record took it, and it is destroyed once.
        unsafe { sys::rd_kafka_headers_destroy(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_keeps_its_partition_where_there_are_as_many() {
        let place = |partition: u32, place: u32, partitions: i32| {
            let opaque = ptr::without_provenance_mut((partition << PLACE_BITS | place) as usize);
            // SAFETY: the function looks at two numbers.
            unsafe { partition_of_letter(ptr::null(), ptr::null(), 0, partitions, ptr::null_mut(), opaque) }
        };
        assert_eq!([0, 5, 23].map(|wanted| place(wanted, 8_191, 24)), [0, 5, 23]);
        assert_eq!([0, 5, 23].map(|wanted| place(wanted, 1, 4)), [0, 1, 3]);
        assert_eq!(place(99_999, 8_191, 100_000), 99_999);
        assert_eq!(place(7, 0, 0), 0);
    }

    #[test]
    fn what_may_work_later_is_not_for_good() {
        use sys::rd_kafka_resp_err_t as error;
        assert!(is_for_good(error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE as i32));
        assert!(is_for_good(error::RD_KAFKA_RESP_ERR_POLICY_VIOLATION as i32));
        for later in [
            error::RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,
            error::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
            error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        ] {
            assert!(!is_for_good(later as i32), "{later:?}");
        }
    }
}

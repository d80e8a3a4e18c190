//! What the account may do with a topic, in the broker's own words: a description of the topic lists the operations that are
//! granted. Nothing is written to find out, and no right is needed but DESCRIBE, which every other right brings along.
//!
//! A broker with an authorizer answers for the account that asks; one without allows everything, and says so. One older than
//! Kafka 2.3 does not say: that is an answer too, and not "no". Costs one request, with a connection that is there already.

use super::UNAUTHORIZED;
use super::handle::{by_number, error_name};
use rdkafka::client::{Client, ClientContext};
use rdkafka_sys as sys;
use std::ffi::{CString, c_char, c_int};
use std::ptr::NonNull;
use std::time::Duration;

/// The protocol's number of the operation WRITE.
const WRITE: u32 = sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE as u32;
/// How much later than the request itself the answer is given up, so that the request's own words arrive.
const WORDS_LIMIT: Duration = Duration::from_millis(500);

/// Whether the account may write to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writing {
    /// It may.
    Granted,
    /// It may not.
    Denied,
    /// The broker does not say; with the reason, as far as it is known.
    NotSaid(String),
}

/// What came back: the granted operations by their numbers, or `None` where the broker left them out, or a code.
type Answer = Result<Option<Vec<u32>>, i32>;

/// Decides what an answer says of WRITE.
fn judge(answer: Answer) -> Writing {
    match answer {
        Ok(Some(granted)) if granted.contains(&WRITE) => Writing::Granted,
        // Who may write may describe too, so whoever may not even do that may not write.
        Ok(Some(_)) | Err(UNAUTHORIZED) => Writing::Denied,
        Ok(None) => Writing::NotSaid("the broker lists no rights: it is older than Kafka 2.3, or not Kafka".into()),
        Err(code) => Writing::NotSaid(error_name(code)),
    }
}

/// Asks whether the account of this client may write to the topic. Blocks, for `limit` and half a second at the most.
pub(super) fn may_write<C: ClientContext>(client: &Client<C>, topic: &str, limit: Duration) -> Writing {
    match CString::new(topic) {
        Ok(topic) => judge(ask(client, &topic, limit)),
        Err(_) => Writing::NotSaid("the topic's name holds a NUL byte".into()),
    }
}

/// Whom a broker takes the client for, where its properties tell: an administrator has to name that in a rule. `None`: the
/// broker makes the name of a certificate or a ticket.
#[must_use]
pub fn principal(properties: &[(String, String)]) -> Option<String> {
    // librdkafka takes the last of two.
    let value = |names: &[&str]| {
        let found = properties.iter().rev().find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.as_str())
    };
    let protocol = value(&["security.protocol"]).unwrap_or("plaintext").to_ascii_lowercase();
    if protocol.starts_with("sasl") {
        let mechanism = value(&["sasl.mechanism", "sasl.mechanisms"]).unwrap_or("GSSAPI").to_ascii_uppercase();
        let has_name = mechanism == "PLAIN" || mechanism.starts_with("SCRAM-");
        return value(&["sasl.username"]).filter(|_| has_name).map(|name| format!("User:{name}"));
    }
    let has_certificate = ["ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"];
    if protocol == "ssl" && value(&has_certificate).is_some() {
        return None;
    }
    Some("User:ANONYMOUS".into())
}

/// A queue for one answer.
struct Queue(NonNull<sys::rd_kafka_queue_t>);

impl Drop for Queue {
    fn drop(&mut self) {
        // WHY: a question that is given up must not leave its queue behind.
        // SAFETY: the queue is ours and destroyed once; an answer that comes later is dropped by librdkafka.
        unsafe { sys::rd_kafka_queue_destroy(self.0.as_ptr()) }
    }
}

/// The answer, which owns all that is read from it.
struct Event(NonNull<sys::rd_kafka_event_t>);

impl Drop for Event {
    fn drop(&mut self) {
        // WHY: what is read from the event is copied, so it goes when it was read.
        // SAFETY: the event came from `rd_kafka_queue_poll`, is owned by us and destroyed once.
        unsafe { sys::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

/// One DescribeTopics, with what is authorized. The wrapper has no call for it.
fn ask<C: ClientContext>(client: &Client<C>, topic: &std::ffi::CStr, limit: Duration) -> Answer {
    let limit_ms = limit.as_millis().clamp(1, 60_000) as c_int;
    let native = client.native_ptr();
    let mut why = [0 as c_char; 256];
    let mut names = [topic.as_ptr()];
    // WHY: the answer of this question alone, with a limit of its own; the client's main queue belongs to the wrapper.
    // SAFETY: `client` is borrowed, so its handle lives during this call, and the queue holds on to it longer by itself.
    let queue = Queue(NonNull::new(unsafe { sys::rd_kafka_queue_new(native) }).expect("a queue can be made"));
    // WHY: only DescribeTopics tells the rights of the one who asks; reading the rules themselves needs a right of its own.
    // SAFETY: client, name and queue live during the call, which copies the list and the options; these two are ours and
    // destroyed once. An error is ours too, and destroying none is no fault. Without a limit, which is refused only out of
    // its bounds, librdkafka has its own; without the second option the answer lists nothing, which is told apart.
    unsafe {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options = sys::rd_kafka_AdminOptions_new(native, operation);
        sys::rd_kafka_AdminOptions_set_request_timeout(options, limit_ms, why.as_mut_ptr(), why.len());
        let refused = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        sys::rd_kafka_error_destroy(refused);
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        sys::rd_kafka_DescribeTopics(native, topics, options, queue.0.as_ptr());
        sys::rd_kafka_TopicCollection_destroy(topics);
        sys::rd_kafka_AdminOptions_destroy(options);
    }
    let words_ms = WORDS_LIMIT.as_millis() as c_int;
    // WHY: the one way to wait for the answer.
    // SAFETY: the queue lives. What comes out of it is ours.
    let event = unsafe { sys::rd_kafka_queue_poll(queue.0.as_ptr(), limit_ms + words_ms) };
    let Some(event) = NonNull::new(event).map(Event) else {
        return Err(sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT as i32);
    };
    // WHY: read as a number, since a broker's code may be one that the bindings do not name.
    // SAFETY: the event is ours and lives.
    let code = unsafe { by_number::rd_kafka_event_error(event.0.as_ptr()) };
    // WHY: the result's own type is how librdkafka tells it from other events.
    // SAFETY: as above; null if it is another event.
    let result = unsafe { sys::rd_kafka_event_DescribeTopics_result(event.0.as_ptr()) };
    if code != 0 || result.is_null() {
        return Err(code);
    }
    let mut count = 0;
    // WHY: the descriptions are in no other form.
    // SAFETY: the result lives as long as the event; the array has as many elements as it says.
    let described = unsafe {
        let all = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if count == 0 { None } else { NonNull::new((*all).cast_mut()) }
    };
    // One topic was asked for.
    described.map_or(Ok(None), granted)
}

/// What a description says. It lives as long as the event, which the caller holds.
fn granted(topic: NonNull<sys::rd_kafka_TopicDescription_t>) -> Answer {
    // WHY: the topic has an error of its own, beside the answer's.
    // SAFETY: the caller holds the event. The error is null, or lives as long as the description; its code is a number.
    let code = unsafe {
        let error = sys::rd_kafka_TopicDescription_error(topic.as_ptr());
        if error.is_null() { 0 } else { by_number::rd_kafka_error_code(error) }
    };
    if code != 0 {
        return Err(code);
    }
    let mut count = 0;
    // WHY: read as numbers, since another librdkafka may know operations that the bindings do not name.
    // SAFETY: the caller holds the event. The array is null if the broker did not say, else as long as said, of C enums,
    // which are 32 bits wide; an empty one is not looked into.
    let list = unsafe { sys::rd_kafka_TopicDescription_authorized_operations(topic.as_ptr(), &raw mut count) };
    if list.is_null() {
        return Ok(None);
    }
    // SAFETY: as above.
    Ok(Some((0..count).map(|index| unsafe { list.cast::<u32>().add(index).read() }).collect()))
}

const _: () = assert!(size_of::<sys::rd_kafka_AclOperation_t>() == size_of::<u32>(), "operations are read as numbers");

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ as u32;
    const DESCRIBE: u32 = sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_DESCRIBE as u32;

    #[test]
    fn write_is_granted_only_where_it_is_listed() {
        assert_eq!(judge(Ok(Some(vec![READ, WRITE, DESCRIBE]))), Writing::Granted);
        assert_eq!(judge(Ok(Some(vec![WRITE]))), Writing::Granted);
        assert_eq!(judge(Ok(Some(vec![READ, DESCRIBE]))), Writing::Denied);
        assert_eq!(judge(Ok(Some(Vec::new()))), Writing::Denied);
        // An operation of a later Kafka is no WRITE.
        assert_eq!(judge(Ok(Some(vec![DESCRIBE, 4_711]))), Writing::Denied);
    }

    #[test]
    fn who_may_not_describe_may_not_write_and_silence_or_another_error_is_no_answer() {
        assert_eq!(judge(Err(UNAUTHORIZED)), Writing::Denied);
        let said = |answer| match judge(answer) {
            Writing::NotSaid(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(said(Ok(None)).contains("lists no rights"));
        let timed_out = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT as i32;
        assert_eq!(said(Err(timed_out)), "_TIMED_OUT");
        let old = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE as i32;
        assert_eq!(said(Err(old)), "_UNSUPPORTED_FEATURE");
    }

    #[test]
    fn the_principal_is_named_where_the_properties_tell_it() {
        let of = |properties: &[(&str, &str)]| {
            principal(&properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>())
        };
        let anonymous = Some("User:ANONYMOUS".to_string());
        assert_eq!(of(&[]), anonymous);
        assert_eq!(of(&[("security.protocol", "SSL")]), anonymous);
        assert_eq!(of(&[("security.protocol", "ssl"), ("ssl.certificate.location", "/c.pem")]), None);
        let alice = Some("User:alice".to_string());
        let sasl =
            |mechanism| [("security.protocol", "SASL_SSL"), ("sasl.mechanism", mechanism), ("sasl.username", "alice")];
        assert_eq!(of(&sasl("PLAIN")), alice);
        assert_eq!(of(&sasl("scram-sha-512")), alice);
        assert_eq!(of(&sasl("OAUTHBEARER")), None, "the token names it");
        assert_eq!(of(&[("security.protocol", "sasl_ssl")]), None, "Kerberos, whose name the broker makes");
        assert_eq!(of(&[("sasl.username", "alice")]), anonymous, "without SASL a name is not sent");
    }
}

//! librdkafka's mock cluster, by its C functions: the wrapper's type lacks delays per request and a count of requests.

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka_sys as sys;
use std::ffi::{CStr, CString};

pub use sys::rd_kafka_resp_err_t as Answer;

/// Kafka's number of a Produce request.
const PRODUCE: i16 = 0;

/// A cluster in this process. Brokers are numbered from 1.
pub struct Mock {
    cluster: *mut sys::rd_kafka_mock_cluster_t,
    /// What the cluster runs on.
    client: BaseProducer,
}

// SAFETY: the mock cluster's functions hand each order to its own thread, or take its lock.
unsafe impl Send for Mock {}
// SAFETY: as above.
unsafe impl Sync for Mock {}

impl Mock {
    pub fn new(brokers: u32) -> Mock {
        // Without addresses: this client only lends its main thread, and connects to nobody.
        let client: BaseProducer = ClientConfig::new().set("log_level", "3").create().expect("a client can be made");
        // SAFETY: the client lives as long as the cluster.
        let cluster = unsafe { sys::rd_kafka_mock_cluster_new(client.client().native_ptr(), brokers as i32) };
        assert!(!cluster.is_null(), "a mock cluster can be made");
        Mock { cluster, client }
    }

    /// A cluster with one topic.
    pub fn with_topic(brokers: u32, topic: &str, partitions: u32) -> Mock {
        let mock = Mock::new(brokers);
        mock.create_topic(topic, partitions);
        mock
    }

    pub fn bootstrap(&self) -> String {
        // SAFETY: the cluster lives, and with it the string.
        let text = unsafe { CStr::from_ptr(sys::rd_kafka_mock_cluster_bootstraps(self.cluster)) };
        text.to_str().expect("addresses are ASCII").to_owned()
    }

    pub fn create_topic(&self, topic: &str, partitions: u32) {
        let name = CString::new(topic).expect("a name without NUL");
        // SAFETY: the cluster lives; the name is copied.
        let answer = unsafe { sys::rd_kafka_mock_topic_create(self.cluster, name.as_ptr(), partitions as i32, 1) };
        assert_eq!(answer, Answer::RD_KAFKA_RESP_ERR_NO_ERROR, "creating {topic}");
    }

    pub fn set_leader(&self, topic: &str, partition: u32, broker: i32) {
        let name = CString::new(topic).expect("a name without NUL");
        // SAFETY: the cluster lives; the name is copied.
        let answer =
            unsafe { sys::rd_kafka_mock_partition_set_leader(self.cluster, name.as_ptr(), partition as i32, broker) };
        assert_eq!(answer, Answer::RD_KAFKA_RESP_ERR_NO_ERROR, "leader of {topic} {partition}");
    }

    pub fn set_down(&self, broker: i32) {
        // SAFETY: the cluster lives.
        let answer = unsafe { sys::rd_kafka_mock_broker_set_down(self.cluster, broker) };
        assert_eq!(answer, Answer::RD_KAFKA_RESP_ERR_NO_ERROR, "broker {broker} down");
    }

    pub fn set_up(&self, broker: i32) {
        // SAFETY: the cluster lives.
        let answer = unsafe { sys::rd_kafka_mock_broker_set_up(self.cluster, broker) };
        assert_eq!(answer, Answer::RD_KAFKA_RESP_ERR_NO_ERROR, "broker {broker} up");
    }

    /// Every answer of the broker comes this much later.
    pub fn set_round_trip_ms(&self, broker: i32, ms: i32) {
        // SAFETY: the cluster lives.
        let answer = unsafe { sys::rd_kafka_mock_broker_set_rtt(self.cluster, broker, ms) };
        assert_eq!(answer, Answer::RD_KAFKA_RESP_ERR_NO_ERROR, "round trip of broker {broker}");
    }

    /// The answers to the next Produce requests, whichever broker gets them. Nothing is written but where the answer is
    /// "no error".
    pub fn answer_produce(&self, answers: &[Answer]) {
        // SAFETY: the cluster lives; the array is as long as said and copied.
        unsafe {
            sys::rd_kafka_mock_push_request_errors_array(self.cluster, PRODUCE, answers.len(), answers.as_ptr());
        }
    }

    /// The answer to one more Produce request to this broker, `late_ms` after it came.
    pub fn answer_produce_of(&self, broker: i32, answer: Answer, late_ms: i32) {
        let count: usize = 1;
        // SAFETY: the cluster lives; what follows the count is one pair of an error and a delay, as said.
        let pushed = unsafe {
            sys::rd_kafka_mock_broker_push_request_error_rtts(self.cluster, broker, PRODUCE, count, answer, late_ms)
        };
        assert_eq!(pushed, Answer::RD_KAFKA_RESP_ERR_NO_ERROR, "an answer of broker {broker}");
    }

    /// Forgets the answers that were not given yet.
    pub fn clear_answers(&self) {
        // SAFETY: the cluster lives.
        unsafe { sys::rd_kafka_mock_clear_request_errors(self.cluster, PRODUCE) }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // SAFETY: the cluster is ours and destroyed once, before its client.
        unsafe { sys::rd_kafka_mock_cluster_destroy(self.cluster) }
    }
}

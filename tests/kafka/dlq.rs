//! `fencepost dlq` on a real cluster, which tells offsets by time.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::alone;
use crate::common_kafka::letters::{self, Office};
use crate::kafka;

fn on_kafka(case: fn(&Office)) {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let admin = Admin::new(&bootstrap);
    case(&Office::new(&bootstrap, &|topic, partitions| admin.create_topic(topic, partitions, &[])));
}

#[test]
fn l3_key_value_and_headers_are_byte_exact() {
    on_kafka(letters::l3_key_value_and_headers_are_byte_exact);
}

#[test]
fn l5_a_replay_resumes_and_suppresses_what_the_topic_has() {
    on_kafka(letters::l5_a_replay_resumes_and_suppresses_what_the_topic_has);
}

#[test]
fn filters_and_the_loop_guard() {
    on_kafka(letters::filters_and_the_loop_guard);
}

#[test]
fn a_kill_half_way_loses_and_doubles_nothing() {
    on_kafka(letters::a_kill_half_way_loses_and_doubles_nothing);
}

#[test]
fn a_signal_ends_a_replay_behind_its_acks() {
    on_kafka(letters::a_signal_ends_a_replay_behind_its_acks);
}

#[test]
fn a_letter_that_is_refused_fails_alone() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let admin = Admin::new(&bootstrap);
    let office = Office::new(&bootstrap, &|topic, partitions| admin.create_topic(topic, partitions, &[]));
    let limit = |bytes: usize| admin.set(&office.topic, "max.message.bytes", &bytes.to_string());
    letters::a_letter_that_is_refused_fails_alone(&office, &limit);
}

//! `fencepost dlq` on the mock cluster, which does not tell offsets by time: a scan begins at the topic's beginning.

use crate::common_kafka::letters::{self, Office};
use crate::common_kafka::{Mock, alone};

fn on_the_mock(case: fn(&Office)) {
    let _alone = alone();
    let mock = Mock::new(1);
    let office = Office::new(&mock.bootstrap(), &|topic, partitions| mock.create_topic(topic, partitions));
    case(&office);
}

#[test]
fn l3_key_value_and_headers_are_byte_exact() {
    on_the_mock(letters::l3_key_value_and_headers_are_byte_exact);
}

#[test]
fn l5_a_replay_resumes_and_suppresses_what_the_topic_has() {
    on_the_mock(letters::l5_a_replay_resumes_and_suppresses_what_the_topic_has);
}

#[test]
fn filters_and_the_loop_guard() {
    on_the_mock(letters::filters_and_the_loop_guard);
}

#[test]
fn a_signal_ends_a_replay_behind_its_acks() {
    on_the_mock(letters::a_signal_ends_a_replay_behind_its_acks);
}

#[test]
fn what_is_missing_is_said() {
    on_the_mock(letters::what_is_missing_is_said);
}

#[test]
fn a_pinned_count_maps_the_devices() {
    on_the_mock(letters::a_pinned_count_maps_the_devices);
}

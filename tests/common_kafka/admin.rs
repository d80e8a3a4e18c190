//! A real cluster's topics: made, grown, their settings changed, by the client's own admin calls.

use super::PATIENCE;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Kafka's word for "as many replicas as `default.replication.factor` says".
const CLUSTERS_OWN: i32 = -1;

pub struct Admin(AdminClient<DefaultClientContext>);

impl Admin {
    pub fn new(bootstrap: &str) -> Admin {
        Admin(ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client can be made"))
    }

    /// A topic with these settings and as many replicas as the cluster gives by itself, ready for use on return.
    pub fn create_topic(&self, topic: &str, partitions: u32, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions as i32, TopicReplication::Fixed(CLUSTERS_OWN));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let answers = wait_for(self.0.create_topics([&new], &options())).expect("the cluster answers");
        answers[0].as_ref().unwrap_or_else(|(name, code)| panic!("creating {name}: {code}"));
    }

    pub fn grow_topic(&self, topic: &str, partitions: u32) {
        let more = NewPartitions::new(topic, partitions as usize);
        let answers = wait_for(self.0.create_partitions([&more], &options())).expect("the cluster answers");
        answers[0].as_ref().unwrap_or_else(|(name, code)| panic!("growing {name}: {code}"));
    }

    /// Gone on return, as far as the controller knows.
    pub fn delete_topic(&self, topic: &str) {
        let answers = wait_for(self.0.delete_topics(&[topic], &options())).expect("the cluster answers");
        answers[0].as_ref().unwrap_or_else(|(name, code)| panic!("deleting {name}: {code}"));
    }

    /// The brokers that lead the topic's partitions, in their order; -1 for none.
    pub fn leaders(&self, topic: &str) -> Vec<i32> {
        let limit = Duration::from_secs(30);
        let metadata = self.0.inner().fetch_metadata(Some(topic), limit).expect("the cluster answers");
        let mut leaders: Vec<(i32, i32)> =
            metadata.topics()[0].partitions().iter().map(|partition| (partition.id(), partition.leader())).collect();
        leaders.sort_unstable();
        leaders.into_iter().map(|(_, leader)| leader).collect()
    }

    /// The brokers that hold the topic's partitions, in the partitions' order; the one an election prefers comes first.
    pub fn replicas(&self, topic: &str) -> Vec<Vec<i32>> {
        let limit = Duration::from_secs(30);
        let metadata = self.0.inner().fetch_metadata(Some(topic), limit).expect("the cluster answers");
        let partitions = metadata.topics()[0].partitions();
        let mut replicas: Vec<(i32, Vec<i32>)> =
            partitions.iter().map(|partition| (partition.id(), partition.replicas().to_vec())).collect();
        replicas.sort_unstable();
        replicas.into_iter().map(|(_, replicas)| replicas).collect()
    }

    /// Deletes the records of a partition below an offset.
    pub fn delete_records(&self, topic: &str, partition: u32, below: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition as i32, Offset::Offset(below)).expect("a valid offset");
        let answer = wait_for(self.0.delete_records(&list, &options())).expect("the cluster answers");
        answer.elements().iter().for_each(|element| element.error().expect("the records are deleted"));
    }

    pub fn set(&self, topic: &str, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let answers = wait_for(self.0.alter_configs([&change], &options())).expect("the cluster answers");
        answers[0].as_ref().unwrap_or_else(|(_, code)| panic!("{name} of {topic}: {code}"));
    }
}

fn options() -> AdminOptions {
    let limit = Some(Duration::from_secs(60));
    AdminOptions::new().request_timeout(limit).operation_timeout(limit)
}

/// The answer of an admin call, looked for every few milliseconds: a thread of the client's brings it.
fn wait_for<F: Future>(future: F) -> F::Output {
    let (mut future, mut context) = (pin!(future), Context::from_waker(Waker::noop()));
    let began = Instant::now();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "the cluster does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

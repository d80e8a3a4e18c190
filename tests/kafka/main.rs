//! The engine on a real Kafka: what only a broker can answer. Each test has a topic of its own.
//!
//! They run on the cluster that KAFKA_BOOTSTRAP names, and say so when there is none:
//! `script/kafka run --brokers 3 --tls --acl -- cargo test --features tls --test kafka`.
#![cfg(feature = "kafka")]

#[path = "../common_kafka/mod.rs"]
mod common_kafka;

mod cluster;
#[cfg(feature = "cli")]
mod dlq;
mod letters;
mod limits;
mod outage;
mod recorded;
mod scene;
mod security;
mod swallow;
mod tail;
mod topic;

/// Where Kafka is, or a line that says what was skipped.
fn kafka() -> Option<String> {
    variable("KAFKA_BOOTSTRAP")
}

/// A variable of `script/kafka run --brokers 3 --tls --acl`.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    if value.is_none() {
        println!("skipped: {name} is not set; run the tests by script/test --only kafka");
    }
    value
}

/// A script or a file of this tree.
fn in_tree(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

//! `fencepost bench`: what the router costs and what it adds, measured on this machine, now.
//!
//! The figures that matter are ratios: the router and the client library alone take turns in one run, with the same
//! properties, records and partitions, so that what else the machine does hits both alike. Medians stand for all turns.
//!
//! Without `--bootstrap` the brokers are the client library's mock, in a process of their own, so that the CPU time of
//! this one is the router's and the client's alone. The mock stores nothing and answers at once: it measures clients.

mod base;
mod broker;
mod ceiling;
mod consumer;
mod driver;
mod latency;
mod load;
mod process;
mod raw;
mod versus;

use super::{CliError, Exit};
use crate::config::{Config, KafkaSettings};
use crate::sink::kafka;
use crate::sink::kafka::topic::{NewTopicPlan, TopicDesk};
use broker::Brokers;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Partitions of a topic made here.
const PARTITIONS: u32 = 12;
/// The topic, unless a configuration names one.
const TOPIC: &str = "fencepost-bench";
/// How long the cluster may take to show the topic.
const TOPIC_LIMIT: Duration = Duration::from_secs(20);

/// Measures the router: as fast as it goes, at a rate, and against the client library alone.
///
/// Without --bootstrap the brokers are the client library's mock, in a process of their own; no Kafka is needed. With
/// it, the topic is created if it is missing, and is left full of records: use one that nobody reads.
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// As fast as it goes: triggers a second, CPU per trigger, and whether the memory stays flat.
    Ceiling(ceiling::Ceiling),
    /// At a rate, open loop: the time from submit to acknowledgement, the router and the client alone in turns.
    ///
    /// A trigger's time begins when it was due, not when the loop came to it (coordinated omission). It ends when it
    /// and all before it are acknowledged, which is what `settled()` says to a source.
    E2e(latency::E2e),
    /// The router against the client library: the same settings and records, in turns, as fast as each goes.
    ///
    /// `raw` is librdkafka alone: frames made beforehand, handed over without a copy by one thread, reports taken as
    /// events. `base` is the safe producer of the Rust client on top of it.
    VsLibrdkafka(versus::Versus),
    /// The mock's own process.
    #[command(hide = true)]
    Brokers,
}

/// What all measurements take.
#[derive(Args, Clone)]
struct Common {
    /// Brokers to measure on, `host:port` with commas between; without it the mock.
    #[arg(long)]
    bootstrap: Option<String>,
    /// The configuration file; its topic and brokers are used unless --bootstrap is given too.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long each turn takes, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Where a measurement takes place.
struct Ground {
    config: Config,
    settings: KafkaSettings,
    partitions: u32,
    /// What stands for Kafka, for the result.
    brokers: &'static str,
    /// The mock ends when this is dropped.
    _mock: Option<Brokers>,
}

impl Bench {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        match self.what {
            What::Ceiling(ceiling) => ceiling.run(),
            What::E2e(e2e) => e2e.run(),
            What::VsLibrdkafka(versus) => versus.run(),
            What::Brokers => broker::serve(),
        }
    }
}

impl Ground {
    fn prepare(common: &Common) -> Result<Ground, CliError> {
        let mut config = match &common.config {
            Some(path) => Config::from_file(path)?,
            None => Config::default(),
        };
        if let Some(bootstrap) = &common.bootstrap {
            config.kafka.bootstrap = Some(bootstrap.clone());
            config.topic.name = TOPIC.into();
        }
        let mock = match &config.kafka.bootstrap {
            Some(_) => None,
            None => {
                let mock = Brokers::start()?;
                config.kafka.bootstrap = Some(mock.bootstrap().to_string());
                config.topic.name = TOPIC.into();
                Some(mock)
            }
        };
        let settings = config.kafka_settings()?;
        let desk = TopicDesk::new(&kafka::properties(&settings, PARTITIONS), &config.topic.name);
        let plan = NewTopicPlan {
            partitions: PARTITIONS,
            replication: config.topic.replication.into(),
            min_insync_replicas: config.topic.min_insync_replicas.into(),
        };
        let facts = desk.prepare(mock.is_none().then_some(&plan), TOPIC_LIMIT);
        let facts = facts.map_err(|error| CliError::Unavailable(error.to_string()))?;
        let brokers = if mock.is_some() { "mock" } else { "kafka" };
        Ok(Ground { config, settings, partitions: facts.partitions, brokers, _mock: mock })
    }
}

/// The middle of some figures, and between which bounds the middle half of them lies.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// # Panics
    /// If there are no values: every measurement has at least one turn.
    fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        assert!(!values.is_empty(), "a spread is of something");
        values.sort_by(f64::total_cmp);
        let at = |quantile: f64| values[((values.len() - 1) as f64 * quantile).round() as usize];
        Spread { median: at(0.5), low: at(0.25), high: at(0.75) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_one_and_of_five() {
        let one = Spread::of([3.0]);
        assert_eq!((one.low, one.median, one.high), (3.0, 3.0, 3.0));
        let five = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((five.low, five.median, five.high), (2.0, 3.0, 4.0));
    }
}

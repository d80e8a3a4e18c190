//! `fencepost where`: which partition and shard a device belongs to.

use super::{CliError, Exit};
use crate::config::Config;
use crate::partition::{murmur2, partition_of, shard_of};
use crate::sink::kafka;
use crate::sink::kafka::topic::TopicDesk;
use crate::trigger::rules::ID_BYTES;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Prints the partition, the shard and the key hash of devices.
///
/// The partition is the one every Kafka client with the Java default partitioner computes for the same key. The number
/// of partitions comes from --partitions, or from the broker that the configuration names.
#[derive(Args)]
pub struct Where {
    /// The devices to look up.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<String>,
    /// How many partitions the topic has. Without it, the broker of the configuration is asked.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: Option<u32>,
    /// How many shards the router has.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: u16,
    /// The configuration file; needed when --partitions is not given.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Where {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let partitions = match (self.partitions, &self.config) {
            (Some(partitions), _) => partitions,
            (None, Some(path)) => ask_for_partitions(&Config::from_file(path)?)?,
            (None, None) => {
                return Err(CliError::Usage(
                    "how many partitions? Give --partitions N, or -c FILE to ask the broker".into(),
                ));
            }
        };
        if partitions < u32::from(self.shards) {
            let shards = self.shards;
            return Err(CliError::Usage(format!("{shards} shards need as many partitions, there are {partitions}")));
        }
        if let Some(device) = self.devices.iter().find(|device| !ID_BYTES.contains(&device.len())) {
            let len = device.len();
            return Err(CliError::Usage(format!(
                "a device has {} to {} bytes, one given has {len}",
                ID_BYTES.start(),
                ID_BYTES.end()
            )));
        }
        let found: Vec<_> = self
            .devices
            .iter()
            .map(|device| {
                let partition = partition_of(device.as_bytes(), partitions);
                (device, partition, shard_of(partition, self.shards), murmur2(device.as_bytes()) as u32)
            })
            .collect();
        if self.json {
            let rows: Vec<_> = found
                .iter()
                .map(|(device, partition, shard, hash)| {
                    json!({"device_id": device, "partition": partition.0, "shard": shard.0, "key_hash": format!("{hash:08x}")})
                })
                .collect();
            say!("{}", json!({"partitions": partitions, "shards": self.shards, "devices": rows}));
        } else {
            say!("partition  shard  key hash  device   (of {partitions} partitions, {} shards)", self.shards);
            for (device, partition, shard, hash) in found {
                say!("{:>9}  {:>5}  {hash:08x}  {}", partition.0, shard.0, device.escape_debug());
            }
        }
        Ok(Exit::Done)
    }
}

fn ask_for_partitions(config: &Config) -> Result<u32, CliError> {
    if let Some(partitions) = config.topic.partitions {
        return Ok(partitions);
    }
    let settings = config.kafka_settings()?;
    let properties = kafka::properties(&settings, 1);
    let desk = TopicDesk::new(&properties, &config.topic.name);
    let facts = desk.facts(Duration::from_secs(10)).map_err(|error| CliError::Unavailable(error.to_string()))?;
    Ok(facts.partitions)
}

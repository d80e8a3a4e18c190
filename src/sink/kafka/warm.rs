//! Warm before ready: metadata, a producer id, and a connection to the leader of every partition the shard owns. A cold
//! producer holds its first records for up to a second; a warm one does not. What is missing is read from the client's
//! statistics, the only place that tells.

use super::handle::News;
use super::{KafkaSink, error_name};
use crate::clock::Clock;
use crate::units::{Nanos, PartitionId};
use serde_json::Value;
use std::time::Duration;

/// What was there when a sink was called warm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// How long it took.
    pub took: Nanos,
    /// Partitions that have no leader just now; they are waited for while running.
    pub leaderless: Vec<PartitionId>,
}

/// A sink did not get warm in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {} ms the Kafka client still lacks {lacks}{}", waited.0 / 1_000_000, last_words(last_error))]
pub struct WarmUpError {
    /// How long was waited.
    pub waited: Nanos,
    /// What is missing, for a person.
    pub lacks: String,
    /// The last error of the client meanwhile.
    pub last_error: Option<String>,
}

fn last_words(error: &Option<String>) -> String {
    error.as_ref().map(|text| format!("; its last error: {text}")).unwrap_or_default()
}

impl KafkaSink {
    /// Waits until the sink is warm for `partitions`. Blocks; called before the shard's first turn.
    ///
    /// # Errors
    /// [`WarmUpError`] after `limit`, with what is missing and the client's last words.
    pub fn warm_up(&mut self, partitions: &[PartitionId], limit: Duration) -> Result<WarmUp, WarmUpError> {
        self.handle.reads_statistics = true;
        let answer = self.wait_until_warm(partitions, limit);
        self.handle.reads_statistics = false;
        answer
    }

    fn wait_until_warm(&mut self, partitions: &[PartitionId], limit: Duration) -> Result<WarmUp, WarmUpError> {
        let began = self.clock.mono();
        let mut lacks = "everything: it has not reported yet".to_string();
        let mut last_error = None;
        loop {
            self.handle.poll(1, &mut |_| unreachable!("nothing was produced yet"), &mut |_, _| {}, &mut self.news);
            while let Some(news) = self.news.pop_front() {
                match news {
                    News::Statistics(json) => match missing(&json, &self.settings.topic, partitions) {
                        Ok(leaderless) => {
                            return Ok(WarmUp { took: self.clock.mono().since(began), leaderless });
                        }
                        Err(missing) => lacks = missing,
                    },
                    News::Error { code, text, .. } => {
                        self.errors += 1;
                        log::debug!("while warming up: {text} ({})", error_name(code));
                        last_error = Some(text);
                    }
                }
            }
            let waited = self.clock.mono().since(began);
            if waited >= Nanos::from(limit) {
                return Err(WarmUpError { waited, lacks, last_error });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether the leaders of all partitions the client sends to are connected, as its statistics say.
pub(super) fn is_connected(json: &str, topic: &str) -> bool {
    let Ok(all) = serde_json::from_str::<Value>(json) else { return false };
    let Some(partitions) = all["topics"][topic]["partitions"].as_object() else { return false };
    let own: Vec<PartitionId> = partitions
        .iter()
        .filter(|(_, part)| {
            part["msgq_cnt"].as_u64().unwrap_or(0) + part["xmit_msgq_cnt"].as_u64().unwrap_or(0) > 0
                || part["msgs_inflight"].as_u64().unwrap_or(0) > 0
        })
        .filter_map(|(number, _)| number.parse().ok().map(PartitionId))
        .collect();
    !own.is_empty() && missing(json, topic, &own).is_ok_and(|leaderless| leaderless.is_empty())
}

/// The partitions without a leader if all else is there, or what is missing.
fn missing(json: &str, topic: &str, partitions: &[PartitionId]) -> Result<Vec<PartitionId>, String> {
    let all: Value = serde_json::from_str(json).map_err(|error| format!("readable statistics: {error}"))?;
    let known = &all["topics"][topic]["partitions"];
    let mut leaderless = Vec::new();
    let mut leaders = Vec::new();
    for partition in partitions {
        let entry = &known[partition.0.to_string()];
        let Some(leader) = entry["leader"].as_i64() else {
            return Err(format!("metadata of topic {topic}, partition {partition}"));
        };
        match leader {
            -1 => leaderless.push(*partition),
            leader if !leaders.contains(&leader) => leaders.push(leader),
            _ => {}
        }
    }
    let brokers = all["brokers"].as_object().ok_or("a list of brokers")?;
    for leader in leaders {
        let is_up = |broker: &&Value| broker["nodeid"].as_i64() == Some(leader) && broker["state"] == "UP";
        if brokers.values().find(is_up).is_none() {
            return Err(format!("a connection to broker {leader}"));
        }
    }
    if all["eos"]["idemp_state"] != "Assigned" {
        return Err("a producer id".into());
    }
    Ok(leaderless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(leader: i64, state: &str, id: &str) -> String {
        format!(
            r#"{{"brokers":{{"b:1":{{"nodeid":1,"state":"{state}"}}}},
               "topics":{{"t":{{"partitions":{{"0":{{"leader":{leader}}},"-1":{{"leader":-1}}}}}}}},
               "eos":{{"idemp_state":"{id}"}}}}"#
        )
    }

    #[test]
    fn says_what_is_missing_one_thing_after_the_other() {
        let own = [PartitionId(0)];
        assert_eq!(missing(&statistics(1, "UP", "Assigned"), "t", &own), Ok(vec![]));
        assert_eq!(missing(&statistics(-1, "UP", "Assigned"), "t", &own), Ok(vec![PartitionId(0)]));
        assert_eq!(missing(&statistics(1, "CONNECT", "Assigned"), "t", &own), Err("a connection to broker 1".into()));
        assert_eq!(missing(&statistics(1, "UP", "WaitPID"), "t", &own), Err("a producer id".into()));
        let held = r#"{"brokers":{"b:1":{"nodeid":1,"state":"UP"}},"eos":{"idemp_state":"Assigned"},
            "topics":{"t":{"partitions":{"0":{"leader":1,"msgs_inflight":5},"1":{"leader":-1}}}}}"#;
        assert!(is_connected(held, "t"), "partition 1 has nothing in flight");
        assert!(!is_connected(&held.replace("UP", "CONNECT"), "t") && !is_connected(held, "u"));
        let other = missing(&statistics(1, "UP", "Assigned"), "t", &[PartitionId(7)]);
        assert_eq!(other, Err("metadata of topic t, partition 7".into()));
        assert!(missing("{", "t", &own).is_err());
    }
}

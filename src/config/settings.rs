//! What the clients of Kafka are made from: the sink's, and the dead letters' producer's. Reads the environment variables
//! and files that hold secrets; no value of a property is ever named.

use super::properties::ClientProperty;
use super::{Config, ConfigError, Problem, RecordTime, keys, rules};
use crate::units::Nanos;
use std::ffi::OsString;
use std::time::Duration;

/// What the Kafka sink is made from: addresses, topic, and every client property with its final value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KafkaSettings {
    /// Brokers to ask first.
    pub bootstrap: String,
    /// Which time a record carries.
    pub record_time: RecordTime,
    /// The properties of the config and the router's defaults for batching, each allowed and checked. Those that
    /// order and delivery rest on are not among them: the sink sets them itself.
    pub properties: Vec<ClientProperty>,
    /// How long a batch waits for more.
    pub linger: Nanos,
}

/// What the dead letters' producer is made from. Like [`KafkaSettings`], with the dead-letter topic's name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeadLetterSettings {
    /// The dead-letter topic.
    pub topic: String,
    /// Brokers of its cluster to ask first.
    pub bootstrap: String,
    /// Whether that is the cluster of `kafka.bootstrap`.
    pub same_cluster: bool,
    /// The properties of the config and the router's defaults for batching, each allowed and checked.
    pub properties: Vec<ClientProperty>,
    /// A letter that the topic has not taken after this goes to the disk.
    pub grace: Nanos,
}

impl Config {
    /// What the Kafka sink needs; reads the environment variables and files that the properties name.
    ///
    /// # Errors
    /// `kafka.bootstrap` is not set, a variable or file is not there, or a value is not allowed. No value is named.
    pub fn kafka_settings(&self) -> Result<KafkaSettings, ConfigError> {
        self.kafka_settings_from(&|name| std::env::var_os(name))
    }

    /// Like [`Config::kafka_settings`], with the environment as an argument.
    ///
    /// # Errors
    /// As there.
    pub fn kafka_settings_from(
        &self,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<KafkaSettings, ConfigError> {
        let mut problems = self.kafka.properties.problems("kafka.properties");
        let key = keys::find("kafka.bootstrap").expect("it is in the table of keys");
        problems.extend(match &self.kafka.bootstrap {
            Some(_) => key.check(&(key.get)(self)),
            None => Some(Problem::Missing { key: key.name, fix: key.fix }),
        });
        ConfigError::unless_clean(problems)?;
        let properties = self.kafka.properties.resolve("kafka.properties", environment).map_err(|problems| {
            ConfigError::unless_clean(problems).expect_err("an unresolved config has at least one problem")
        })?;
        let linger_ms: f64 = properties
            .iter()
            .find(|property| property.name == "linger.ms")
            .map(|property| property.value.expose().parse().expect("linger.ms was checked to be a number"))
            .expect("linger.ms has a default");
        if let Some((got, fix)) = rules::linger_breach(self, linger_ms) {
            return Err(ConfigError::new(vec![(None, Problem::Conflict { rule: rules::LINGER_RULE, got, fix })]));
        }
        let bootstrap = self.kafka.bootstrap.clone().expect("it was checked to be there");
        let linger = Duration::from_secs_f64(linger_ms / 1_000.0).into();
        Ok(KafkaSettings { bootstrap, record_time: self.kafka.record_time, properties, linger })
    }

    /// What the dead letters' producer needs; reads the environment variables and files that the properties name.
    /// `None` when `dead_letter.topic` is `off`.
    ///
    /// # Errors
    /// Neither `dead_letter.bootstrap` nor `kafka.bootstrap` is set, a variable or file is not there, or a value is not
    /// allowed. No value is named.
    pub fn dead_letter_settings(&self) -> Result<Option<DeadLetterSettings>, ConfigError> {
        self.dead_letter_settings_from(&|name| std::env::var_os(name))
    }

    /// Like [`Config::dead_letter_settings`], with the environment as an argument.
    ///
    /// # Errors
    /// As there.
    pub fn dead_letter_settings_from(
        &self,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Option<DeadLetterSettings>, ConfigError> {
        let Some(topic) = self.dead_letter_topic() else { return Ok(None) };
        let own = &self.dead_letter;
        let (name, bootstrap) = match &own.bootstrap {
            Some(bootstrap) => ("dead_letter.bootstrap", Some(bootstrap)),
            None => ("kafka.bootstrap", self.kafka.bootstrap.as_ref()),
        };
        let key = keys::find(name).expect("it is in the table of keys");
        let mut problems = self.property_problems();
        problems.extend(match bootstrap {
            Some(_) => key.check(&(key.get)(self)),
            None => Some(Problem::Missing { key: key.name, fix: key.fix }),
        });
        ConfigError::unless_clean(problems)?;
        // The main cluster's secrets are not for another cluster.
        let (table, properties) = if own.bootstrap.is_none() && own.properties.is_empty() {
            ("kafka.properties", &self.kafka.properties)
        } else {
            ("dead_letter.properties", &own.properties)
        };
        let properties = properties.resolve(table, environment).map_err(|problems| {
            ConfigError::unless_clean(problems).expect_err("an unresolved config has at least one problem")
        })?;
        Ok(Some(DeadLetterSettings {
            topic,
            bootstrap: bootstrap.expect("it was checked to be there").clone(),
            same_cluster: rules::is_same_cluster(self),
            properties,
            grace: own.grace.into(),
        }))
    }
}

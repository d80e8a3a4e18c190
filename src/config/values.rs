//! The values that are one of two things: a word, or what it stands beside. Each is written in the file as it is read.

use super::span;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterTopic {
    /// To no topic.
    Off,
    /// To this one; Kafka's rule for names.
    Named(String),
}

/// The CPUs of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The scheduler chooses.
    None,
    /// Kernel numbers, one a shard, each once; [`super::CPU_IDS`].
    Cpus(Vec<u32>),
}

/// How old an event may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeLimit {
    /// Any age.
    Off,
    /// At most this old.
    Span(Duration),
}

impl Serialize for DeadLetterTopic {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            DeadLetterTopic::Off => out.serialize_str("off"),
            DeadLetterTopic::Named(name) => out.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for DeadLetterTopic {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<DeadLetterTopic, D::Error> {
        Ok(match String::deserialize(from)? {
            word if word == "off" => DeadLetterTopic::Off,
            name => DeadLetterTopic::Named(name),
        })
    }
}

impl Serialize for Pin {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Pin::None => out.serialize_str("none"),
            Pin::Cpus(cpus) => cpus.serialize(out),
        }
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Pin, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Word(String),
            Cpus(Vec<u32>),
        }
        match Form::deserialize(from)? {
            Form::Word(word) if word == "none" => Ok(Pin::None),
            Form::Word(word) => Err(serde::de::Error::custom(format!("{word:?} is neither \"none\" nor a list"))),
            Form::Cpus(cpus) => Ok(Pin::Cpus(cpus)),
        }
    }
}

impl Serialize for AgeLimit {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            AgeLimit::Off => out.serialize_str("off"),
            AgeLimit::Span(span) => span::serialize(span, out),
        }
    }
}

impl<'de> Deserialize<'de> for AgeLimit {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<AgeLimit, D::Error> {
        let text = String::deserialize(from)?;
        match span::parse(&text) {
            Some(span) => Ok(AgeLimit::Span(span)),
            None if text == "off" => Ok(AgeLimit::Off),
            None => Err(serde::de::Error::custom(format!("{text:?} is neither \"off\" nor {}", span::SHAPE))),
        }
    }
}

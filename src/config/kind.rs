//! What a key's value may be: the types of a configuration's values, how they are read from the file, their bounds, and
//! how they are printed.

use super::error::Problem;
use super::keys::{CPU_IDS, Key, PATH_BYTES, TOPIC_NAME_BYTES};
use super::{size, span};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::DeValue;

/// What a key's value may be.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Bool,
    Whole(RangeInclusive<u64>),
    PowerOfTwo(RangeInclusive<u64>),
    Ratio(RangeInclusive<f64>),
    Span(RangeInclusive<Duration>),
    /// A span, or `"off"`.
    SpanOrOff(RangeInclusive<Duration>),
    Word(&'static [&'static str]),
    Text(RangeInclusive<usize>),
    TopicName,
    /// A topic's name, or `"off"`.
    TopicNameOrOff,
    /// A size in bytes.
    Bytes(RangeInclusive<u64>),
    Path,
    /// IP address and port.
    Socket,
    /// `host:port`, with commas between.
    Addresses,
    /// `"none"` or a list of CPUs.
    Pin,
    /// The free table of client properties; it has its own list.
    Properties,
}

/// A value as it was read from a file, or as it stands in a [`Config`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Unset,
    Bool(bool),
    /// Wider than any key, so that one too great or negative is refused by its range.
    Whole(i128),
    Ratio(f64),
    Span(Duration),
    /// A size in bytes; as wide as [`Value::Whole`].
    Bytes(i128),
    Text(String),
    Cpus(Vec<i128>),
    /// Not printed here.
    Properties,
}

impl Kind {
    /// What is allowed, as printed in messages and in the reference.
    pub(super) fn allowed(&self) -> String {
        let spans = |range: &RangeInclusive<Duration>| {
            format!("\"{}\"..=\"{}\"", span::print(*range.start()), span::print(*range.end()))
        };
        let words = |words: &[&str]| words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ");
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Whole(range) => format!("{}..={}", range.start(), range.end()),
            Kind::PowerOfTwo(range) => format!("a power of two in {}..={}", range.start(), range.end()),
            Kind::Ratio(range) => format!("{}..={}", range.start(), range.end()),
            Kind::Span(range) => spans(range),
            Kind::SpanOrOff(range) => format!("\"off\" or {}", spans(range)),
            Kind::Word(allowed) => words(allowed),
            Kind::Text(bytes) => {
                format!("text of {} to {} bytes without control characters", bytes.start(), bytes.end())
            }
            Kind::TopicName => format!(
                "{} to {} of a-z, A-Z, 0-9, '.', '_', '-', but not \".\" or \"..\"",
                TOPIC_NAME_BYTES.start(),
                TOPIC_NAME_BYTES.end()
            ),
            Kind::TopicNameOrOff => format!("\"off\" or {}", Kind::TopicName.allowed()),
            Kind::Bytes(range) => format!("{}..={}", size::print(*range.start()), size::print(*range.end())),
            Kind::Path => format!("a path of {} to {} bytes", PATH_BYTES.start(), PATH_BYTES.end()),
            Kind::Socket => "an IP address and a port".to_owned(),
            Kind::Addresses => "host:port, with commas between".to_owned(),
            Kind::Pin => {
                format!("\"none\" or a list of different CPUs in {}..={}", CPU_IDS.start(), CPU_IDS.end())
            }
            Kind::Properties => "a table of client properties".to_owned(),
        }
    }

    /// The type's name in the reference.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Kind::Bool => "true or false",
            Kind::Whole(_) | Kind::PowerOfTwo(_) => "whole number",
            Kind::Ratio(_) => "number",
            Kind::Span(_) | Kind::SpanOrOff(_) => "span of time",
            Kind::Bytes(_) => "size",
            Kind::Word(_) => "word",
            Kind::Text(_) | Kind::TopicName | Kind::TopicNameOrOff | Kind::Path | Kind::Socket | Kind::Addresses => {
                "text"
            }
            Kind::Pin => "word or list",
            Kind::Properties => "table",
        }
    }

    /// Whether `value` is inside the bounds. `Unset` always is.
    pub(super) fn holds(&self, value: &Value) -> bool {
        let in_range = |range: &RangeInclusive<u64>, number: i128| {
            (i128::from(*range.start())..=i128::from(*range.end())).contains(&number)
        };
        match (self, value) {
            (_, Value::Unset) | (Kind::Bool, Value::Bool(_)) | (Kind::Properties, Value::Properties) => true,
            (Kind::Whole(range), Value::Whole(number)) | (Kind::Bytes(range), Value::Bytes(number)) => {
                in_range(range, *number)
            }
            (Kind::PowerOfTwo(range), Value::Whole(number)) => in_range(range, *number) && number.count_ones() == 1,
            (Kind::Ratio(range), Value::Ratio(ratio)) => range.contains(ratio),
            (Kind::Span(range) | Kind::SpanOrOff(range), Value::Span(span)) => range.contains(span),
            (Kind::SpanOrOff(_), Value::Text(word)) => word == "off",
            (Kind::Word(words), Value::Text(word)) => words.contains(&word.as_str()),
            (Kind::Text(bytes), Value::Text(text)) => {
                bytes.contains(&text.len()) && !text.chars().any(char::is_control)
            }
            // `off` is a name like any other to Kafka; here it means none.
            (Kind::TopicName | Kind::TopicNameOrOff, Value::Text(name)) => {
                TOPIC_NAME_BYTES.contains(&name.len())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                    && name != "."
                    && name != ".."
            }
            (Kind::Path, Value::Text(path)) => PATH_BYTES.contains(&path.len()) && !path.contains('\0'),
            (Kind::Socket, Value::Text(address)) => address.parse::<std::net::SocketAddr>().is_ok(),
            (Kind::Addresses, Value::Text(list)) => list.split(',').all(|address| is_host_and_port(address.trim())),
            (Kind::Pin, Value::Text(word)) => word == "none",
            (Kind::Pin, Value::Cpus(cpus)) => {
                !cpus.is_empty()
                    && cpus
                        .iter()
                        .enumerate()
                        .all(|(index, cpu)| in_range(&CPU_IDS, *cpu) && !cpus[..index].contains(cpu))
            }
            _ => false,
        }
    }

    /// Reads a value of the file; `Err` when it has another type. Bounds are checked by [`Kind::holds`].
    pub(super) fn read(&self, value: &DeValue<'_>) -> Result<Value, &'static str> {
        let wrong = Err(type_of(value));
        Ok(match (self, value) {
            (Kind::Bool, DeValue::Boolean(flag)) => Value::Bool(*flag),
            (Kind::Whole(_) | Kind::PowerOfTwo(_), DeValue::Integer(number)) => Value::Whole(whole_of(number)),
            (Kind::Ratio(_), DeValue::Integer(number)) => Value::Ratio(whole_of(number) as f64),
            (Kind::Bytes(_), DeValue::Integer(number)) => Value::Bytes(whole_of(number)),
            (Kind::Bytes(_), DeValue::String(text)) => match size::parse(text) {
                Some(bytes) => Value::Bytes(bytes.into()),
                None => Value::Text(text.to_string()),
            },
            // A float that does not parse is none: NaN is inside no range.
            (Kind::Ratio(_), DeValue::Float(number)) => Value::Ratio(number.as_str().parse().unwrap_or(f64::NAN)),
            (Kind::Span(_), DeValue::String(text)) => match span::parse(text) {
                Some(span) => Value::Span(span),
                None => Value::Text(text.to_string()),
            },
            (Kind::SpanOrOff(_), DeValue::String(text)) => match span::parse(text) {
                Some(span) => Value::Span(span),
                None => Value::Text(text.to_string()),
            },
            (
                Kind::Word(_)
                | Kind::Text(_)
                | Kind::TopicName
                | Kind::TopicNameOrOff
                | Kind::Path
                | Kind::Socket
                | Kind::Addresses
                | Kind::Pin,
                DeValue::String(text),
            ) => Value::Text(text.to_string()),
            (Kind::Pin, DeValue::Array(cpus)) => {
                let mut read = Vec::new();
                for cpu in cpus.iter() {
                    match cpu.get_ref() {
                        DeValue::Integer(number) => read.push(whole_of(number)),
                        _ => return Err("a list that holds more than whole numbers"),
                    }
                }
                Value::Cpus(read)
            }
            (Kind::Properties, DeValue::Table(_)) => Value::Properties,
            _ => return wrong,
        })
    }
}

impl Key {
    /// The problem with `value`, if it has one.
    pub(super) fn check(&self, value: &Value) -> Option<Problem> {
        if self.kind.holds(value) {
            return None;
        }
        // Text where a span should be: the bounds are not what is wrong with it.
        let allowed = match (&self.kind, value) {
            (Kind::Span(_), Value::Text(_)) => span::SHAPE.to_owned(),
            (Kind::Bytes(_), Value::Text(_)) => size::SHAPE.to_owned(),
            (Kind::SpanOrOff(_), Value::Text(_)) => format!("\"off\" or {}", span::SHAPE),
            (kind, _) => kind.allowed(),
        };
        let (key, fix) = (self.name.to_owned(), self.fix.to_owned());
        Some(Problem::NotAllowed { key, got: value.print(), allowed, fix })
    }

    pub(super) fn wrong_type(&self, got: &'static str) -> Problem {
        let allowed = match &self.kind {
            Kind::Bytes(_) => size::SHAPE.to_owned(),
            Kind::Span(_) => format!("text: {}", span::SHAPE),
            Kind::SpanOrOff(_) => format!("text: \"off\" or {}", span::SHAPE),
            Kind::Whole(_) | Kind::PowerOfTwo(_) | Kind::Ratio(_) => {
                format!("a {} without quotes, {}", self.kind.type_name(), self.kind.allowed())
            }
            kind => kind.allowed(),
        };
        Problem::WrongType { key: self.name.to_owned(), got, allowed, fix: self.fix.to_owned() }
    }
}

impl Value {
    /// As it would stand in the file. Long text is cut, with its length.
    pub(super) fn print(&self) -> String {
        const SHOWN: usize = 64;
        match self {
            Value::Unset | Value::Properties => String::new(),
            Value::Bool(flag) => flag.to_string(),
            Value::Whole(number) => number.to_string(),
            Value::Ratio(ratio) => ratio.to_string(),
            Value::Span(span) => format!("\"{}\"", span::print(*span)),
            Value::Bytes(bytes) => u64::try_from(*bytes).map_or_else(|_| bytes.to_string(), size::print),
            Value::Text(text) if text.chars().count() > SHOWN => {
                format!("{:?}… ({} bytes)", text.chars().take(SHOWN).collect::<String>(), text.len())
            }
            Value::Text(text) => format!("{text:?}"),
            Value::Cpus(cpus) => format!("{cpus:?}"),
        }
    }
}

/// The type of a value of the file, for messages.
pub(super) fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A whole number of any length; one beyond 128 bits becomes the greatest, which no range holds.
fn whole_of(number: &toml::de::DeInteger<'_>) -> i128 {
    i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX)
}

/// `host:port`; an IPv6 address stands in brackets.
fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let port_holds = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let host_holds = match host.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')) {
        Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)),
    };
    port_holds && host_holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["broker:9092", "a.b-c_d:1", "10.0.0.1:65535", "[::1]:9092"] {
            assert!(is_host_and_port(good), "{good}");
        }
        for bad in [
            "",
            "broker",
            "broker:",
            ":9092",
            "broker:0",
            "broker:65536",
            "::1:9092",
            "[x]:1",
            "a b:1",
            "a:+1",
            "http://broker:9092",
        ] {
            assert!(!is_host_and_port(bad), "{bad}");
        }
    }
}

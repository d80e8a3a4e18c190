//! Lines of NDJSON. The whole input is one line, and it is a stream of lines. A line is a trigger exactly when
//! `serde_json` finds the object of one in it, each key once; and a stream gives each of its lines once, with its number
//! and its bytes as they came, in whatever blocks they came.

use super::stream::{self, Event, Out, Owned, Way, owned, said};
use fencepost::source::ndjson::{self, NotATrigger};
use fencepost::source::{Fault, Format, Position};
use fencepost::trigger::{Priority, State};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// Short, so that lines above it are found soon.
const LINE_BYTES_MAX: usize = 200;

/// See the module.
pub fn check(bytes: &[u8]) {
    agrees(bytes);
    bytes.split(|byte| *byte == b'\n').for_each(agrees);
    stream::check(Format::Ndjson, LINE_BYTES_MAX, bytes, model);
}

fn agrees(line: &[u8]) {
    let mut place = line.to_vec();
    let ours = ndjson::parse(&mut place).map(|trigger| owned(&trigger));
    match (ours, by_serde(line)) {
        (Ok(ours), Some(theirs)) => assert_eq!(ours, theirs),
        (Ok(ours), None) => panic!("accepted, and it is none: {ours:?}"),
        (Err(error), Some(theirs)) => panic!("refused ({error}), and it is one: {theirs:?}"),
        (Err(error), None) => says_where(&error, line.len()),
    }
}

fn says_where(error: &NotATrigger, len: usize) {
    let column = match *error {
        NotATrigger::Expected { column, .. }
        | NotATrigger::UnknownKey { column, .. }
        | NotATrigger::DuplicateKey { column, .. }
        | NotATrigger::UnknownWord { column, .. }
        | NotATrigger::NotUtf8 { column } => column,
        _ => 1,
    };
    assert!((1..=len + 1).contains(&column), "column {column} of {len}: {error}");
    let said = error.to_string();
    assert!(!said.is_empty() && !said.contains(char::is_control), "{said:?}");
}

/// The members of an object in their order, which the oracle's own map does not keep.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;
            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Members, M::Error> {
                let mut all = Vec::new();
                while let Some(member) = members.next_entry()? {
                    all.push(member);
                }
                Ok(Members(all))
            }
        }
        from.deserialize_map(Collect)
    }
}

/// The trigger that the oracle finds; `None` if it is no JSON, or not the object of a trigger.
fn by_serde(line: &[u8]) -> Option<Owned> {
    let Members(members) = serde_json::from_slice(line).ok()?;
    let (mut device_id, mut fence_id, mut state, mut time, mut priority, mut attributes) =
        (None, None, None, None, None, None);
    for (key, value) in members {
        let text = || value.as_str().map(str::to_owned);
        // Every key at most once, so each place is empty before.
        let is_second = match key.as_str() {
            "device_id" => device_id.replace(text()?).is_some(),
            "fence_id" => fence_id.replace(text()?).is_some(),
            "attributes" => attributes.replace(text()?.into_bytes()).is_some(),
            "event_time_ms" => time.replace(value.as_i64()?).is_some(),
            "state" => state
                .replace(match value.as_str()? {
                    "enter" => State::Enter,
                    "exit" => State::Exit,
                    "dwell" => State::Dwell,
                    _ => return None,
                })
                .is_some(),
            "priority" => priority
                .replace(match value.as_str()? {
                    "low" => Priority::Low,
                    "normal" => Priority::Normal,
                    "high" => Priority::High,
                    _ => return None,
                })
                .is_some(),
            _ => return None,
        };
        if is_second {
            return None;
        }
    }
    Some((device_id?, fence_id?, state?, time?, priority.unwrap_or_default(), attributes.unwrap_or_default()))
}

fn model(way: Way, bytes: &[u8]) -> Out {
    let mut out = Out { events: Vec::new(), position: Position::default(), has_left: false };
    let mut rest = bytes;
    while !rest.is_empty() {
        let newline = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..newline.unwrap_or(rest.len())];
        let taken = newline.map_or(rest.len(), |at| at + 1);
        let number = out.position.lines + 1;
        let is_unfinished = newline.is_none() && way.leaves_unfinished;
        let is_blank = line.iter().all(|byte| b" \t\r".contains(byte));
        let (outcome, raw) = if line.len() > way.limit {
            let fault = Fault::LineTooLong { len: None, limit: way.limit };
            (Err(said(&fault)), &line[..way.limit])
        } else {
            let mut place = line.to_vec();
            let parsed = ndjson::parse(&mut place).map(|trigger| owned(&trigger));
            (parsed.map_err(|error| said(&Fault::from(error))), line)
        };
        if is_unfinished && outcome.is_err() && line.len() <= way.limit {
            out.has_left = true;
            break;
        }
        if number > way.known && (!is_blank || line.len() > way.limit) {
            out.events.push(Event { line: number, outcome, raw: raw.to_vec() });
        }
        out.position = Position { lines: number, offset: out.position.offset + taken as u64 };
        rest = &rest[taken..];
    }
    out
}

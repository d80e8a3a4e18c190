//! `fencepost dlq show`: everything of one dead letter.

use super::letter::{Letter, Read};
use super::source::SourceArgs;
use super::when;
use crate::cli::{CliError, Exit, say};
use crate::wire::Frame;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;

/// Shows one dead letter: what it says about itself, its key, its headers, and the trigger inside.
///
/// A value that is no trigger is shown as bytes.
#[derive(Args)]
pub(super) struct Show {
    #[command(flatten)]
    source: SourceArgs,
    /// The partition that the letter lies in.
    #[arg(long, value_name = "P")]
    partition: u32,
    /// Its offset, as ls lists it; on disk, its sequence.
    #[arg(long, value_name = "O", value_parser = clap::value_parser!(i64).range(0..))]
    offset: i64,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let mut found = None;
        let survey = self.source.read(Some((self.partition, self.offset)), |letter| {
            // A record after the one asked for says that this one is not there any more.
            if letter.offset == self.offset {
                found = Some(letter);
            }
            false
        })?;
        let Some(letter) = found else {
            return Err(CliError::Wrong(format!(
                "{}: there is no letter at offset {} of partition {}",
                survey.place, self.offset, self.partition
            )));
        };
        if self.json {
            say!("{}", as_json(&survey.place, &letter));
        } else {
            say::out(format_args!("{}", as_text(&survey.place, &letter)));
        }
        Ok(Exit::Done)
    }
}

/// Bytes as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String does not fail");
        text
    })
}

/// Bytes for a script: exactly, and as text where they are text.
fn bytes_json(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => json!({"hex": hex(bytes), "text": std::str::from_utf8(bytes).ok()}),
    }
}

fn frame_json(frame: &Frame<'_>) -> Value {
    json!({
        "device_id": String::from_utf8_lossy(frame.device_id),
        "fence_id": String::from_utf8_lossy(frame.fence_id),
        "state": frame.state.name(),
        "event_time_ms": frame.event_time_ms,
        "hlc": frame.hlc.0,
        "accepted_unix_us": frame.accepted.0,
        "priority": format!("{:?}", frame.priority).to_lowercase(),
        "attributes": bytes_json(Some(frame.attributes)),
        "router_id": String::from_utf8_lossy(frame.router_id),
        "incarnation": frame.incarnation,
        "partition_seq": frame.partition_seq,
        "salt": frame.salt,
        "key": frame.key().to_string(),
    })
}

fn as_json(place: &str, letter: &Letter) -> Value {
    let read = letter.read();
    let notes = &read.notes;
    let frame = letter.frame();
    json!({
        "place": place,
        "partition": letter.partition,
        "offset": letter.offset,
        "time_ms": letter.time_ms,
        "is_letter": read.is_letter,
        "reason": notes.reason.text(),
        "stage": notes.stage,
        "topic": notes.topic,
        "topic_partition": notes.partition,
        "attempts": notes.attempts,
        "first_failure_ms": notes.first_failure.0,
        "last_failure_ms": notes.last_failure.0,
        "trigger": notes.key,
        "replays": notes.replays,
        "router": notes.router,
        "detail": notes.detail,
        "unread_headers": read.unread,
        "key": bytes_json(letter.key.as_deref()),
        "headers": read.own.iter().map(|header| json!({
            "name": bytes_json(Some(header.name)),
            "value": bytes_json(header.value),
        })).collect::<Vec<_>>(),
        "value": bytes_json(letter.value.as_deref()),
        "frame": frame.as_ref().map_or(Value::Null, |decoded| frame_json(&decoded.frame)),
        "fault": frame.err(),
    })
}

/// Text with what would break its line escaped, or bytes.
fn printed(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("0x{}", hex(bytes)),
        },
    }
}

fn as_text(place: &str, letter: &Letter) -> String {
    let mut text = String::new();
    write_text(&mut text, place, letter, &letter.read()).expect("writing to a String does not fail");
    text
}

fn write_text(out: &mut String, place: &str, letter: &Letter, read: &Read<'_>) -> std::fmt::Result {
    let notes = &read.notes;
    let date = |ms: i64| if ms > 0 { format!("{} ({ms})", when::date(ms)) } else { "-".to_owned() };
    writeln!(out, "{place}, partition {}, offset {}", letter.partition, letter.offset)?;
    if !read.is_letter {
        writeln!(out, "it says no reason: no letter of a router")?;
    }
    let meant_for = match notes.partition {
        Some(partition) => format!("{}, partition {partition}", notes.topic),
        None => notes.topic.to_owned(),
    };
    let rows = [
        ("reason", notes.reason.text().escape_debug().to_string()),
        ("stage", notes.stage.escape_debug().to_string()),
        ("meant for", meant_for.escape_debug().to_string()),
        ("attempts", notes.attempts.to_string()),
        ("first failure", date(notes.first_failure.0)),
        ("last failure", date(notes.last_failure.0)),
        ("trigger", notes.key.escape_debug().to_string()),
        ("replays", notes.replays.to_string()),
        ("router", notes.router.escape_debug().to_string()),
        ("detail", notes.detail.escape_debug().to_string()),
        ("record time", date(letter.time_ms.unwrap_or_default())),
        ("key", printed(letter.key.as_deref())),
    ];
    for (name, value) in rows {
        writeln!(out, "  {name:<16}{}", if value.is_empty() { "-" } else { value.as_str() })?;
    }
    for name in &read.unread {
        writeln!(out, "  {name} could not be read")?;
    }
    for header in &read.own {
        writeln!(out, "  header          {} = {}", printed(Some(header.name)), printed(header.value))?;
    }
    let bytes = letter.value.as_deref().unwrap_or_default();
    match letter.frame() {
        Ok(decoded) => {
            let frame = &decoded.frame;
            writeln!(out, "value: {} bytes, a trigger", bytes.len())?;
            let accepted_ms = frame.accepted.0 / 1_000;
            for (name, value) in [
                ("device_id", printed(Some(frame.device_id))),
                ("fence_id", printed(Some(frame.fence_id))),
                ("state", frame.state.name().to_owned()),
                ("event time", date(frame.event_time_ms)),
                ("accepted", date(accepted_ms)),
                ("hlc", frame.hlc.0.to_string()),
                ("priority", format!("{:?}", frame.priority).to_lowercase()),
                ("attributes", printed(Some(frame.attributes))),
                ("router_id", printed(Some(frame.router_id))),
                ("incarnation", frame.incarnation.to_string()),
                ("partition_seq", frame.partition_seq.to_string()),
                ("salt", frame.salt.to_string()),
            ] {
                writeln!(out, "  {name:<16}{value}")?;
            }
        }
        Err(why) => {
            writeln!(out, "value: {} bytes, no trigger: {why}", bytes.len())?;
            write_dump(out, bytes)?;
        }
    }
    Ok(())
}

/// Sixteen bytes a line: where, what, and what of it is text.
fn write_dump(out: &mut String, bytes: &[u8]) -> std::fmt::Result {
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let digits: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain: String =
            chunk.iter().map(|&byte| if (b' '..=b'~').contains(&byte) { byte as char } else { '.' }).collect();
        writeln!(out, "  {:08x}  {:<47}  {plain}", line * 16, digits.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::letter;
    use super::*;

    #[test]
    fn what_is_no_trigger_is_shown_as_bytes() {
        let mut malformed = letter(&[("fencepost.reason", "malformed"), ("trace", "7")]);
        malformed.value = Some(b"{\"device\": \xff}\nabc".to_vec());
        let text = as_text("t.dlq", &malformed);
        assert!(text.contains("  reason          malformed\n"), "{text}");
        assert!(text.contains("  header          \"trace\" = \"7\"\n"), "{text}");
        assert!(
            text.contains("  00000000  7b 22 64 65 76 69 63 65 22 3a 20 ff 7d 0a 61 62  {\"device\": .}.ab\n"),
            "{text}"
        );
        assert!(text.contains("  00000010  63                                               c\n"), "{text}");
        let json = as_json("t.dlq", &malformed);
        assert_eq!(json["value"]["hex"], "7b22646576696365223a20ff7d0a616263");
        assert!(json["value"]["text"].is_null() && json["frame"].is_null() && json["fault"].is_string());
        assert_eq!(json["headers"][0]["value"]["text"], "7");
    }
}

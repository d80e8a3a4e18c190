//! `fencepost dlq ls`: how many dead letters there are, why, and which.

use super::filter::FilterArgs;
use super::letter::{Letter, Read};
use super::source::{SourceArgs, Survey};
use super::{now_ms, when};
use crate::cli::table::{grouped, right};
use crate::cli::{CliError, Exit, say};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts the dead letters by reason and by partition, and lists the first of them.
///
/// It reads from the topic's first record to the end it has at the start. Nothing is changed and no group is joined.
#[derive(Args)]
pub(super) struct Ls {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many letters are listed; all are counted.
    #[arg(long, default_value_t = 20, value_name = "N")]
    max: usize,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// What is counted of some letters.
#[derive(Default)]
struct Tally {
    letters: u64,
    oldest_ms: Option<i64>,
    newest_ms: Option<i64>,
}

impl Tally {
    fn add(&mut self, failed_ms: Option<i64>) {
        self.letters += 1;
        self.oldest_ms = self.oldest_ms.into_iter().chain(failed_ms).min();
        self.newest_ms = self.newest_ms.into_iter().chain(failed_ms).max();
    }
}

#[derive(Default)]
struct Counted {
    all: Tally,
    by_reason: BTreeMap<String, Tally>,
    by_partition: BTreeMap<u32, Tally>,
    /// Records of the topic that say no reason.
    not_letters: u64,
    rows: Vec<Row>,
}

struct Row {
    partition: u32,
    offset: i64,
    failed_ms: Option<i64>,
    reason: String,
    replays: u32,
    trigger: String,
}

impl Row {
    fn of(letter: &Letter, read: &Read<'_>) -> Row {
        let trigger = match (letter.frame(), read.notes.key) {
            (Ok(decoded), _) => decoded.frame.key().to_string(),
            (Err(_), "") => format!("{} bytes, no trigger", letter.value.as_ref().map_or(0, Vec::len)),
            (Err(_), printed) => printed.to_owned(),
        };
        Row {
            partition: letter.partition,
            offset: letter.offset,
            failed_ms: letter.failed_ms(&read.notes),
            reason: read.notes.reason.text().to_owned(),
            replays: read.notes.replays,
            trigger,
        }
    }
}

impl Ls {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let filter = self.filter.understood(now_ms())?;
        let mut counted = Counted::default();
        let survey = self.source.read(None, |letter| {
            let read = letter.read();
            if !read.is_letter {
                counted.not_letters += 1;
            } else if filter.takes(&letter, &read) {
                let failed_ms = letter.failed_ms(&read.notes);
                counted.all.add(failed_ms);
                counted.by_reason.entry(read.notes.reason.text().to_owned()).or_default().add(failed_ms);
                counted.by_partition.entry(letter.partition).or_default().add(failed_ms);
                if counted.rows.len() < self.max {
                    counted.rows.push(Row::of(&letter, &read));
                }
            }
            true
        })?;
        counted.rows.sort_by_key(|row| (row.partition, row.offset));
        if self.json {
            say!("{}", as_json(&survey, &counted));
        } else {
            say::out(format_args!("{}", as_text(&survey, &counted)));
        }
        Ok(Exit::Done)
    }
}

fn as_json(survey: &Survey, counted: &Counted) -> Value {
    let tally =
        |tally: &Tally| json!({"letters": tally.letters, "oldest_ms": tally.oldest_ms, "newest_ms": tally.newest_ms});
    let reasons: serde_json::Map<String, Value> =
        counted.by_reason.iter().map(|(reason, of)| (reason.clone(), tally(of))).collect();
    let partitions: serde_json::Map<String, Value> =
        counted.by_partition.iter().map(|(partition, of)| (partition.to_string(), tally(of))).collect();
    json!({
        "place": survey.place,
        "records": survey.records,
        "not_letters": counted.not_letters,
        "unreadable": survey.unreadable,
        "stopped": survey.stopped,
        "letters": counted.all.letters,
        "oldest_ms": counted.all.oldest_ms,
        "newest_ms": counted.all.newest_ms,
        "by_reason": reasons,
        "by_partition": partitions,
        "rows": counted.rows.iter().map(|row| json!({
            "partition": row.partition,
            "offset": row.offset,
            "failed_ms": row.failed_ms,
            "reason": row.reason,
            "replays": row.replays,
            "trigger": row.trigger,
        })).collect::<Vec<_>>(),
    })
}

fn as_text(survey: &Survey, counted: &Counted) -> String {
    let mut text = String::new();
    write_text(&mut text, survey, counted).expect("writing to a String does not fail");
    text
}

fn write_text(out: &mut String, survey: &Survey, counted: &Counted) -> std::fmt::Result {
    let date = |ms: Option<i64>| ms.map_or_else(|| "-".to_owned(), when::date);
    let letters = counted.all.letters;
    writeln!(out, "{}: {} letters of {} records", survey.place, grouped(letters), grouped(survey.records))?;
    for (count, what) in [
        (counted.not_letters, "records say no reason: no letters of a router"),
        (survey.unreadable, "records have notes of another version, or damaged ones"),
    ] {
        if count > 0 {
            writeln!(out, "{} {what}", grouped(count))?;
        }
    }
    if survey.stopped {
        writeln!(out, "stopped before the end")?;
    }
    if letters == 0 {
        return Ok(());
    }
    let wide = counted.by_reason.keys().map(|reason| shown(reason).chars().count()).max().unwrap_or(0).max(9);
    let mut table = |title: &str, rows: Vec<(String, &Tally)>| -> std::fmt::Result {
        writeln!(out, "\n{title:<wide$}  {}  {:<24}  newest", right("letters", 11), "oldest")?;
        for (name, tally) in rows {
            let (oldest, newest) = (date(tally.oldest_ms), date(tally.newest_ms));
            writeln!(out, "{name:<wide$}  {}  {oldest:<24}  {newest}", right(&grouped(tally.letters), 11))?;
        }
        Ok(())
    };
    table("reason", counted.by_reason.iter().map(|(reason, tally)| (shown(reason), tally)).collect())?;
    table("partition", counted.by_partition.iter().map(|(partition, tally)| (partition.to_string(), tally)).collect())?;
    if !counted.rows.is_empty() {
        writeln!(out, "\npartition       offset  failed                    {:<wide$}  replays  trigger", "reason")?;
    }
    for row in &counted.rows {
        let Row { partition, offset, failed_ms, reason, replays, trigger } = row;
        let failed = date(*failed_ms);
        writeln!(out, "{partition:>9}  {offset:>11}  {failed:<24}  {:<wide$}  {replays:>7}  {trigger}", shown(reason))?;
    }
    let more = letters - counted.rows.len() as u64;
    if more > 0 {
        writeln!(out, "and {} more; --max lists more, and show tells all of one", grouped(more))?;
    }
    Ok(())
}

/// A reason for a line: the caller's own words may hold anything.
fn shown(reason: &str) -> String {
    match reason {
        "" => "(none)".to_owned(),
        reason => reason.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::letter;
    use super::*;

    #[test]
    fn counts_and_rows_line_up() {
        let mut counted = Counted::default();
        for (reason, ms) in [("refused", "1700000000000"), ("refused", "1600000000000"), ("a\nb", "1700000000001")] {
            let letter = letter(&[
                ("fencepost.reason", reason),
                ("fencepost.last_failure_ms", ms),
                ("fencepost.key", "bus/zone/enter/17"),
            ]);
            let read = letter.read();
            let failed = letter.failed_ms(&read.notes);
            counted.all.add(failed);
            counted.by_reason.entry(reason.to_owned()).or_default().add(failed);
            counted.by_partition.entry(2).or_default().add(failed);
            counted.rows.push(Row::of(&letter, &read));
        }
        counted.rows.pop();
        let survey = Survey { place: "t.dlq".into(), records: 4, ..Survey::default() };
        let text = as_text(&survey, &counted);
        assert!(text.starts_with("t.dlq: 3 letters of 4 records\n"), "{text}");
        assert!(
            text.contains("refused              2  2020-09-13T12:26:40.000Z  2023-11-14T22:13:20.000Z\n"),
            "{text}"
        );
        assert!(text.contains("a\\nb "), "{text}");
        assert!(
            text.contains("        2            7  2023-11-14T22:13:20.000Z  refused          0  bus/zone/enter/17\n"),
            "{text}"
        );
        assert!(text.ends_with("and 1 more; --max lists more, and show tells all of one\n"), "{text}");
        let json = as_json(&survey, &counted);
        assert_eq!((&json["letters"], &json["by_reason"]["refused"]["letters"]), (&json!(3), &json!(2)));
        assert_eq!(json["oldest_ms"], json!(1_600_000_000_000_i64));
    }
}

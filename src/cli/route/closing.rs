//! The closing report: what became of every line, for a person or, with `--json`, for a script.

use super::Ended;
use super::pump::Tally;
use crate::cli::Exit;
use crate::config::{Config, DivertPolicy};
use crate::engine::disk::{LETTER_DIR, SPILL_DIR};
use crate::engine::{Counts, Report};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// See the [module](self).
pub(super) struct Closing<'a> {
    pub(super) name: String,
    pub(super) ended: Ended,
    pub(super) resumed_after: Option<u64>,
    pub(super) report: Report,
    pub(super) took: Duration,
    pub(super) tally: &'a Tally,
    pub(super) is_socket: bool,
    /// What was read and not taken is still where it came from: the peer, or the file, which is read again.
    pub(super) is_remembered: bool,
    pub(super) places: Places,
}

/// Where triggers are that are not in the topic.
pub(super) struct Places {
    /// Of the state directory.
    spill: Option<PathBuf>,
    /// In words.
    letters: String,
    /// Dead letters are what was asked for.
    diverts_to_letters: bool,
}

impl Places {
    pub(super) fn of(config: &Config) -> Places {
        let on_disk = config.state.dir.as_ref().map(|state| state.join(LETTER_DIR).display().to_string());
        let letters = match (config.dead_letter_topic(), on_disk) {
            (Some(topic), Some(disk)) => format!("in the topic {topic}, or in {disk} until it takes them"),
            (Some(topic), None) => format!("in the topic {topic}"),
            (None, Some(disk)) => format!("in {disk}"),
            (None, None) => "nowhere".into(),
        };
        Places {
            spill: config.state.dir.as_ref().map(|state| state.join(SPILL_DIR)),
            letters,
            diverts_to_letters: config.divert_policy() == DivertPolicy::DeadLetter,
        }
    }
}

impl Closing<'_> {
    pub(super) fn print(&self, as_json: bool) {
        if as_json {
            say!("{}", self.as_json());
        } else {
            self.print_table();
        }
        for sentence in self.problems().into_iter().chain(self.notes()) {
            tell!("{sentence}");
        }
    }

    /// 0 all delivered, 1 something is not and will not be, 3 the source or the router failed, or some of it waits on disk.
    pub(super) fn exit(&self) -> Exit {
        match self.ended {
            Ended::Broken(_) => Exit::Unavailable,
            _ if !self.problems().is_empty() => Exit::Wrong,
            _ if self.report.counts.in_spill > 0 => Exit::Unavailable,
            _ => Exit::Done,
        }
    }

    /// What is as it was asked to be, and is not in the topic.
    fn notes(&self) -> Vec<String> {
        let Counts { in_spill, dead_lettered, .. } = self.report.counts;
        let mut notes = Vec::new();
        if dead_lettered > 0 && (self.places.diverts_to_letters || self.unasked_letters() == 0) {
            notes.push(self.dead_letters(dead_lettered));
        }
        if let (Some(spill), 1..) = (&self.places.spill, in_spill) {
            let spill = spill.display();
            notes.push(format!(
                "{in_spill} triggers wait on disk in {spill} for the broker; the next run delivers them"
            ));
        }
        notes
    }

    /// Dead letters that the router made. Those of the source have sentences of their own, or were asked for
    /// (`route.on_shed`).
    fn unasked_letters(&self) -> u64 {
        self.report.counts.dead_lettered.saturating_sub(Tally::get(&self.tally.lettered))
    }

    fn dead_letters(&self, count: u64) -> String {
        format!("{count} triggers became dead letters: they are {}", self.places.letters)
    }

    /// Each a sentence with its number; what a socket's peers were told themselves is none.
    fn problems(&self) -> Vec<String> {
        let counts = &self.report.counts;
        let refused = |count| if self.is_socket { 0 } else { count };
        let counted = [
            (refused(Tally::get(&self.tally.malformed)), "lines were malformed: they are no triggers"),
            (refused(Tally::get(&self.tally.rejected)), "triggers were rejected: they break a rule"),
            (counts.failed, "triggers failed: nothing durable would take them"),
            (counts.corrupt, "triggers were settled on disk, and the disk has lost them"),
            (counts.unsettled(), "triggers are unsettled: accepted, and nothing durable has them"),
            (
                if self.is_remembered { 0 } else { Tally::get(&self.tally.unoffered) },
                "triggers were read and not taken before the stop",
            ),
        ];
        let mut problems: Vec<String> =
            counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        if self.unasked_letters() > 0 && !self.places.diverts_to_letters {
            problems.push(self.dead_letters(counts.dead_lettered));
        }
        if !counts.add_up() || !self.report.lost_shards.is_empty() {
            let lost = &self.report.lost_shards;
            problems.push(format!("the counters may be off: shards {lost:?} did not end in time\n{counts}"));
        }
        if let Ended::Broken(why) = &self.ended {
            problems.push(why.clone());
        }
        problems
    }

    fn rate(&self) -> f64 {
        Tally::get(&self.tally.lines) as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn ended(&self) -> &'static str {
        match self.ended {
            Ended::AtTheEnd => "end",
            Ended::BySignal => "signal",
            Ended::Broken(_) => "failure",
        }
    }

    fn as_json(&self) -> Value {
        let tally = self.tally;
        let mut all = serde_json::to_value(self.report.counts).unwrap_or_else(|_| json!({}));
        let extra = json!({
            "source": self.name,
            "ended": self.ended(),
            "resumed_after": self.resumed_after,
            "lines": Tally::get(&tally.lines),
            "malformed": Tally::get(&tally.malformed),
            "rejected": Tally::get(&tally.rejected),
            "lettered": Tally::get(&tally.lettered),
            "unoffered": Tally::get(&tally.unoffered),
            "unsettled": self.report.counts.unsettled(),
            "waits": Tally::get(&tally.waits),
            "connections": Tally::get(&tally.connections),
            "turned_away": Tally::get(&tally.turned_away),
            "cut": Tally::get(&tally.cut),
            "bytes": Tally::get(&tally.bytes),
            "seconds": self.took.as_secs_f64(),
            "rate": self.rate(),
            "adds_up": self.report.counts.add_up(),
        });
        if let (Value::Object(all), Value::Object(extra)) = (&mut all, extra) {
            all.extend(extra);
        }
        all
    }

    fn print_table(&self) {
        let (tally, counts) = (self.tally, &self.report.counts);
        let ended = match &self.ended {
            Ended::AtTheEnd => "read to its end",
            Ended::BySignal => "stopped by a signal",
            Ended::Broken(_) => "broken off",
        };
        say!("{}: {ended} after {:.2} s", self.name, self.took.as_secs_f64());
        let bytes = Tally::get(&tally.bytes);
        let mut rows = vec![
            ("lines", Tally::get(&tally.lines), format!("{bytes} bytes, {:.0} lines/s", self.rate())),
            ("malformed", Tally::get(&tally.malformed), "no triggers; passed over, or dead letters".into()),
            ("rejected", Tally::get(&tally.rejected), "break a rule; passed over, or dead letters".into()),
            ("accepted", counts.accepted, format!("after {} waits for room", Tally::get(&tally.waits))),
            ("delivered", counts.delivered, "acknowledged by the broker".into()),
            ("deduplicated", counts.deduplicated, "repeats of such".into()),
            ("recovered", counts.recovered, "found on disk at the start".into()),
            ("spilled", counts.spilled, "settled by the disk while their partition was stalled".into()),
            ("drained", counts.drained, "came back from the disk".into()),
            ("in_spill", counts.in_spill, "on disk, to be delivered".into()),
            ("dead_lettered", counts.dead_lettered, "could not be delivered, and are kept".into()),
            ("corrupt", counts.corrupt, "lost by the disk".into()),
            ("failed", counts.failed, "nothing durable would take them".into()),
            ("unsettled", counts.unsettled(), "nothing durable has them".into()),
            ("unoffered", Tally::get(&tally.unoffered), "read, and not taken before the stop".into()),
        ];
        if self.is_socket {
            let (away, cut) = (Tally::get(&tally.turned_away), Tally::get(&tally.cut));
            let connections = Tally::get(&tally.connections);
            rows.push(("connections", connections, format!("{away} more turned away, {cut} cut from this side")));
        }
        for (name, count, about) in rows {
            say!("{name:>13}  {count:>12}  {about}");
        }
    }
}

//! The closing report: what became of every line, for a person or, with `--json`, for a script.

use super::Ended;
use super::pump::Tally;
use crate::cli::Exit;
use crate::engine::Report;
use serde_json::{Value, json};
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
}

impl Closing<'_> {
    pub(super) fn print(&self, as_json: bool) {
        if as_json {
            say!("{}", self.as_json());
        } else {
            self.print_table();
        }
        for problem in self.problems() {
            tell!("{problem}");
        }
    }

    /// 0 all delivered, 1 not all, 3 the source or the router failed.
    pub(super) fn exit(&self) -> Exit {
        match self.ended {
            Ended::Broken(_) => Exit::Unavailable,
            _ if self.problems().is_empty() => Exit::Done,
            _ => Exit::Wrong,
        }
    }

    /// Each a sentence with its number; what a socket's peers were told themselves is none.
    fn problems(&self) -> Vec<String> {
        let counts = &self.report.counts;
        let refused = |count| if self.is_socket { 0 } else { count };
        let counted = [
            (refused(Tally::get(&self.tally.malformed)), "lines were malformed and passed over"),
            (refused(Tally::get(&self.tally.rejected)), "triggers were rejected: they break a rule"),
            (counts.failed, "triggers failed: nothing durable would take them"),
            (counts.unsettled(), "triggers are unsettled: accepted, and not known to be delivered"),
            (
                if self.is_remembered { 0 } else { Tally::get(&self.tally.unoffered) },
                "triggers were read and not taken before the stop",
            ),
        ];
        let mut problems: Vec<String> =
            counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
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
            ("malformed", Tally::get(&tally.malformed), "no triggers; passed over".into()),
            ("rejected", Tally::get(&tally.rejected), "break a rule; passed over".into()),
            ("accepted", counts.accepted, format!("after {} waits for room", Tally::get(&tally.waits))),
            ("delivered", counts.delivered, "acknowledged by the broker".into()),
            ("deduplicated", counts.deduplicated, "repeats of such".into()),
            ("failed", counts.failed, "nothing durable would take them".into()),
            ("unsettled", counts.unsettled(), "not known to be delivered".into()),
            ("unoffered", Tally::get(&tally.unoffered), "read, and not taken before the stop".into()),
        ];
        if self.is_socket {
            let (away, cut) = (Tally::get(&tally.turned_away), Tally::get(&tally.cut));
            let connections = Tally::get(&tally.connections);
            rows.push(("connections", connections, format!("{away} more turned away, {cut} cut from this side")));
        }
        for (name, count, about) in rows {
            say!("{name:>12}  {count:>12}  {about}");
        }
    }
}

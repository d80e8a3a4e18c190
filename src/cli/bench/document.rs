//! The document of `--json`: what was measured, by which program, called how, when, on which machine. It describes itself:
//! a schema with its version, and a unit beside each number. Within a version names are only added.

use super::machine::Machine;
use super::outcome::Outcome;
use super::report::flame::Flame;
use serde::{Deserialize, Serialize};

/// The name of the schema.
pub(super) const SCHEMA: &str = "fencepost.bench";
/// Its version: higher when a name changes its meaning or goes.
pub(super) const VERSION: u32 = 1;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) schema: String,
    pub(super) version: u32,
    pub(super) program: Program,
    /// The command line.
    pub(super) command: Vec<String>,
    /// When the measurement began, in UTC.
    pub(super) began: String,
    pub(super) took_seconds: f64,
    pub(super) machine: Machine,
    pub(super) outcome: Outcome,
    /// Where the CPU time went, for the HTML report alone.
    #[serde(skip)]
    pub(super) flame: Option<Flame>,
}

/// What measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) version: String,
    /// The commit it was built from, where FENCEPOST_COMMIT said it at build.
    pub(super) commit: Option<String>,
    /// Whether it was built with assertions on: its figures are not those of a release then.
    pub(super) has_debug_assertions: bool,
    /// The client library.
    pub(super) librdkafka: String,
}

impl Program {
    pub(super) fn this() -> Program {
        Program {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("FENCEPOST_COMMIT").map(Into::into),
            has_debug_assertions: cfg!(debug_assertions),
            librdkafka: crate::sink::kafka::features::version(),
        }
    }
}

impl Document {
    /// Two spaces of indent: a person looks at it too.
    pub(super) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document is made of texts and finite numbers");
        text.push('\n');
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::outcome::{Axis, Band, Cell, Chart, Outcome, Table, Unit};
    use super::*;

    /// One of everything, with texts that markup would trip over.
    pub(in crate::cli::bench) fn sample() -> Document {
        let mut outcome = Outcome::new("outage", "Brokers <frozen> for 2 s & thawed".into());
        outcome.set("rate", "asked for", 1_000_u64, Unit::PerSecond);
        outcome.set("brokers", "brokers", "mock", Unit::None);
        outcome.figure("lost", "lost", 0_u64, Unit::Count);
        outcome.figure("drain_rate", "drained", 133_372.5, Unit::PerSecond);
        outcome.figure("nothing", "not measured", None::<f64>, Unit::Nanos);
        let mut table = Table::new("Quantiles", &[("who", Unit::None), ("P99", Unit::Nanos)]);
        table.row(["fencepost".into(), 8.5e6.into()]);
        table.row(["raw".into(), Cell::Nothing]);
        outcome.tables.push(table);
        let mut chart = Chart::over_time("Throughput \"over\" time", Axis::linear("rate", Unit::PerSecond));
        chart.curve("accepted", [(0.0, 0.0), (0.5, 1_000.0), (1.0, 990.0)]);
        chart.bands.push(Band { label: "frozen".into(), from: 0.2, to: 0.6 });
        outcome.charts.push(chart);
        let mut chart = Chart::by_quantile("Submit to acknowledged");
        chart.curve("fencepost", [(0.0, 1e6), (0.9, 5e6), (0.999, 9e6)]);
        outcome.charts.push(chart);
        outcome.check("lost", true, "nothing is lost");
        outcome.notes.push("a note".into());
        Document {
            schema: SCHEMA.into(),
            version: VERSION,
            program: Program::this(),
            command: vec!["fencepost".into(), "bench".into(), "--html=<a&b>.html".into()],
            began: "2026-12-01T10:00:00Z".into(),
            took_seconds: 4.25,
            machine: Machine::read(),
            outcome,
            flame: None,
        }
    }

    #[test]
    fn a_document_read_back_is_the_one_that_was_written() {
        let document = sample();
        let back: Document = serde_json::from_str(&document.json()).unwrap();
        assert_eq!(back, document);
    }

    #[test]
    fn the_document_has_the_names_that_scripts_read() {
        let value: serde_json::Value = serde_json::from_str(&sample().json()).unwrap();
        assert_eq!((value["schema"].as_str(), value["version"].as_u64()), (Some("fencepost.bench"), Some(1)));
        let outcome = &value["outcome"];
        assert_eq!(outcome["figures"][1]["name"], "drain_rate");
        assert_eq!(
            (&outcome["figures"][1]["value"], &outcome["figures"][1]["unit"]),
            (&133_372.5.into(), &"1/s".into())
        );
        assert!(outcome["figures"][2]["value"].is_null());
        assert_eq!(outcome["tables"][0]["columns"][1]["unit"], "ns");
        assert_eq!(outcome["tables"][0]["rows"][0][0], "fencepost");
        assert_eq!(outcome["charts"][1]["x"]["scale"], "quantile");
        assert_eq!(outcome["checks"][0]["is_good"], true);
        assert!(value["machine"]["cores"].as_u64().unwrap() > 0);
    }
}

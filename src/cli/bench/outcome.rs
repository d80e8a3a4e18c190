//! What a measurement came to: figures, tables, charts and checks, each number with its unit. Every subcommand returns one;
//! the text on the terminal, the JSON document and the HTML report are three ways to show it, and none of them computes.

use crate::cli::table::{bytes, grouped, span};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Unit {
    #[serde(rename = "ns")]
    Nanos,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "count")]
    Count,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "ratio")]
    Ratio,
    /// The share of the values that are at most as large: 0 to below 1.
    #[serde(rename = "quantile")]
    Quantile,
    /// For texts.
    #[serde(rename = "")]
    None,
}

impl Unit {
    /// The number for a person's eye.
    pub(super) fn text(self, value: f64) -> String {
        let whole = value.max(0.0).round() as u64;
        match self {
            Unit::Nanos if value < 10.0 => format!("{value:.1} ns"),
            Unit::Nanos => span(Nanos(whole)),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Bytes => bytes(whole),
            Unit::Count => grouped(whole),
            Unit::PerSecond => format!("{}/s", grouped(whole)),
            Unit::Ratio | Unit::None => format!("{value:.2}"),
            Unit::Quantile => format!("{} %", trimmed(value * 100.0, 5)),
        }
    }
}

/// At most so many decimals, and no zeros at their end.
pub(super) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// One value of a table, a setting or a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Cell {
    Number(f64),
    Text(String),
    /// There is none: `null`.
    Nothing,
}

impl Cell {
    pub(super) fn text(&self, unit: Unit) -> String {
        match self {
            Cell::Number(value) => unit.text(*value),
            Cell::Text(text) => text.clone(),
            Cell::Nothing => "-".into(),
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        // JSON knows no other numbers.
        if value.is_finite() { Cell::Number(value) } else { Cell::Nothing }
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Number(value as f64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Nothing, Into::into)
    }
}

/// A setting that the measurement was made with, or a figure that it came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// For scripts: it does not change between versions of the schema.
    pub(super) name: String,
    /// For people.
    pub(super) label: String,
    pub(super) value: Cell,
    pub(super) unit: Unit,
}

/// Rows of values; a column has one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// See [`Table`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) unit: Unit,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Spans of x that are shaded.
    pub(super) bands: Vec<Band>,
}

/// See [`Chart`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) unit: Unit,
    pub(super) scale: ScaleKind,
}

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ScaleKind {
    /// From nought on.
    Linear,
    Log,
    /// Quantiles by the logarithm of 1 / (1 - p), so that each further nine is as wide.
    Quantile,
}

/// One curve: pairs of x and y, by rising x.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// See [`Chart`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Band {
    pub(super) label: String,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// Something that must be so; where it is not, the exit code is 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) is_good: bool,
    /// What was found, in words.
    pub(super) found: String,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The subcommand.
    pub(super) bench: String,
    /// What was measured, in a sentence.
    pub(super) title: String,
    /// A person, or the system, ended it early: it tells of what was done by then.
    pub(super) is_interrupted: bool,
    pub(super) settings: Vec<Entry>,
    pub(super) figures: Vec<Entry>,
    pub(super) tables: Vec<Table>,
    pub(super) charts: Vec<Chart>,
    pub(super) checks: Vec<Check>,
    /// What a reader should know before comparing the figures with others.
    pub(super) notes: Vec<String>,
}

impl Axis {
    pub(super) fn linear(label: &str, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, scale: ScaleKind::Linear }
    }

    pub(super) fn log(label: &str, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, scale: ScaleKind::Log }
    }
}

impl Chart {
    pub(super) fn new(title: &str, x: Axis, y: Axis) -> Chart {
        Chart { title: title.into(), x, y, series: Vec::new(), bands: Vec::new() }
    }

    /// Seconds since the beginning against something.
    pub(super) fn over_time(title: &str, y: Axis) -> Chart {
        Chart::new(title, Axis::linear("since the beginning", Unit::Seconds), y)
    }

    /// Durations by their quantile, as HdrHistogram plots them.
    pub(super) fn by_quantile(title: &str) -> Chart {
        let x = Axis { label: "quantile".into(), unit: Unit::Quantile, scale: ScaleKind::Quantile };
        Chart::new(title, x, Axis::linear("at most", Unit::Nanos))
    }

    /// A curve without points is left out.
    pub(super) fn curve(&mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let points: Vec<_> = points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        if !points.is_empty() {
            self.series.push(Series { name: name.into(), points });
        }
    }
}

impl Table {
    pub(super) fn new(title: &str, columns: &[(&str, Unit)]) -> Table {
        let columns = columns.iter().map(|(name, unit)| Column { name: (*name).into(), unit: *unit }).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    /// # Panics
    /// If the row has more or fewer cells than there are columns.
    pub(super) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column of {}", self.title);
        self.rows.push(cells.into());
    }
}

impl Outcome {
    pub(super) fn new(bench: &str, title: String) -> Outcome {
        Outcome {
            bench: bench.into(),
            title,
            is_interrupted: false,
            settings: Vec::new(),
            figures: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn set(&mut self, name: &str, label: &str, value: impl Into<Cell>, unit: Unit) {
        self.settings.push(Entry { name: name.into(), label: label.into(), value: value.into(), unit });
    }

    pub(super) fn figure(&mut self, name: &str, label: &str, value: impl Into<Cell>, unit: Unit) {
        self.figures.push(Entry { name: name.into(), label: label.into(), value: value.into(), unit });
    }

    pub(super) fn check(&mut self, name: &str, is_good: bool, found: impl Into<String>) {
        self.checks.push(Check { name: name.into(), is_good, found: found.into() });
    }

    /// Whether all that was checked is as it should be.
    pub(super) fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.is_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units_for_the_eye() {
        for (unit, value, text) in [
            (Unit::Nanos, 4.25, "4.2 ns"),
            (Unit::Nanos, 8_140_000.0, "8.14 ms"),
            (Unit::Bytes, 1_048_576.0, "1.0 MiB"),
            (Unit::Count, 1_234_567.0, "1,234,567"),
            (Unit::PerSecond, 50_000.4, "50,000/s"),
            (Unit::Ratio, 0.954, "0.95"),
            (Unit::Quantile, 0.999, "99.9 %"),
            (Unit::Quantile, 0.99999, "99.999 %"),
            (Unit::Seconds, 1.5, "1.50 s"),
        ] {
            assert_eq!(unit.text(value), text);
        }
        assert_eq!((trimmed(100.0, 3), trimmed(0.5, 3), trimmed(7.0, 0)), ("100".into(), "0.5".into(), "7".into()));
    }

    #[test]
    fn what_is_no_number_is_nothing_and_one_wrong_check_is_enough() {
        assert_eq!(Cell::from(f64::NAN), Cell::Nothing);
        assert_eq!(Cell::from(None::<u64>), Cell::Nothing);
        let mut outcome = Outcome::new("ceiling", "As fast as it goes.".into());
        assert!(outcome.is_good(), "nothing was checked");
        outcome.check("adds_up", true, "it does");
        assert!(outcome.is_good());
        outcome.check("lost", false, "one is");
        assert!(!outcome.is_good());
    }
}

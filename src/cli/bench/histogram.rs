//! Durations: a histogram from a microsecond to an hour with three digits, its quantiles for tables and the points of its
//! curve for charts.

use super::outcome::{Cell, Column, Table, Unit};
use hdrhistogram::Histogram;
use std::time::Duration;

/// What tables show.
pub(super) const QUANTILES: [(&str, f64); 6] =
    [("P50", 0.5), ("P95", 0.95), ("P99", 0.99), ("P99.9", 0.999), ("P99.99", 0.9999), ("max", 1.0)];
/// The last quantile of a curve, as nines: 99.999 %.
const NINES: u32 = 5;
/// Points for each nine.
const POINTS_EACH: u32 = 20;

pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).expect("the bounds are those of the documentation")
}

pub(super) fn note(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

/// In nanoseconds, by [`QUANTILES`].
pub(super) fn quantiles(histogram: &Histogram<u64>) -> [f64; 6] {
    QUANTILES.map(|(_, quantile)| histogram.value_at_quantile(quantile) as f64)
}

/// A table of quantiles: who, how many, and each of [`QUANTILES`].
pub(super) fn quantile_table(title: &str) -> Table {
    let mut table = Table::new(title, &[("who", Unit::None), ("count", Unit::Count)]);
    table.columns.extend(QUANTILES.map(|(name, _)| Column { name: name.into(), unit: Unit::Nanos }));
    table
}

/// A row of [`quantile_table`].
pub(super) fn quantile_row(table: &mut Table, name: &str, histogram: &Histogram<u64>) {
    let mut row: Vec<Cell> = vec![name.into(), histogram.len().into()];
    row.extend(quantiles(histogram).map(Cell::from));
    table.rows.push(row);
}

/// The curve: quantile and nanoseconds, up to 99.999 % or to where a single value decides, whichever comes first: what
/// would stand beyond it is the maximum, again and again.
pub(super) fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let count = histogram.len();
    if count == 0 {
        return Vec::new();
    }
    let last = 1.0 - 1.0 / count as f64;
    let quantiles = (0..=NINES * POINTS_EACH).map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS_EACH)));
    quantiles
        .take_while(|quantile| *quantile <= last + 1e-12)
        .map(|quantile| (quantile, histogram.value_at_quantile(quantile) as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = new_histogram();
        values.into_iter().for_each(|us| note(&mut histogram, Duration::from_micros(us)));
        histogram
    }

    #[test]
    fn a_curve_ends_where_one_value_decides() {
        assert!(curve(&of([])).is_empty());
        assert_eq!(curve(&of([7])).len(), 1, "of one value there is one point");
        let thousand = curve(&of(1..=1_000));
        assert_eq!(thousand.len(), 61, "three nines of 20 points each, and the beginning");
        assert!((thousand[60].0 - 0.999).abs() < 1e-9, "{:?}", thousand[60]);
        assert!(thousand.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        let at = |quantile: f64| thousand.iter().find(|point| (point.0 - quantile).abs() < 1e-9).unwrap().1;
        assert!((at(0.9) - 900_000.0).abs() < 1_000.0, "{}", at(0.9));
        assert_eq!(curve(&of((0..200_000).map(|n| n % 977 + 1))).len(), 101, "never beyond 99.999 %");
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let mut table = quantile_table("submit to acknowledged");
        quantile_row(&mut table, "fencepost", &of(1..=1_000));
        assert_eq!(table.rows[0].len(), table.columns.len());
        assert_eq!(table.rows[0][1], Cell::Number(1_000.0));
    }
}

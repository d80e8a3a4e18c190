//! The memory sum: what is allocated at start, line by line, with the part that owns it.

use std::fmt;

/// One allocation, or several of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLine {
    /// What it is, such as "ingress rings".
    pub what: String,
    /// The part that owns it, such as "ring".
    pub owner: &'static str,
    /// How much, over all shards and ingresses.
    pub bytes: u64,
}

/// A list of [`MemoryLine`]s that knows its sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySum {
    lines: Vec<MemoryLine>,
}

impl MemorySum {
    /// An empty sum.
    #[must_use]
    pub fn new() -> MemorySum {
        MemorySum::default()
    }

    /// Puts a line in: a line of the same `what` and `owner` is replaced, so that a part's own figure takes the place
    /// of the estimate.
    pub fn set(&mut self, what: impl Into<String>, owner: &'static str, bytes: u64) {
        let what = what.into();
        match self.lines.iter_mut().find(|line| line.what == what && line.owner == owner) {
            Some(line) => line.bytes = bytes,
            None => self.lines.push(MemoryLine { what, owner, bytes }),
        }
    }

    /// The lines, in the order they came.
    #[must_use]
    pub fn lines(&self) -> &[MemoryLine] {
        &self.lines
    }

    /// The sum over all lines. One that does not fit 64 bits is the greatest number: no machine has that much.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lines.iter().fold(0, |sum, line| sum.saturating_add(line.bytes))
    }
}

/// `102400000` as `97.7 MiB`.
fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1_024.0;
    let mut unit = 0;
    // The next unit already where the rounded figure would read 1024.0.
    while amount >= 1_023.95 && unit + 1 < UNITS.len() {
        amount /= 1_024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// `102400000` as `102,400,000`.
fn in_groups(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

impl fmt::Display for MemorySum {
    /// A table: what, owner, exact bytes, and the same in units; the sum comes last.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<(&str, &str, String, String)> = self
            .lines
            .iter()
            .map(|line| (line.what.as_str(), line.owner, line.bytes))
            .chain([("sum", "", self.total())])
            .map(|(what, owner, bytes)| (what, owner, in_groups(bytes), in_units(bytes)))
            .collect();
        let widest = |width: fn(&(&str, &str, String, String)) -> usize| rows.iter().map(width).max().unwrap_or(0);
        let (what_width, owner_width) = (widest(|row| row.0.chars().count()), widest(|row| row.1.chars().count()));
        let (exact_width, unit_width) = (widest(|row| row.2.len()), widest(|row| row.3.len()));
        for (what, owner, exact, units) in &rows {
            writeln!(
                out,
                "{what:<what_width$}  {owner:<owner_width$}  {exact:>exact_width$} bytes  {units:>unit_width$}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_groups() {
        for (bytes, units, groups) in [
            (0, "0 B", "0"),
            (999, "999 B", "999"),
            (1_023, "1023 B", "1,023"),
            (1_024, "1.0 KiB", "1,024"),
            (1_048_575, "1.0 MiB", "1,048,575"),
            (102_400_000, "97.7 MiB", "102,400,000"),
            (u64::MAX, "16.0 EiB", "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(in_units(bytes), units);
            assert_eq!(in_groups(bytes), groups);
        }
    }

    #[test]
    fn a_parts_own_figure_replaces_the_estimate_and_the_table_adds_up() {
        let mut sum = MemorySum::new();
        sum.set("ingress rings", "ring", 1);
        sum.set("table", "dedup", 2_000);
        sum.set("ingress rings", "ring", 1_000_000);
        assert_eq!(sum.lines().len(), 2);
        assert_eq!(sum.total(), 1_002_000);
        assert_eq!(
            sum.to_string(),
            "ingress rings  ring   1,000,000 bytes  976.6 KiB\n\
             table          dedup      2,000 bytes    2.0 KiB\n\
             sum                   1,002,000 bytes  978.5 KiB\n"
        );
    }
}

//! Numbers and tables for a person's eye: thousands separated, units that fit the size, columns that line up. A script
//! takes `--json` instead.

use crate::units::Nanos;

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A span with three significant digits and a unit of two letters or one: `87 ns`, `8.14 ms`, `1.25 s`.
#[must_use]
pub fn span(span: Nanos) -> String {
    let nanos = span.0;
    if nanos < 1_000 {
        return format!("{nanos} ns");
    }
    // The bounds are those at which three digits would read 1000 of the smaller unit.
    let (amount, unit) = match nanos {
        0..999_500 => (nanos as f64 / 1e3, "µs"),
        999_500..999_500_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let decimals = match amount {
        ..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{amount:.decimals$} {unit}")
}

/// Bytes as `97.7 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let (mut amount, mut unit) = (bytes as f64 / 1_024.0, 0);
    while amount >= 1_023.95 && unit + 1 < UNITS.len() {
        amount /= 1_024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// The text at the right end of `width` columns.
#[must_use]
pub fn right(text: &str, width: usize) -> String {
    // Characters, not bytes: `µ` takes one column.
    format!("{}{text}", " ".repeat(width.saturating_sub(text.chars().count())))
}

/// Words in lines of at most `width` columns, each behind `indent`.
#[must_use]
pub fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::from(indent));
    for word in text.split_whitespace() {
        let is_begun = line.len() > indent.len();
        if is_begun && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, String::from(indent)));
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn spans_have_three_digits_and_never_a_thousand_of_a_unit() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_994, "9.99 µs"),
            (9_996, "10.0 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (8_140_000, "8.14 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (75_000_000_000, "75.0 s"),
        ] {
            assert_eq!(span(Nanos(nanos)), text, "{nanos}");
        }
    }

    #[test]
    fn bytes_go_to_the_next_unit_before_they_read_1024() {
        for (count, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (102_400_000, "97.7 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn columns_count_characters_and_lines_stay_within_their_width() {
        assert_eq!(right("8 µs", 6), "  8 µs");
        assert_eq!(right("too long", 3), "too long");
        assert_eq!(wrapped("one two three four", "  ", 10), "  one two\n  three\n  four");
        assert_eq!(wrapped("", "> ", 10), "> ");
    }
}

//! Spans of time as a person writes them: a whole number and a unit, such as `25ms`, `10s`, `7d`.
//! One number, one unit: `1h30m` and `1.5s` are refused, since `90m` and `1500ms` say the same in one way.

use std::time::Duration;

/// What a span looks like, for messages and the reference.
pub(super) const SHAPE: &str = "a whole number and a unit (ns, us, ms, s, m, h, d), such as \"25ms\"";

/// The units, longest first, with their length in nanoseconds.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a span; `None` when it does not have the [`SHAPE`] or is longer than 584 years.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*nanos).map(Duration::from_nanos)
}

/// Writes a span in the longest unit that holds it whole, so that [`parse`] reads back what was written.
pub(super) fn print(span: Duration) -> String {
    let nanos = span.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, length) in UNITS {
        if nanos.is_multiple_of(u128::from(length)) {
            return format!("{}{unit}", nanos / u128::from(length));
        }
    }
    unreachable!("every span is a whole number of nanoseconds")
}

/// For `#[serde(with = "span")]`.
pub(super) fn serialize<S: serde::Serializer>(span: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&print(*span))
}

/// For `#[serde(with = "span")]`.
pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(from)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not {SHAPE}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_spans() {
        for (text, nanos) in [
            ("0s", 0),
            ("1ns", 1),
            ("25us", 25_000),
            ("25ms", 25_000_000),
            ("25 ms", 25_000_000),
            ("10s", 10_000_000_000),
            ("5m", 300_000_000_000),
            ("1h", 3_600_000_000_000),
            ("7d", 604_800_000_000_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
            assert_eq!(parse(&print(Duration::from_nanos(nanos))), Some(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(print(Duration::from_millis(1_500)), "1500ms");
        assert_eq!(print(Duration::from_secs(86_400 * 7)), "7d");
    }

    #[test]
    fn what_is_no_span() {
        for text in
            ["", "s", "25", "25 ", "-1s", "+1s", "1.5s", "1h30m", "25MS", "25sec", "25  ms", " 25ms", "９s", "213504d"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
        // The longest one that fits 64 bits of nanoseconds, and the next.
        assert_eq!(parse("18446744073709551615ns"), Some(Duration::from_nanos(u64::MAX)));
        assert_eq!(parse("18446744073709551616ns"), None);
        assert!(parse("213503d").is_some());
    }
}

//! Sizes in bytes as a person writes them: a whole number of bytes, or text with a unit, such as `"64MiB"`.
//! The units are powers of 1,024 only: `MB` means two things, so it is refused.

use serde::{Deserialize, Serialize};

/// What a size looks like, for messages and the reference.
pub(super) const SHAPE: &str = "a whole number of bytes, or one with a unit (KiB, MiB, GiB, TiB), such as \"64MiB\"";

/// The units, greatest first.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads a size with its unit; `None` when it does not have the [`SHAPE`] or does not fit 64 bits.
pub(super) fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*bytes)
}

/// Writes a size in the greatest unit that holds it whole: with quotes where it has one, as it would stand in the file.
pub(super) fn print(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("\"{}{name}\"", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Both ways of writing it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Bytes(u64),
    Text(String),
}

impl Form {
    fn read<E: serde::de::Error>(self) -> Result<u64, E> {
        match self {
            Form::Bytes(bytes) => Ok(bytes),
            Form::Text(text) => parse(&text).ok_or_else(|| E::custom(format!("{text:?} is not {SHAPE}"))),
        }
    }
}

/// For `#[serde(with = "size")]`.
pub(super) fn serialize<S: serde::Serializer>(bytes: &u64, out: S) -> Result<S::Ok, S::Error> {
    match print(*bytes).trim_matches('"') {
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => out.serialize_u64(*bytes),
        text => out.serialize_str(text),
    }
}

/// For `#[serde(with = "size")]`.
pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Form::deserialize(from)?.read()
}

/// For `#[serde(with = "size::unset")]`: a size that may not be there.
pub(super) mod unset {
    use super::{Deserialize, Form, Serialize};

    #[derive(Serialize)]
    struct Size(#[serde(with = "super")] u64);

    pub(in crate::config) fn serialize<S: serde::Serializer>(bytes: &Option<u64>, out: S) -> Result<S::Ok, S::Error> {
        bytes.map(Size).serialize(out)
    }

    pub(in crate::config) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Option::<Form>::deserialize(from)?.map(Form::read).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sizes() {
        for (text, bytes) in
            [("0KiB", 0), ("1KiB", 1_024), ("64 MiB", 64 << 20), ("4GiB", 4 << 30), ("16777215TiB", 16_777_215 << 40)]
        {
            assert_eq!(parse(text), Some(bytes), "{text}");
            assert!(bytes == 0 || parse(print(bytes).trim_matches('"')) == Some(bytes), "{text}");
        }
        assert_eq!(print(0), "0");
        assert_eq!(print(1_000), "1000");
        assert_eq!(print(1_536 << 20), "\"1536MiB\"");
        assert_eq!(print(4 << 30), "\"4GiB\"");
    }

    #[test]
    fn what_is_no_size() {
        for text in ["", "1", "KiB", "1KB", "1MB", "1kib", "1.5GiB", "-1KiB", "+1KiB", "1  KiB", " 1KiB", "１KiB"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("16777216TiB"), None, "it does not fit 64 bits");
    }
}

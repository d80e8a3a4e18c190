//! Dates for people: Unix milliseconds as `2026-11-30T23:10:00.250Z` and back, and `15m` as "so long ago".

use crate::config::parse_span;

/// The date, in UTC.
pub(super) fn date(unix_ms: i64) -> String {
    let (days, ms) = (unix_ms.div_euclid(86_400_000), unix_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970, in the Gregorian calendar. Years begin in March here, so that a leap day comes
/// last and 400 years are one period.
fn civil(days: i64) -> (i64, i64, i64) {
    const PERIOD: i64 = 146_097;
    // Since 1 March of the year 0.
    let days = days + 719_468;
    let (period, day) = (days.div_euclid(PERIOD), days.rem_euclid(PERIOD));
    let year = (day - day / 1_460 + day / 36_524 - day / (PERIOD - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (period * 400 + year + i64::from(month <= 2), month, day)
}

/// A day since 1970; `None` when the calendar has no such day.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    // A guess within two days, mended by asking the calendar.
    let guess = (year - 1970) * 365 + (year - 1969).div_euclid(4) - (year - 1901).div_euclid(100)
        + (year - 1601).div_euclid(400)
        + (month - 1) * 153 / 5
        + day
        - 1;
    (guess - 4..=guess + 4).find(|days| civil(*days) == (year, month, day))
}

/// A point in time as a person writes it: `2026-11-30T23:10:00Z` (seconds may be left out, or have a fraction; the time of
/// day may be left out), Unix milliseconds, or a span such as `15m` for so long before `now_ms`.
pub(super) fn parse(text: &str, now_ms: i64) -> Result<i64, String> {
    let wrong = || {
        format!(
            "{text:?} is no time; write it like 2026-11-30T23:10:00Z, as Unix milliseconds, or 15m for 15 minutes ago"
        )
    };
    if let Some(span) = parse_span(text) {
        return i64::try_from(span.as_millis()).map(|ms| now_ms.saturating_sub(ms)).map_err(|_| wrong());
    }
    if text.len() > 8 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| wrong());
    }
    iso(text).ok_or_else(wrong)
}

fn iso(text: &str) -> Option<i64> {
    let number = |text: &str, len: usize| {
        let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse::<i64>().ok() } else { None }
    };
    let (day, time) = match text.split_once('T') {
        Some((day, time)) => (day, time.strip_suffix('Z')?),
        None => (text, "00:00"),
    };
    let mut parts = day.split('-');
    let (year, month, date) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let mut clock = time.split(':');
    let (hour, minute) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let (second, fraction) = match clock.next() {
        None => (0, 0),
        Some(second) => {
            let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
            let padded = format!("{fraction:0<3}");
            (number(second, 2)?, number(&padded[..padded.len().min(3)], 3)?)
        }
    };
    if parts.next().is_some() || clock.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_of(year, month, date)?;
    Some(days * 86_400_000 + ((hour * 60 + minute) * 60 + second) * 1_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(date(ms), text);
            assert_eq!(parse(text, 0), Ok(ms));
        }
        for day in -200_000..200_000 {
            let (year, month, date) = civil(day);
            assert_eq!(days_of(year, month, date), Some(day));
        }
    }

    #[test]
    fn what_a_person_writes() {
        let now = 1_700_000_000_000;
        assert_eq!(parse("15m", now), Ok(now - 900_000));
        assert_eq!(parse("1700000000123", now), Ok(1_700_000_000_123));
        assert_eq!(parse("2023-11-14", now), Ok(1_699_920_000_000));
        assert_eq!(parse("2023-11-14T22:13Z", now), Ok(1_699_999_980_000));
        assert_eq!(parse("2023-11-14T22:13:20.5Z", now), Ok(1_700_000_000_500));
        for text in [
            "",
            "now",
            "2023-02-29",
            "2023-13-01",
            "2023-11-14T24:00Z",
            "2023-11-14T22:13",
            "2023-11-14T22:13:20+01:00",
            "2023-11-14T22:13:20:00Z",
            "12345",
            "-5",
            "2023-1-14",
            "2023-11-14T22:13:20.xZ",
        ] {
            assert!(parse(text, now).is_err(), "{text}");
        }
    }
}

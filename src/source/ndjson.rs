//! One line of NDJSON: the JSON object of a trigger.
//!
//! ```json
//! {"device_id":"bus-7","fence_id":"depot","state":"enter","event_time_ms":1772000000000,"priority":"high","attributes":"x"}
//! ```
//!
//! `priority` and `attributes` may be left out; attributes are text here, and reach the consumer as its UTF-8 bytes (a
//! source with other bytes sends frames). Keys may come in any order, with any white space and any escape that JSON
//! has. A key that is unknown or comes twice is refused: a mistyped `priority` must not pass in silence.
//!
//! The usual shape (the order above, up to the time, without escapes, with or without one space behind each colon and
//! comma) takes a short way; every other line the long one. Both accept the same: the short way gives up rather than
//! judge.

use crate::trigger::{Priority, State, Trigger};
use std::fmt;

/// The keys that a trigger has.
const KEYS: [&str; 6] = ["device_id", "fence_id", "state", "event_time_ms", "priority", "attributes"];
/// How many of them must be there: the first four.
const NEEDED: usize = 4;
const EVENT_TIME: usize = 3;

/// Why a line is not the JSON object of a trigger. Columns count bytes from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotATrigger {
    /// Not JSON, or not of the right kind.
    #[error("column {column}: expected {expected}")]
    Expected {
        /// Where.
        column: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// A key that triggers do not have.
    #[error(
        "column {column}: unknown key {key}, allowed are device_id, fence_id, state, event_time_ms, priority, attributes"
    )]
    UnknownKey {
        /// Where it starts.
        column: usize,
        /// What came.
        key: Excerpt,
    },
    /// A key twice.
    #[error("column {column}: {key} comes a second time; which one is meant?")]
    DuplicateKey {
        /// Where the second one starts.
        column: usize,
        /// Which.
        key: &'static str,
    },
    /// A value that has no meaning.
    #[error("column {column}: {key} is {got}, allowed {allowed}")]
    UnknownWord {
        /// Where it starts.
        column: usize,
        /// Of which key.
        key: &'static str,
        /// What came.
        got: Excerpt,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A key that must be there.
    #[error("{key} is missing")]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// Bytes that are no text.
    #[error("column {column}: not UTF-8; send text, or frames for bytes (route.format)")]
    NotUtf8 {
        /// The byte that starts no character; in text with escapes, where that text starts.
        column: usize,
    },
}

/// The start of a text that came, kept without allocating, for a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Excerpt {
    bytes: [u8; Excerpt::BYTES],
    len: u8,
    is_cut: bool,
}

impl Excerpt {
    const BYTES: usize = 32;

    fn of(text: &[u8]) -> Excerpt {
        let len = text.len().min(Excerpt::BYTES);
        let mut bytes = [0; Excerpt::BYTES];
        bytes[..len].copy_from_slice(&text[..len]);
        Excerpt { bytes, len: len as u8, is_cut: text.len() > len }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.bytes[..self.len.into()]);
        write!(out, "{text:?}{}", if self.is_cut { "…" } else { "" })
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A stretch of the line.
#[derive(Clone, Copy, Default)]
struct Span {
    from: usize,
    to: usize,
    /// Escapes were resolved in it: what stands there is not what came.
    is_moved: bool,
}

/// What was found, by where it lies.
struct Found {
    device_id: Span,
    fence_id: Span,
    attributes: Span,
    state: State,
    event_time_ms: i64,
    priority: Priority,
}

/// The trigger in a line, which comes without its newline. Escapes are resolved in the line itself, so that the trigger
/// can borrow from it; a line that was refused is of no further use.
///
/// # Errors
/// [`NotATrigger`], with the place and what was expected there.
#[inline]
pub fn parse(line: &mut [u8]) -> Result<Trigger<'_>, NotATrigger> {
    let found = match usual::<false>(line).or_else(|| usual::<true>(line)) {
        Some(found) => found,
        None => Reader { line, at: 0 }.object()?,
    };
    trigger(line, &found)
}

/// As [`parse`], with the line's bytes as they came: itself, or where it has escapes, a copy at the front of `copies`,
/// which must have room for it.
#[inline]
pub(super) fn parse_keeping<'a>(
    line: &'a mut [u8],
    copies: &mut &'a mut [u8],
) -> (Result<Trigger<'a>, NotATrigger>, &'a [u8]) {
    if let Some(found) = usual::<false>(line).or_else(|| usual::<true>(line)) {
        let line: &[u8] = line;
        return (trigger(line, &found), line);
    }
    let copy = memchr::memchr(b'\\', line).map(|_| {
        let (copy, later) = std::mem::take(copies).split_at_mut(line.len());
        *copies = later;
        copy.copy_from_slice(line);
        &*copy
    });
    let found = Reader { line: &mut *line, at: 0 }.object();
    let line: &[u8] = line;
    (found.and_then(|found| trigger(line, &found)), copy.unwrap_or(line))
}

#[inline(always)]
fn trigger<'a>(line: &'a [u8], found: &Found) -> Result<Trigger<'a>, NotATrigger> {
    Ok(Trigger {
        device_id: text(line, found.device_id)?,
        fence_id: text(line, found.fence_id)?,
        state: found.state,
        event_time_ms: found.event_time_ms,
        priority: found.priority,
        attributes: text(line, found.attributes)?.as_bytes(),
    })
}

#[inline(always)]
fn text(line: &[u8], span: Span) -> Result<&str, NotATrigger> {
    std::str::from_utf8(&line[span.from..span.to]).map_err(|error| {
        let inside = if span.is_moved { 0 } else { error.valid_up_to() };
        NotATrigger::NotUtf8 { column: span.from + inside + 1 }
    })
}

// -- the short way ----------------------------------------------------------------------------------------------------

/// The usual shape, or `None` for whatever deviates from it.
#[inline(always)]
fn usual<const SPACED: bool>(line: &[u8]) -> Option<Found> {
    #[inline(always)]
    fn skip<'a, const SPACED: bool>(rest: &'a [u8], dense: &[u8], spaced: &[u8]) -> Option<&'a [u8]> {
        rest.strip_prefix(if SPACED { spaced } else { dense })
    }
    let at = |rest: &[u8]| line.len() - rest.len();
    let rest = skip::<SPACED>(line, b"{\"device_id\":\"", b"{\"device_id\": \"")?;
    let (device_id, rest) = plain_text(rest, at(rest))?;
    let rest = skip::<SPACED>(rest, b"\",\"fence_id\":\"", b"\", \"fence_id\": \"")?;
    let (fence_id, rest) = plain_text(rest, at(rest))?;
    let rest = skip::<SPACED>(rest, b"\",\"state\":\"", b"\", \"state\": \"")?;
    let (state, rest) = if let Some(rest) = rest.strip_prefix(b"enter\"") {
        (State::Enter, rest)
    } else if let Some(rest) = rest.strip_prefix(b"exit\"") {
        (State::Exit, rest)
    } else {
        (State::Dwell, rest.strip_prefix(b"dwell\"")?)
    };
    let rest = skip::<SPACED>(rest, b",\"event_time_ms\":", b", \"event_time_ms\": ")?;
    let (event_time_ms, rest) = digits(rest)?;
    let mut priority = Priority::Normal;
    if rest != b"}" {
        let rest = skip::<SPACED>(rest, b",\"priority\":\"", b", \"priority\": \"")?;
        priority = match rest {
            b"low\"}" => Priority::Low,
            b"normal\"}" => Priority::Normal,
            b"high\"}" => Priority::High,
            _ => return None,
        };
    }
    Some(Found { device_id, fence_id, attributes: Span::default(), state, event_time_ms, priority })
}

/// Text up to its closing quote, which is left; `None` if there is an escape in it, or what may not be.
#[inline(always)]
fn plain_text(rest: &[u8], from: usize) -> Option<(Span, &[u8])> {
    let len = plain_len(rest);
    (rest.get(len) == Some(&b'"')).then(|| (Span { from, to: from + len, is_moved: false }, &rest[len..]))
}

/// How many bytes there are before a quote, a backslash, a control character or the end; eight at a time.
#[inline(always)]
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // The lowest mark of each is exact; a borrow can only make false ones above a true one.
        let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word & TOPS;
        let special =
            below(word ^ (ONES * u64::from(b'"')), 1) | below(word ^ (ONES * u64::from(b'\\')), 1) | below(word, 0x20);
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count()
}

/// Up to 18 digits, which 64 bits hold, without leading zeros.
#[inline(always)]
fn digits(rest: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0;
    let mut len = 0;
    while let Some(digit @ b'0'..=b'9') = rest.get(len) {
        if len == 18 {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
        len += 1;
    }
    (len > 0 && (rest[0] != b'0' || len == 1)).then(|| (value, &rest[len..]))
}

// -- the long way -----------------------------------------------------------------------------------------------------

struct Reader<'a> {
    line: &'a mut [u8],
    at: usize,
}

impl Reader<'_> {
    fn object(mut self) -> Result<Found, NotATrigger> {
        let mut found = Found {
            device_id: Span::default(),
            fence_id: Span::default(),
            attributes: Span::default(),
            state: State::Enter,
            event_time_ms: 0,
            priority: Priority::Normal,
        };
        let mut seen = [false; KEYS.len()];
        self.skip_space();
        self.take(b'{', "{, the start of a trigger")?;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                self.member(&mut found, &mut seen)?;
                self.skip_space();
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break self.at += 1,
                    _ => return Err(self.expected(", or } behind a value")),
                }
                self.skip_space();
            }
        }
        self.skip_space();
        if self.at < self.line.len() {
            return Err(self.expected("the end of the line behind the trigger"));
        }
        match (0..NEEDED).find(|key| !seen[*key]) {
            Some(key) => Err(NotATrigger::Missing { key: KEYS[key] }),
            None => Ok(found),
        }
    }

    /// `"key": value`.
    fn member(&mut self, found: &mut Found, seen: &mut [bool; KEYS.len()]) -> Result<(), NotATrigger> {
        let column = self.at + 1;
        let key = self.string("a key in double quotes")?;
        let name = &self.line[key.from..key.to];
        let Some(index) = KEYS.iter().position(|known| known.as_bytes() == name) else {
            // Broken text is a fault of its own, and the first one that is found.
            text(self.line, key)?;
            return Err(NotATrigger::UnknownKey { column, key: Excerpt::of(name) });
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(NotATrigger::DuplicateKey { column, key: KEYS[index] });
        }
        self.skip_space();
        self.take(b':', ": behind a key")?;
        self.skip_space();
        if index == EVENT_TIME {
            found.event_time_ms = self.whole_number()?;
            return Ok(());
        }
        let column = self.at + 1;
        let value = self.string("text in double quotes")?;
        let word = &self.line[value.from..value.to];
        let unknown = |allowed| NotATrigger::UnknownWord { column, key: KEYS[index], got: Excerpt::of(word), allowed };
        match KEYS[index] {
            "device_id" => found.device_id = value,
            "fence_id" => found.fence_id = value,
            "attributes" => found.attributes = value,
            "state" => {
                found.state = match word {
                    b"enter" => State::Enter,
                    b"exit" => State::Exit,
                    b"dwell" => State::Dwell,
                    _ => return Err(unknown("\"enter\", \"exit\" and \"dwell\"")),
                }
            }
            _ => {
                found.priority = match word {
                    b"low" => Priority::Low,
                    b"normal" => Priority::Normal,
                    b"high" => Priority::High,
                    _ => return Err(unknown("\"low\", \"normal\" and \"high\"")),
                }
            }
        }
        Ok(())
    }

    /// A number without fraction and exponent that fits into 64 bits.
    fn whole_number(&mut self) -> Result<i64, NotATrigger> {
        const WHOLE: &str = "a whole number: Unix milliseconds";
        let start = self.at;
        let wrong = NotATrigger::Expected { column: start + 1, expected: WHOLE };
        let is_negative = self.peek() == Some(b'-');
        self.at += usize::from(is_negative);
        let first = self.at;
        let mut value: i64 = 0;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            let digit = i64::from(byte - b'0');
            let digit = if is_negative { -digit } else { digit };
            value = value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(wrong)?;
            self.at += 1;
        }
        let len = self.at - first;
        let has_leading_zero = len > 1 && self.line[first] == b'0';
        // `-0` is a number of its own in JSON, and none that a time could be.
        let is_minus_zero = is_negative && value == 0;
        if len == 0 || has_leading_zero || is_minus_zero || matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return Err(wrong);
        }
        Ok(value)
    }

    /// Text in double quotes; its escapes are resolved where it lies.
    fn string(&mut self, expected: &'static str) -> Result<Span, NotATrigger> {
        self.take(b'"', expected)?;
        let from = self.at;
        let mut to = from;
        loop {
            let len = plain_len(&self.line[self.at..]);
            if to < self.at {
                self.line.copy_within(self.at..self.at + len, to);
            }
            (self.at, to) = (self.at + len, to + len);
            match self.peek() {
                Some(b'"') => {
                    let is_moved = to < self.at;
                    self.at += 1;
                    return Ok(Span { from, to, is_moved });
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    // An escape is at least as long as what it stands for.
                    to += character.encode_utf8(&mut self.line[to..self.at]).len();
                }
                Some(_) => return Err(self.expected("no control character; write it as \\u00XX")),
                None => return Err(self.expected("the closing \" of a text")),
            }
        }
    }

    /// The character that an escape stands for. On a backslash; ends behind the escape.
    fn escape(&mut self) -> Result<char, NotATrigger> {
        let wrong = self.expected("an escape of JSON");
        let kind = *self.line.get(self.at + 1).ok_or(wrong)?;
        self.at += 2;
        Ok(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let lone = NotATrigger::Expected { column: self.at - 1, expected: "both halves of a surrogate pair" };
                let high = self.four_hex_digits()?;
                match high {
                    0xd800..=0xdbff => {
                        if self.line.get(self.at..self.at + 2) != Some(b"\\u") {
                            return Err(lone);
                        }
                        self.at += 2;
                        let low = self.four_hex_digits()?;
                        if !(0xdc00..=0xdfff).contains(&low) {
                            return Err(lone);
                        }
                        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(lone)?
                    }
                    _ => char::from_u32(high).ok_or(lone)?,
                }
            }
            _ => return Err(wrong),
        })
    }

    fn four_hex_digits(&mut self) -> Result<u32, NotATrigger> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            value = value << 4 | digit.ok_or_else(|| self.expected("four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(value)
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), NotATrigger> {
        if self.peek() != Some(byte) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn expected(&self, expected: &'static str) -> NotATrigger {
        NotATrigger::Expected { column: self.at + 1, expected }
    }
}

//! What a dead letter says about itself: why, where, how often and when it failed, and which trigger it was. Two forms: text
//! headers on a Kafka record ([`Notes::each_header`], [`read_headers`]), and a compact one in front of a record of the
//! spill ([`write_meta`], [`read_meta`]), which also holds the record's own key, time and headers.
//!
//! Promises: a record's own headers come back byte for byte, in their order, whatever they are; no bytes make a reader
//! panic; both forms give the same notes. Texts are cut to their bounds, at a whole character.
//! Costs: readers and writers borrow; only [`read_headers`] collects into lists.

use crate::units::UnixMs;
use std::io::Write;

/// The longest reason, in bytes; a longer one is cut.
pub const REASON_BYTES: usize = 64;
/// The longest stage.
pub const STAGE_BYTES: usize = 32;
/// The longest topic: as Kafka has it.
pub const TOPIC_BYTES: usize = 249;
/// The longest printed idempotency key: two ids of 256 bytes, each byte escaped, the state, the second.
pub const KEY_TEXT_BYTES: usize = 2 * 256 * 3 + 32;
/// The longest name of a router.
pub const ROUTER_BYTES: usize = 64;
/// The longest detail.
pub const DETAIL_BYTES: usize = 512;
/// The longest meta: what the spill takes.
pub const META_BYTES_MAX: usize = u16::MAX as usize;

/// The names of our headers.
pub mod header {
    /// Why: one of the names of [`super::Reason`], or the caller's text.
    pub const REASON: &str = "fencepost.reason";
    /// Where in the router: `submit`, `source`, `admit`, `publish`, `drain`.
    pub const STAGE: &str = "fencepost.stage";
    /// The topic it was meant for.
    pub const TOPIC: &str = "fencepost.topic";
    /// The partition it was meant for; left out when unknown.
    pub const PARTITION: &str = "fencepost.partition";
    /// How often it was tried.
    pub const ATTEMPTS: &str = "fencepost.attempts";
    /// When it first failed, Unix milliseconds.
    pub const FIRST_FAILURE_MS: &str = "fencepost.first_failure_ms";
    /// When it last failed, Unix milliseconds.
    pub const LAST_FAILURE_MS: &str = "fencepost.last_failure_ms";
    /// The printed idempotency key; empty when the bytes are no trigger.
    pub const KEY: &str = "fencepost.key";
    /// How often it was published again from the dead letters.
    pub const REPLAYS: &str = "fencepost.replays";
    /// Which router.
    pub const ROUTER: &str = "fencepost.router";
    /// The error's own words; left out when there are none.
    pub const DETAIL: &str = "fencepost.detail";
    /// All of them.
    pub const ALL: [&str; 11] =
        [REASON, STAGE, TOPIC, PARTITION, ATTEMPTS, FIRST_FAILURE_MS, LAST_FAILURE_MS, KEY, REPLAYS, ROUTER, DETAIL];
}

/// Why something became a dead letter. The names are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason<'a> {
    /// Longer than the topic takes.
    TooLarge,
    /// The broker refused it for itself.
    Refused,
    /// It could only have been published behind a later trigger of its device.
    WouldReorder,
    /// Its fence is not on the list.
    UnknownFence,
    /// A frame of a version this router does not know.
    UnknownVersion,
    /// A source's bytes that are no trigger.
    Malformed,
    /// A source could not hand it over.
    Shed,
    /// Its partition was not live, and the policy is to divert here.
    Diverted,
    /// The caller's own words, at most [`REASON_BYTES`].
    Other(&'a str),
}

const NAMED: [(Reason<'static>, u8, &str); 8] = [
    (Reason::TooLarge, 1, "too_large"),
    (Reason::Refused, 2, "refused"),
    (Reason::WouldReorder, 3, "would_reorder"),
    (Reason::UnknownFence, 4, "unknown_fence"),
    (Reason::UnknownVersion, 5, "unknown_version"),
    (Reason::Malformed, 6, "malformed"),
    (Reason::Shed, 7, "shed"),
    (Reason::Diverted, 8, "diverted"),
];
/// The number of [`Reason::Other`] in a meta.
const OTHER: u8 = 255;

impl<'a> Reason<'a> {
    /// From its name; any other text is the caller's own.
    #[must_use]
    pub fn from_text(text: &'a str) -> Reason<'a> {
        let named = NAMED.iter().find(|(_, _, name)| *name == text);
        named.map_or(Reason::Other(cut(text, REASON_BYTES)), |(reason, ..)| *reason)
    }

    /// Its name, or the caller's text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        match self {
            Reason::Other(text) => cut(text, REASON_BYTES),
            named => NAMED.iter().find(|(reason, ..)| reason == named).map_or("", |(_, _, name)| name),
        }
    }

    /// Its number in a meta; 255 for the caller's own words.
    #[must_use]
    pub fn number(&self) -> u8 {
        NAMED.iter().find(|(reason, ..)| reason == self).map_or(OTHER, |(_, number, _)| *number)
    }

    /// From its number, and the text of the caller's own words.
    #[must_use]
    pub fn from_number(number: u8, text: &'a str) -> Option<Reason<'a>> {
        if number == OTHER {
            return Some(Reason::from_text(text));
        }
        NAMED.iter().find(|(_, known, _)| *known == number).map(|(reason, ..)| *reason)
    }
}

/// What a dead letter says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notes<'a> {
    /// Why.
    pub reason: Reason<'a>,
    /// Where in the router: `submit`, `source`, `admit`, `publish`, `drain`.
    pub stage: &'a str,
    /// The topic it was meant for.
    pub topic: &'a str,
    /// The partition it was meant for, where one is known.
    pub partition: Option<u32>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it first failed.
    pub first_failure: UnixMs,
    /// When it last failed.
    pub last_failure: UnixMs,
    /// The printed idempotency key; empty when the bytes are no trigger.
    pub key: &'a str,
    /// How often it was published again from the dead letters.
    pub replays: u32,
    /// Which router.
    pub router: &'a str,
    /// The error's own words; may be empty.
    pub detail: &'a str,
}

impl Default for Notes<'_> {
    /// Nothing known, reason `Other("")`.
    fn default() -> Self {
        Notes {
            reason: Reason::Other(""),
            stage: "",
            topic: "",
            partition: None,
            attempts: 0,
            first_failure: UnixMs(0),
            last_failure: UnixMs(0),
            key: "",
            replays: 0,
            router: "",
            detail: "",
        }
    }
}

/// A record's header: Kafka has null values as well as empty ones, and a name may come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value; `None` is null.
    pub value: Option<&'a [u8]>,
}

/// The headers a record came with: borrowed from its consumer, or as they lie in a meta.
#[derive(Clone, Copy, Debug)]
pub enum Headers<'a> {
    /// As a list.
    List(&'a [Header<'a>]),
    /// As [`read_meta`] found them, checked.
    Stored(StoredHeaders<'a>),
}

/// Headers in a meta's form, checked when they were read.
#[derive(Clone, Copy, Debug)]
pub struct StoredHeaders<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl Default for Headers<'_> {
    fn default() -> Self {
        Headers::List(&[])
    }
}

impl<'a> Headers<'a> {
    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let (list, stored) = match *self {
            Headers::List(list) => (list, StoredHeaders { count: 0, bytes: &[] }),
            Headers::Stored(stored) => (&[][..], stored),
        };
        let mut reader = Reader(stored.bytes);
        let stored = (0..stored.count).map_while(move |_| reader.header());
        list.iter().copied().chain(stored)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Headers::List(list) => list.len(),
            Headers::Stored(stored) => stored.count.into(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for Headers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// The text up to so many bytes, cut at a whole character.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A number as text, without an allocation.
struct Digits {
    place: [u8; 20],
    len: usize,
}

impl Digits {
    fn of(number: impl std::fmt::Display) -> Digits {
        let mut digits = Digits { place: [0; 20], len: 0 };
        let mut rest = &mut digits.place[..];
        write!(rest, "{number}").expect("the longest i64 has 20 characters");
        digits.len = 20 - rest.len();
        digits
    }

    fn bytes(&self) -> &[u8] {
        &self.place[..self.len]
    }
}

impl<'a> Notes<'a> {
    /// The same with every text cut to its bound: what both forms hold.
    #[must_use]
    pub fn bounded(&self) -> Notes<'a> {
        Notes {
            reason: Reason::from_text(self.reason.text()),
            stage: cut(self.stage, STAGE_BYTES),
            topic: cut(self.topic, TOPIC_BYTES),
            key: cut(self.key, KEY_TEXT_BYTES),
            router: cut(self.router, ROUTER_BYTES),
            detail: cut(self.detail, DETAIL_BYTES),
            ..*self
        }
    }

    /// Hands over each header: its name, and its value as text.
    pub fn each_header(&self, mut each: impl FnMut(&'static str, &[u8])) {
        let notes = self.bounded();
        each(header::REASON, notes.reason.text().as_bytes());
        each(header::STAGE, notes.stage.as_bytes());
        each(header::TOPIC, notes.topic.as_bytes());
        if let Some(partition) = notes.partition {
            each(header::PARTITION, Digits::of(partition).bytes());
        }
        each(header::ATTEMPTS, Digits::of(notes.attempts).bytes());
        each(header::FIRST_FAILURE_MS, Digits::of(notes.first_failure.0).bytes());
        each(header::LAST_FAILURE_MS, Digits::of(notes.last_failure.0).bytes());
        each(header::KEY, notes.key.as_bytes());
        each(header::REPLAYS, Digits::of(notes.replays).bytes());
        each(header::ROUTER, notes.router.as_bytes());
        if !notes.detail.is_empty() {
            each(header::DETAIL, notes.detail.as_bytes());
        }
    }
}

/// What the headers of a record say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadersRead<'a> {
    /// The notes; what was not there, or could not be read, is as in [`Notes::default`].
    pub notes: Notes<'a>,
    /// The record's own headers, in their order.
    pub own: Vec<Header<'a>>,
    /// Whether it is a dead letter: it says a reason. A record that was replayed has `fencepost.replays` alone.
    pub is_letter: bool,
    /// Names of ours whose value could not be read: not text, or no number. They are in neither of the two above.
    pub unread: Vec<&'static str>,
}

/// Reads the headers of a record and keeps its own apart. A name of ours that comes twice counts as it came last.
#[must_use]
pub fn read_headers<'a>(headers: impl IntoIterator<Item = Header<'a>>) -> HeadersRead<'a> {
    let mut read = HeadersRead { notes: Notes::default(), own: Vec::new(), is_letter: false, unread: Vec::new() };
    for found in headers {
        let Some(name) = header::ALL.into_iter().find(|name| name.as_bytes() == found.name) else {
            read.own.push(found);
            continue;
        };
        let text = found.value.and_then(|value| std::str::from_utf8(value).ok());
        let taken = text.and_then(|text| take(&mut read.notes, name, text));
        if taken.is_none() {
            read.unread.push(name);
        } else if name == header::REASON {
            read.is_letter = true;
        }
    }
    read.notes = read.notes.bounded();
    read
}

/// One header of ours into the notes; `None`: no number where there should be one.
fn take<'a>(notes: &mut Notes<'a>, name: &str, text: &'a str) -> Option<()> {
    match name {
        header::REASON => notes.reason = Reason::from_text(text),
        header::STAGE => notes.stage = text,
        header::TOPIC => notes.topic = text,
        header::PARTITION => notes.partition = Some(text.parse().ok()?),
        header::ATTEMPTS => notes.attempts = text.parse().ok()?,
        header::FIRST_FAILURE_MS => notes.first_failure = UnixMs(text.parse().ok()?),
        header::LAST_FAILURE_MS => notes.last_failure = UnixMs(text.parse().ok()?),
        header::KEY => notes.key = text,
        header::REPLAYS => notes.replays = text.parse().ok()?,
        header::ROUTER => notes.router = text,
        header::DETAIL => notes.detail = text,
        _ => return None,
    }
    Some(())
}

/// What a meta holds: everything of a dead letter but its value and its line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meta<'a> {
    /// The notes.
    pub notes: Notes<'a>,
    /// The Kafka key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Whether the value is null, which is not the same as empty.
    pub value_is_null: bool,
    /// The record's timestamp.
    pub record_time: Option<UnixMs>,
    /// The record's own headers.
    pub headers: Headers<'a>,
}

/// The layout written and read.
const VERSION: u8 = 1;
const HAS_PARTITION: u8 = 1;
const HAS_KEY: u8 = 2;
const HAS_TIME: u8 = 4;
const NULL_VALUE: u8 = 8;
const FLAGS: u8 = HAS_PARTITION | HAS_KEY | HAS_TIME | NULL_VALUE;
/// The length of a header's value that is null.
const NULL: u32 = u32::MAX;

/// A meta of more than [`META_BYTES_MAX`]: its key and its headers are too long for the disk's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key and headers of a dead letter take {got} bytes on disk, allowed {META_BYTES_MAX}")]
pub struct MetaTooLong {
    /// Bytes it would take.
    pub got: usize,
}

/// How many bytes the meta takes.
#[must_use]
pub fn meta_len(meta: &Meta<'_>) -> usize {
    let notes = meta.notes.bounded();
    let texts = [notes.reason.text(), notes.stage, notes.topic, notes.key, notes.router, notes.detail];
    let texts: usize = texts.iter().map(|text| 2 + text.len()).sum();
    let key = meta.key.map_or(0, |key| 4 + key.len());
    let headers: usize =
        meta.headers.iter().map(|header| 2 + header.name.len() + 4 + header.value.map_or(0, <[u8]>::len)).sum();
    3 + 3 * 4 + 3 * 8 + texts + key + 2 + headers
}

/// Writes a meta at the front of `place`; returns its length.
///
/// # Errors
/// [`MetaTooLong`].
///
/// # Panics
/// If `place` is shorter than [`meta_len`].
pub fn write_meta(meta: &Meta<'_>, place: &mut [u8]) -> Result<usize, MetaTooLong> {
    let len = meta_len(meta);
    if len > META_BYTES_MAX {
        return Err(MetaTooLong { got: len });
    }
    let notes = meta.notes.bounded();
    let mut flags = 0;
    for (is_set, flag) in [
        (notes.partition.is_some(), HAS_PARTITION),
        (meta.key.is_some(), HAS_KEY),
        (meta.record_time.is_some(), HAS_TIME),
        (meta.value_is_null, NULL_VALUE),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    // Every length fits its field: the whole is at most 65,535 bytes.
    let mut out = Writer { place, at: 0 };
    out.put(&[VERSION, flags, notes.reason.number()]);
    for number in [notes.partition.unwrap_or_default(), notes.attempts, notes.replays] {
        out.put(&number.to_le_bytes());
    }
    for time in [notes.first_failure, notes.last_failure, meta.record_time.unwrap_or_default()] {
        out.put(&time.0.to_le_bytes());
    }
    for text in [notes.reason.text(), notes.stage, notes.topic, notes.key, notes.router, notes.detail] {
        out.short(text.as_bytes());
    }
    if let Some(key) = meta.key {
        out.put(&(key.len() as u32).to_le_bytes());
        out.put(key);
    }
    out.put(&(meta.headers.len() as u16).to_le_bytes());
    for header in meta.headers.iter() {
        out.short(header.name);
        out.put(&header.value.map_or(NULL, |value| value.len() as u32).to_le_bytes());
        out.put(header.value.unwrap_or_default());
    }
    debug_assert_eq!(out.at, len);
    Ok(len)
}

struct Writer<'a> {
    place: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.place[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn short(&mut self, bytes: &[u8]) {
        self.put(&(bytes.len() as u16).to_le_bytes());
        self.put(bytes);
    }
}

/// Reads a meta; `None`: these bytes are none, or of a version this router does not know.
#[must_use]
pub fn read_meta(bytes: &[u8]) -> Option<Meta<'_>> {
    let mut reader = Reader(bytes);
    let [version, flags, reason] = *reader.take(3)? else { return None };
    if version != VERSION || flags & !FLAGS != 0 {
        return None;
    }
    let [partition, attempts, replays] = [reader.u32()?, reader.u32()?, reader.u32()?];
    let [first_failure, last_failure, record_time] = [reader.time()?, reader.time()?, reader.time()?];
    let reason = Reason::from_number(reason, reader.text()?)?;
    let notes = Notes {
        reason,
        stage: reader.text()?,
        topic: reader.text()?,
        partition: (flags & HAS_PARTITION != 0).then_some(partition),
        attempts,
        first_failure,
        last_failure,
        key: reader.text()?,
        replays,
        router: reader.text()?,
        detail: reader.text()?,
    };
    let key = if flags & HAS_KEY != 0 { Some(reader.long()?) } else { None };
    let count = reader.u16()?;
    let stored = StoredHeaders { count, bytes: reader.0 };
    for _ in 0..count {
        reader.header()?;
    }
    if !reader.0.is_empty() {
        return None;
    }
    Some(Meta {
        notes: notes.bounded(),
        key,
        value_is_null: flags & NULL_VALUE != 0,
        record_time: (flags & HAS_TIME != 0).then_some(record_time),
        headers: Headers::Stored(stored),
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<UnixMs> {
        Some(UnixMs(i64::from_le_bytes(self.take(8)?.try_into().ok()?)))
    }

    fn short(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.short()?).ok()
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn header(&mut self) -> Option<Header<'a>> {
        let name = self.short()?;
        let len = self.u32()?;
        let value = if len == NULL { None } else { Some(self.take(len as usize)?) };
        Some(Header { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn notes() -> Notes<'static> {
        Notes {
            reason: Reason::TooLarge,
            stage: "publish",
            topic: "triggers",
            partition: Some(7),
            attempts: 3,
            first_failure: UnixMs(1_700_000_000_000),
            last_failure: UnixMs(1_700_000_000_900),
            key: "bus-7/zone/enter/1700000000",
            replays: 1,
            router: "r1",
            detail: "Broker: Message size too large",
        }
    }

    /// As text, for a person.
    fn printed(notes: &Notes<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        notes.each_header(|name, value| lines.push(format!("{name}={}", std::str::from_utf8(value).unwrap())));
        lines
    }

    #[test]
    fn the_headers_are_text_under_these_names() {
        let want = [
            "fencepost.reason=too_large",
            "fencepost.stage=publish",
            "fencepost.topic=triggers",
            "fencepost.partition=7",
            "fencepost.attempts=3",
            "fencepost.first_failure_ms=1700000000000",
            "fencepost.last_failure_ms=1700000000900",
            "fencepost.key=bus-7/zone/enter/1700000000",
            "fencepost.replays=1",
            "fencepost.router=r1",
            "fencepost.detail=Broker: Message size too large",
        ];
        assert_eq!(printed(&notes()), want);
        let bare = Notes { partition: None, detail: "", first_failure: UnixMs(i64::MIN), key: "", ..notes() };
        let lines = printed(&bare);
        assert_eq!(lines.len(), 9, "no partition, no detail: {lines:?}");
        assert!(lines.contains(&"fencepost.first_failure_ms=-9223372036854775808".to_owned()), "{lines:?}");
        assert!(lines.contains(&"fencepost.key=".to_owned()), "{lines:?}");
    }

    #[test]
    fn each_reason_has_its_name_and_its_number() {
        let names: Vec<&str> = NAMED.iter().map(|(reason, ..)| reason.text()).collect();
        let want = [
            "too_large",
            "refused",
            "would_reorder",
            "unknown_fence",
            "unknown_version",
            "malformed",
            "shed",
            "diverted",
        ];
        assert_eq!(names, want);
        for (nth, (reason, number, name)) in NAMED.into_iter().enumerate() {
            assert_eq!((Reason::from_text(name), reason.number(), number), (reason, number, nth as u8 + 1));
        }
        assert_eq!(Reason::from_text("billing said no"), Reason::Other("billing said no"));
        let long = "車".repeat(30);
        assert_eq!(Reason::from_text(&long).text(), "車".repeat(21), "64 bytes, whole characters");
        // Words of the caller's that are a name are that name: in the headers nobody could tell them apart.
        assert_eq!(Notes { reason: Reason::Other("shed"), ..notes() }.bounded().reason, Reason::Shed);
    }

    #[test]
    fn a_record_s_own_headers_are_kept_apart_as_they_are() {
        let foreign = |name, value| Header { name, value };
        let headers = [
            foreign(b"trace", Some(b"\xff\x00")),
            foreign(b"fencepost.reason", Some(b"shed")),
            foreign(b"trace", None),
            foreign(b"fencepost.reasons", Some(b"")),
            foreign(b"fencepost.attempts", Some(b"12")),
            foreign(b"fencepost.attempts", Some(b"13")),
            foreign(b"fencepost.replays", Some(b"-1")),
            foreign(b"fencepost.topic", Some(b"\xff")),
            foreign(b"fencepost.stage", None),
            foreign(b"\xfe", Some(b"x")),
        ];
        let read = read_headers(headers);
        assert_eq!(read.own, [headers[0], headers[2], headers[3], headers[9]]);
        assert_eq!((read.notes.reason, read.notes.attempts, read.notes.replays), (Reason::Shed, 13, 0));
        assert_eq!(read.unread, [header::REPLAYS, header::TOPIC, header::STAGE]);
        assert!(read.is_letter);
        assert!(!read_headers([foreign(b"fencepost.replays", Some(b"1"))]).is_letter);
    }

    #[test]
    fn the_longest_meta_and_one_byte_more() {
        let name = [b'n'; 10];
        let mut value = Vec::new();
        let meta_of = |value: &[u8]| {
            let headers = [Header { name: &name, value: Some(value) }];
            let meta = Meta {
                notes: notes(),
                key: Some(b"bus-7"),
                value_is_null: false,
                record_time: None,
                headers: Headers::List(&headers),
            };
            let mut place = vec![0; META_BYTES_MAX];
            let len = write_meta(&meta, &mut place)?;
            place.truncate(len);
            assert_eq!(read_meta(&place), Some(meta));
            Ok(len)
        };
        let empty = meta_of(&value).unwrap();
        value.resize(META_BYTES_MAX - empty, 7);
        assert_eq!(meta_of(&value), Ok(META_BYTES_MAX));
        value.push(7);
        assert_eq!(meta_of(&value), Err(MetaTooLong { got: META_BYTES_MAX + 1 }));
        let text = MetaTooLong { got: 70_000 }.to_string();
        assert!(text.contains("70000") && text.contains("65535"), "{text}");
    }

    /// The layout is on people's disks: it changes only with its version.
    #[test]
    fn the_meta_byte_for_byte() {
        let headers = [Header { name: b"h", value: None }];
        let meta = Meta {
            notes: Notes {
                reason: Reason::Other("x"),
                stage: "s",
                topic: "t",
                partition: Some(1),
                attempts: 2,
                replays: 3,
                first_failure: UnixMs(4),
                last_failure: UnixMs(5),
                key: "k",
                router: "",
                detail: "",
            },
            key: Some(b"K"),
            value_is_null: false,
            record_time: Some(UnixMs(6)),
            headers: Headers::List(&headers),
        };
        let mut place = [0xee; 128];
        let len = write_meta(&meta, &mut place).unwrap();
        let want = [
            &b"\x01\x07\xff"[..],
            b"\x01\0\0\0\x02\0\0\0\x03\0\0\0",
            b"\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0",
            b"\x01\0x\x01\0s\x01\0t\x01\0k\0\0\0\0",
            b"\x01\0\0\0K",
            b"\x01\0\x01\0h\xff\xff\xff\xff",
        ]
        .concat();
        assert_eq!(place[..len], want);
        for short in 0..len {
            assert_eq!(read_meta(&place[..short]), None, "cut at {short}");
        }
        assert_eq!(read_meta(&place[..len + 1]), None, "a byte too many");
    }

    #[test]
    fn the_formats_page_names_every_header_and_reason() {
        let page = include_str!("../../docs/formats.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Dead letters")).unwrap();
        for name in header::ALL.into_iter().chain(NAMED.map(|(_, _, name)| name)) {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
        assert!(section.contains("65,535") && META_BYTES_MAX == 65_535);
    }

    type AnyNotes = (String, [String; 5], Option<u32>, [u32; 2], [i64; 2]);

    fn any_notes() -> impl Strategy<Value = AnyNotes> {
        let name = prop::sample::select(NAMED.map(|(_, _, name)| name.to_owned()).to_vec());
        let text = prop_oneof![".{0,12}", ".{0,700}"];
        let texts = [text.clone(), text.clone(), text.clone(), text.clone(), text.clone()];
        (prop_oneof![name, text], texts, any::<Option<u32>>(), any::<[u32; 2]>(), any::<[i64; 2]>())
    }

    fn notes_of((reason, texts, partition, numbers, times): &AnyNotes) -> Notes<'_> {
        Notes {
            reason: Reason::from_text(reason),
            stage: &texts[0],
            topic: &texts[1],
            partition: *partition,
            attempts: numbers[0],
            first_failure: UnixMs(times[0]),
            last_failure: UnixMs(times[1]),
            key: &texts[2],
            replays: numbers[1],
            router: &texts[3],
            detail: &texts[4],
        }
    }

    type AnyHeaders = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    fn any_headers() -> impl Strategy<Value = AnyHeaders> {
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
        prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), value), 0..8)
    }

    fn list(headers: &AnyHeaders) -> Vec<Header<'_>> {
        headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect()
    }

    proptest! {
        #[test]
        fn notes_come_back_from_headers(notes in any_notes(), own in any_headers()) {
            let (notes, own) = (notes_of(&notes), list(&own));
            let mut ours = Vec::new();
            notes.each_header(|name, value| ours.push((name, value.to_vec())));
            let ours = ours.iter().map(|(name, value)| Header { name: name.as_bytes(), value: Some(value) });
            let read = read_headers(own.iter().copied().chain(ours));
            prop_assert_eq!(read, HeadersRead { notes: notes.bounded(), own, is_letter: true, unread: vec![] });
        }

        #[test]
        fn a_meta_comes_back_from_its_bytes(
            notes in any_notes(),
            own in any_headers(),
            key in prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
            record_time in any::<Option<i64>>(),
            value_is_null in any::<bool>(),
        ) {
            let own = list(&own);
            let record_time = record_time.map(UnixMs);
            let headers = Headers::List(&own);
            let meta = Meta { notes: notes_of(&notes), key: key.as_deref(), value_is_null, record_time, headers };
            let mut place = vec![0xee; meta_len(&meta) + 1];
            let len = write_meta(&meta, &mut place).unwrap();
            prop_assert_eq!((len, place[len]), (meta_len(&meta), 0xee));
            let back = read_meta(&place[..len]);
            prop_assert_eq!(back, Some(Meta { notes: meta.notes.bounded(), ..meta }));
            // What was read can be written again, the same.
            let mut again = vec![0; len];
            write_meta(&back.unwrap(), &mut again).unwrap();
            prop_assert_eq!(&again[..], &place[..len]);
        }

        #[test]
        fn no_bytes_make_the_reader_of_a_meta_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            own in any_headers(),
        ) {
            if let Some(meta) = read_meta(&bytes) {
                prop_assert_eq!(meta.headers.iter().count(), meta.headers.len());
            }
            let own = list(&own);
            let headers = Headers::List(&own);
            let meta = Meta { notes: notes(), key: Some(b"k"), value_is_null: false, record_time: None, headers };
            let mut place = vec![0; meta_len(&meta)];
            write_meta(&meta, &mut place).unwrap();
            for (index, byte) in &flips {
                *index.get_mut(&mut place) = *byte;
            }
            if let Some(meta) = read_meta(&place) {
                prop_assert_eq!(meta.headers.iter().count(), meta.headers.len());
                prop_assert!(meta_len(&meta) <= META_BYTES_MAX);
            }
        }

        #[test]
        fn no_headers_make_their_reader_panic(own in any_headers(), values in prop::collection::vec(any::<Vec<u8>>(), 11)) {
            let ours = header::ALL.iter().zip(&values).map(|(name, value)| Header { name: name.as_bytes(), value: Some(value) });
            let read = read_headers(list(&own).into_iter().chain(ours));
            prop_assert_eq!(read.own, list(&own));
            prop_assert_eq!(read.notes, read.notes.bounded());
        }
    }
}

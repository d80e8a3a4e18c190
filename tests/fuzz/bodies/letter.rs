//! What a dead letter says about itself. The bytes are a form on disk, and they are choices from which headers and notes
//! are made. Any headers are read, a record's own kept as they came; any bytes on disk are read or refused; and what is
//! written, in either form, is read as the same.

use super::input::Input;
use fencepost::letter::notes::{
    HeadersRead, META_BYTES_MAX, Meta, header, meta_len, read_headers, read_meta, write_meta,
};
use fencepost::letter::{Header, Headers, Letter, Notes, Reason};
use fencepost::units::{PartitionId, UnixMs};

/// See the module.
pub fn check(bytes: &[u8]) {
    from_disk(bytes);
    let mut input = Input(bytes);
    let headers = any_headers(&mut input);
    from_headers(&headers);
    let own: Vec<Header<'_>> = headers.iter().copied().filter(|header| !is_ours(header)).collect();
    let meta = Meta {
        notes: any_notes(&mut input),
        key: (input.below(2) == 1).then(|| input.short()),
        value_is_null: input.below(2) == 1,
        record_time: (input.below(2) == 1).then(|| UnixMs(input.number() as i64)),
        headers: Headers::List(&own),
    };
    to_disk(&meta);
    to_headers(&meta.notes, &own);
}

fn is_ours(header: &Header<'_>) -> bool {
    header::ALL.iter().any(|name| name.as_bytes() == header.name)
}

/// Names are ours, nearly ours, or any; values null, empty, long or any.
fn any_headers<'a>(input: &mut Input<'a>) -> Vec<Header<'a>> {
    let count = input.below(16);
    let header = |_| {
        let name = match input.below(16) {
            nth @ 0..11 => header::ALL[nth].as_bytes(),
            11 => b"fencepost.reasons",
            _ => input.short(),
        };
        let value = match input.below(8) {
            0 => None,
            1 => Some(&b""[..]),
            _ => Some(input.short()),
        };
        Header { name, value }
    };
    (0..count).map(header).collect()
}

fn any_notes<'a>(input: &mut Input<'a>) -> Notes<'a> {
    // Also texts above every bound, which an input of some kilobytes would seldom have.
    const LONG: &str = const {
        match str::from_utf8(&[b'x'; 4_000]) {
            Ok(text) => text,
            Err(_) => panic!("it is text"),
        }
    };
    let mut text = || match input.byte() {
        0xff => LONG,
        len => {
            let bytes = input.take(len.into());
            let valid = str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
            str::from_utf8(&bytes[..valid]).expect("up to here it is text")
        }
    };
    let [reason, stage, topic, key, router, detail] = [text(), text(), text(), text(), text(), text()];
    Notes {
        reason: Reason::from_text(reason),
        stage,
        topic,
        partition: (input.below(2) == 1).then(|| input.number() as u32),
        attempts: input.number() as u32,
        first_failure: UnixMs(input.number() as i64),
        last_failure: UnixMs(input.number() as i64),
        key,
        replays: input.number() as u32,
        router,
        detail,
    }
}

fn from_headers(headers: &[Header<'_>]) {
    let read = read_headers(headers.iter().copied());
    assert!(read.own.iter().eq(headers.iter().filter(|header| !is_ours(header))), "a record's own stay as they came");
    assert_eq!(read.notes, read.notes.bounded(), "what was read keeps to the bounds");
    for name in &read.unread {
        assert!(headers.iter().any(|header| header.name == name.as_bytes()), "{name} did not come");
    }
    let reasons = headers.iter().filter(|header| header.name == header::REASON.as_bytes());
    let mut readable = reasons.filter(|header| header.value.is_some_and(|value| str::from_utf8(value).is_ok()));
    assert_eq!(read.is_letter, readable.next().is_some());
    to_headers(&read.notes, &read.own);
}

/// Written as headers behind the record's own, they are read as the same.
fn to_headers(notes: &Notes<'_>, own: &[Header<'_>]) {
    let mut ours = Vec::new();
    notes.each_header(|name, value| ours.push((name, value.to_vec())));
    let ours = ours.iter().map(|(name, value)| Header { name: name.as_bytes(), value: Some(value) });
    let read = read_headers(own.iter().copied().chain(ours));
    let want = HeadersRead { notes: notes.bounded(), own: own.to_vec(), is_letter: true, unread: Vec::new() };
    assert_eq!(read, want);
}

/// Written to the disk, it is read as the same, and written again it is the same bytes.
fn to_disk(meta: &Meta<'_>) {
    let mut place = vec![0xee; meta_len(meta) + 1];
    let written = write_meta(meta, &mut place);
    if meta_len(meta) > META_BYTES_MAX {
        return assert!(written.is_err(), "{written:?}");
    }
    let len = written.expect("it is within the limit");
    assert_eq!((len, place[len]), (meta_len(meta), 0xee));
    let read = read_meta(&place[..len]).expect("what was written is read");
    assert_eq!(read, Meta { notes: meta.notes.bounded(), ..*meta });
    let mut again = vec![0; len];
    assert_eq!(write_meta(&read, &mut again), Ok(len));
    assert_eq!(again, place[..len]);
}

fn from_disk(bytes: &[u8]) {
    let read = read_meta(bytes);
    let letter = Letter::from_stored(PartitionId(7), bytes, b"value");
    assert_eq!(letter.is_some(), read.is_some());
    let Some(meta) = read else { return };
    assert_eq!(meta.headers.iter().count(), meta.headers.len());
    assert_eq!(meta.headers.is_empty(), meta.headers.iter().next().is_none());
    assert_eq!(meta.notes, meta.notes.bounded());
    // A reason's number alone is read, and written with its name.
    let most = bytes.len() + meta.notes.reason.text().len();
    assert!(meta_len(&meta) <= most, "nothing comes in beside what was there");
    to_disk(&meta);
}

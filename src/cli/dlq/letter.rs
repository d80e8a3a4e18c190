//! A dead letter, taken out of its topic or off the disk, whole: key, value and headers byte for byte.

use crate::letter::notes::read_meta;
use crate::letter::{Header, Notes, notes};
use crate::sink::kafka::headers::each_header;
use crate::spill::Stored;
use crate::wire::{self, Decoded};
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;

/// A header's name and value.
pub(super) type OwnHeader = (Vec<u8>, Option<Vec<u8>>);

/// One letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) partition: u32,
    /// In its topic; on the disk, its sequence.
    pub(super) offset: i64,
    pub(super) time_ms: Option<i64>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    /// All of them, in order: ours and its own.
    pub(super) headers: Vec<OwnHeader>,
}

/// What was read of a letter's headers.
pub(super) type Read<'a> = notes::HeadersRead<'a>;

impl Letter {
    pub(super) fn of_record(record: &BorrowedMessage<'_>) -> Letter {
        let mut headers = Vec::new();
        each_header(record, |name, value| headers.push((name.to_vec(), value.map(<[u8]>::to_vec))));
        Letter {
            // The client numbers partitions from 0 on.
            partition: record.partition() as u32,
            offset: record.offset(),
            time_ms: record.timestamp().to_millis(),
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
            headers,
        }
    }

    /// `None`: the record's notes cannot be read.
    pub(super) fn of_stored(stored: &Stored<'_>) -> Option<Letter> {
        let meta = read_meta(stored.record.meta)?;
        let mut headers: Vec<OwnHeader> = Vec::new();
        headers.extend(meta.headers.iter().map(|Header { name, value }| (name.to_vec(), value.map(<[u8]>::to_vec))));
        meta.notes.each_header(|name, value| headers.push((name.as_bytes().to_vec(), Some(value.to_vec()))));
        Some(Letter {
            partition: stored.id.partition.0,
            offset: i64::try_from(stored.id.sequence).unwrap_or(i64::MAX),
            time_ms: meta.record_time.map(|time| time.0),
            key: meta.key.map(<[u8]>::to_vec),
            value: (!meta.value_is_null).then(|| stored.record.frame.to_vec()),
            headers,
        })
    }

    pub(super) fn read(&self) -> Read<'_> {
        notes::read_headers(self.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }))
    }

    /// The trigger inside, or why there is none.
    pub(super) fn frame(&self) -> Result<Decoded<'_>, String> {
        match &self.value {
            None => Err("it has no value".to_owned()),
            Some(value) => wire::decode(value).map_err(|error| error.to_string()),
        }
    }

    /// When it last failed, as its notes say; else when it was written.
    pub(super) fn failed_ms(&self, notes: &Notes<'_>) -> Option<i64> {
        Some(notes.last_failure.0).filter(|ms| *ms > 0).or(self.time_ms)
    }

    /// Bytes of memory it takes, nearly.
    pub(super) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len) + 48);
        self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len) + headers.sum::<usize>() + 128
    }

    /// Its headers as it is published again: all as they were, in their order, and counted as one replay more.
    pub(super) fn replayed_headers(&self, replays: u32) -> Vec<OwnHeader> {
        let name = notes::header::REPLAYS.as_bytes();
        let mut headers: Vec<OwnHeader> = self.headers.clone();
        // A reader takes the last of a name.
        match headers.iter_mut().rev().find(|(found, _)| found == name) {
            Some((_, value)) => *value = Some(replays.to_string().into_bytes()),
            None => headers.push((name.to_vec(), Some(replays.to_string().into_bytes()))),
        }
        headers
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cli::dlq) fn letter(headers: &[(&str, &str)]) -> Letter {
        let headers =
            headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))).collect();
        Letter { partition: 2, offset: 7, time_ms: Some(5), key: None, value: None, headers }
    }

    #[test]
    fn a_replay_changes_one_header_in_its_place() {
        let once = letter(&[("a", "1"), ("fencepost.replays", "0"), ("fencepost.reason", "shed"), ("a", "2")]);
        let want = letter(&[("a", "1"), ("fencepost.replays", "1"), ("fencepost.reason", "shed"), ("a", "2")]);
        assert_eq!(once.replayed_headers(1), want.headers);
        assert_eq!(
            letter(&[("a", "1")]).replayed_headers(3),
            letter(&[("a", "1"), ("fencepost.replays", "3")]).headers
        );
        assert_eq!(want.read().notes.replays, 1);
    }

    #[test]
    fn the_time_of_a_letter_is_its_last_failure_or_its_records() {
        let failed = letter(&[("fencepost.last_failure_ms", "9")]);
        assert_eq!(failed.failed_ms(&failed.read().notes), Some(9));
        let bare = letter(&[]);
        assert_eq!(bare.failed_ms(&bare.read().notes), Some(5));
        assert!(bare.frame().is_err_and(|why| why.contains("no value")));
    }
}

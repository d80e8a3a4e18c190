//! A stream of lines or frames through a [`Feed`], and what comes out of it by the slow, obvious way.

use fencepost::source::{Batch, Fault, Feed, Format, Position};
use fencepost::trigger::{Priority, State, Trigger};

/// A trigger that owns its bytes.
pub type Owned = (String, String, State, i64, Priority, Vec<u8>);

pub fn owned(trigger: &Trigger<'_>) -> Owned {
    let Trigger { device_id, fence_id, state, event_time_ms, priority, attributes } = *trigger;
    (device_id.into(), fence_id.into(), state, event_time_ms, priority, attributes.into())
}

/// What becomes of a line or frame: its number, the trigger or the fault, and its bytes.
#[derive(Debug, PartialEq)]
pub struct Event {
    pub line: u64,
    pub outcome: Result<Owned, String>,
    pub raw: Vec<u8>,
}

/// All that comes out of a stream.
#[derive(Debug, PartialEq)]
pub struct Out {
    pub events: Vec<Event>,
    pub position: Position,
    pub has_left: bool,
}

/// How a stream is read.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub format: Format,
    pub limit: usize,
    /// Bytes that come at once.
    pub block: usize,
    pub leaves_unfinished: bool,
    /// Lines that an earlier run had settled.
    pub known: u64,
}

/// What a fault says. How long a line is that is too long is only known when its end is near, so that is left out.
pub fn said(fault: &Fault) -> String {
    let why = if matches!(fault, Fault::LineTooLong { .. }) { String::new() } else { fault.to_string() };
    format!("{} {why}", fault.code())
}

/// Reads all of it, block by block.
pub fn read(way: Way, bytes: &[u8]) -> Out {
    let mut feed = Feed::new(way.format, way.limit, 256).starting_at(Position::default(), way.known);
    if way.leaves_unfinished {
        feed = feed.leaving_unfinished();
    }
    let (mut events, mut rest) = (Vec::new(), bytes);
    loop {
        let size = way.block.min(rest.len());
        let count = feed.fill(&mut &rest[..size]).expect("memory can be read");
        assert!(count > 0 || rest.is_empty(), "there is always room for the next block");
        rest = &rest[count..];
        loop {
            let mut batch = Batch::new();
            let before = feed.position();
            if !feed.batch(&mut batch) {
                assert_eq!((batch.triggers().len(), batch.faults().len()), (0, 0), "nothing was taken");
                break;
            }
            let first = events.len();
            let triggers = batch.triggers().iter().zip(batch.lines()).zip(batch.raws());
            events.extend(triggers.map(|((trigger, line), raw)| Event {
                line: *line,
                outcome: Ok(owned(trigger)),
                raw: raw.to_vec(),
            }));
            let faults = batch.faults();
            events.extend(faults.map(|faulty| Event {
                line: faulty.line,
                outcome: Err(said(&faulty.fault)),
                raw: faulty.raw.to_vec(),
            }));
            events[first..].sort_by_key(|event| event.line);
            assert!(feed.position().offset > before.offset, "what was taken moves the position");
        }
        if count == 0 {
            return Out { events, position: feed.position(), has_left: feed.has_left() };
        }
    }
}

/// Every way of reading gives what `model` says. It is told the way, without its blocks.
pub fn check(format: Format, limit: usize, bytes: &[u8], model: impl Fn(Way, &[u8]) -> Out) {
    for (leaves_unfinished, known) in [(false, 0), (true, 0), (false, 2)] {
        let way = Way { format, limit, block: usize::MAX, leaves_unfinished, known };
        let want = model(way, bytes);
        // Byte by byte where there are few: every block costs a batch, which has room for hundreds.
        for block in [usize::MAX, 61.max(bytes.len() / 20), 1 + bytes.len() / 40] {
            assert_eq!(read(Way { block, ..way }, bytes), want, "in blocks of {block}: {way:?}");
        }
    }
}

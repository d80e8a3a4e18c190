//! Dead letters of the shards, on their way to the desk: the notes are put together here, off the shards.

use super::callers::{CallerLetter, CallerLine};
use super::order::{LetterOrder, News};
use super::{KeeperEnd, tell};
use crate::letter::{Desk, Headers, Letter, LetterSink, Notes, Reason, Settled, TakeError};
use crate::spill::Disk;
use crate::units::{Nanos, PartitionId, UnixMs};
use crate::wire;

/// Marks the token of a caller's letter; below are its lane and its seq.
const OF_CALLER: u64 = 1 << 62;
const LANE_SHIFT: u32 = 48;
const SEQ_MASK: u64 = (1 << LANE_SHIFT) - 1;
/// Letters taken from one shard before the next one has its turn.
const LETTERS_A_TURN: usize = 4_096;

/// The desk, and what every letter says.
pub struct LetterRoom<L: LetterSink, D: Disk> {
    desk: Desk<L, D>,
    /// The topic the triggers were meant for.
    topic: String,
    /// Who this router is.
    router: String,
}

impl<L: LetterSink, D: Disk> LetterRoom<L, D> {
    /// A desk for the triggers of a topic.
    #[must_use]
    pub fn new(desk: Desk<L, D>, topic: String, router: String) -> LetterRoom<L, D> {
        LetterRoom { desk, topic, router }
    }

    /// The desk.
    pub fn desk(&mut self) -> &mut Desk<L, D> {
        &mut self.desk
    }

    /// Takes letters of the shards, as far as the desk has room, and tells what became of those before.
    pub(super) fn turn(&mut self, ends: &mut [KeeperEnd], callers: &mut [CallerLine], now: Nanos) -> bool {
        let mut worked = false;
        for (shard, end) in ends.iter_mut().enumerate() {
            for _ in 0..LETTERS_A_TURN {
                let KeeperEnd { letters, news, .. } = end;
                let Some((head, body)) = letters.front() else { break };
                let order = LetterOrder::decode(&head, body);
                let token = (shard as u64) << 32 | u64::from(order.slot);
                match self.take(token, &Case::from(&order), now) {
                    Ok(()) => {}
                    Err(TakeError::Full) => break,
                    Err(error @ TakeError::TooLong { .. }) => {
                        log::error!("{error}: it is given back to its caller");
                        tell(news, News::LetterRefused { slot: order.slot });
                    }
                }
                // A desk that is full is no work: its turn sees to it, and the thread may sleep meanwhile.
                worked = true;
                letters.pop();
            }
        }
        worked |= self.take_from_callers(callers, now);
        self.desk.turn(now, &mut |token, settled| report(ends, callers, token, settled));
        worked
    }

    fn take_from_callers(&mut self, callers: &mut [CallerLine], now: Nanos) -> bool {
        let mut worked = false;
        for (lane, caller) in callers.iter_mut().enumerate() {
            for _ in 0..LETTERS_A_TURN {
                let CallerLine { letters, report } = caller;
                let Some((head, body)) = letters.front() else { break };
                let given = CallerLetter::decode(&head, body);
                let token = OF_CALLER | (lane as u64) << LANE_SHIFT | given.seq;
                match self.take(token, &Case::from(&given), now) {
                    Ok(()) => report.taken(given.seq),
                    Err(TakeError::Full) => break,
                    Err(error @ TakeError::TooLong { .. }) => {
                        log::error!("{error}: it is given back to its caller");
                        report.taken(given.seq);
                        report.done(given.seq, false);
                    }
                }
                worked = true;
                letters.pop();
            }
            caller.report.tick();
        }
        worked
    }

    /// Puts the notes together and hands the letter to the desk.
    fn take(&mut self, token: u64, case: &Case<'_>, now: Nanos) -> Result<(), TakeError> {
        // Bytes that cannot be read, raw or from the disk, have no key that we know.
        let decoded = if case.is_raw { None } else { wire::decode(case.body).ok() };
        let printed = decoded.as_ref().map(|decoded| decoded.frame.key().to_string());
        let notes = Notes {
            reason: case.reason,
            stage: case.stage,
            topic: &self.topic,
            partition: (!case.is_raw).then_some(case.partition.0),
            attempts: case.attempts,
            first_failure: case.failed,
            last_failure: case.failed,
            key: printed.as_deref().unwrap_or(""),
            replays: 0,
            router: &self.router,
            detail: case.detail,
        };
        let letter = Letter {
            partition: case.partition,
            key: decoded.as_ref().map(|decoded| decoded.frame.device_id),
            value: Some(case.body),
            headers: Headers::default(),
            record_time: case.given.or(decoded.as_ref().map(|decoded| decoded.frame.accepted.as_ms())),
            notes,
        };
        self.desk.take(token, &letter, now)
    }

    /// Everything that waits goes to the disk at once.
    pub(super) fn finish(&mut self, ends: &mut [KeeperEnd], callers: &mut [CallerLine], now: Nanos) -> u64 {
        self.turn(ends, callers, now);
        self.desk.shutdown(now, &mut |token, settled| report(ends, callers, token, settled))
    }
}

fn report(ends: &mut [KeeperEnd], callers: &mut [CallerLine], token: u64, settled: Settled<'_>) {
    let is_durable = match settled {
        Settled::Durable { .. } => true,
        Settled::Refused { text } => {
            log::error!("a dead letter is taken by neither its topic nor the disk: {text}");
            false
        }
    };
    if token & OF_CALLER != 0 {
        let lane = (token >> LANE_SHIFT) as u8;
        callers[usize::from(lane)].report.done(token & SEQ_MASK, is_durable);
        return;
    }
    let (shard, slot) = ((token >> 32) as usize, token as u32);
    let news = if is_durable { News::Lettered { slot } } else { News::LetterRefused { slot } };
    tell(&mut ends[shard].news, news);
}

/// What is known of a letter before its bytes are looked at, whoever hands it over.
struct Case<'a> {
    reason: Reason<'a>,
    stage: &'static str,
    partition: PartitionId,
    attempts: u32,
    failed: UnixMs,
    /// When a caller gave it; a shard's letter keeps the time at which its trigger was accepted.
    given: Option<UnixMs>,
    /// The bytes are no trigger: no key, and no partition they were meant for.
    is_raw: bool,
    body: &'a [u8],
    detail: &'a str,
}

impl<'a> From<&LetterOrder<'a>> for Case<'a> {
    fn from(order: &LetterOrder<'a>) -> Case<'a> {
        Case {
            reason: Reason::from_number(order.reason, "").unwrap_or(Reason::Other("unknown")),
            stage: order.stage.name(),
            partition: order.partition,
            attempts: order.attempts.into(),
            failed: order.failed,
            given: None,
            is_raw: false,
            body: order.frame,
            detail: order.detail,
        }
    }
}

impl<'a> From<&CallerLetter<'a>> for Case<'a> {
    fn from(given: &CallerLetter<'a>) -> Case<'a> {
        Case {
            reason: Reason::from_text(given.reason),
            stage: if given.is_raw { "source" } else { "submit" },
            partition: given.partition,
            attempts: 0,
            failed: given.given,
            given: Some(given.given),
            is_raw: given.is_raw,
            body: given.body,
            detail: given.detail,
        }
    }
}

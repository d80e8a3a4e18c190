//! Dead letters of the shards, on their way to the desk: the notes are put together here, off the shards.

use super::order::{LetterOrder, News};
use super::{KeeperEnd, tell};
use crate::letter::{Desk, Headers, Letter, LetterSink, Notes, Reason, Settled, TakeError};
use crate::spill::Disk;
use crate::units::Nanos;
use crate::wire;

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
    pub(super) fn turn(&mut self, ends: &mut [KeeperEnd], now: Nanos) -> bool {
        let mut worked = false;
        for (shard, end) in ends.iter_mut().enumerate() {
            for _ in 0..LETTERS_A_TURN {
                let KeeperEnd { letters, news, .. } = end;
                let Some((head, body)) = letters.front() else { break };
                let order = LetterOrder::decode(&head, body);
                worked = true;
                match take(&mut self.desk, &self.topic, &self.router, shard, &order, now) {
                    Ok(()) => {}
                    Err(TakeError::Full) => break,
                    Err(error @ TakeError::TooLong { .. }) => {
                        log::error!("{error}: it is given back to its caller");
                        tell(news, News::LetterRefused { slot: order.slot });
                    }
                }
                letters.pop();
            }
        }
        self.desk.turn(now, &mut |token, settled| report(ends, token, settled));
        worked
    }

    /// Everything that waits goes to the disk at once.
    pub(super) fn finish(&mut self, ends: &mut [KeeperEnd], now: Nanos) -> u64 {
        self.turn(ends, now);
        self.desk.shutdown(now, &mut |token, settled| report(ends, token, settled))
    }
}

fn report(ends: &mut [KeeperEnd], token: u64, settled: Settled<'_>) {
    let (shard, slot) = ((token >> 32) as usize, token as u32);
    let news = match settled {
        Settled::Durable { .. } => News::Lettered { slot },
        Settled::Refused { text } => {
            log::error!("a dead letter is taken by neither its topic nor the disk: {text}");
            News::LetterRefused { slot }
        }
    };
    tell(&mut ends[shard].news, news);
}

fn take<L: LetterSink, D: Disk>(
    desk: &mut Desk<L, D>,
    topic: &str,
    router: &str,
    shard: usize,
    order: &LetterOrder<'_>,
    now: Nanos,
) -> Result<(), TakeError> {
    // A record of the disk that cannot be read has no key that we know.
    let decoded = wire::decode(order.frame).ok();
    let printed = decoded.as_ref().map(|decoded| decoded.frame.key().to_string());
    let notes = Notes {
        reason: Reason::from_number(order.reason, "").unwrap_or(Reason::Other("unknown")),
        stage: order.stage.name(),
        topic,
        partition: Some(order.partition.0),
        attempts: order.attempts.into(),
        first_failure: order.failed,
        last_failure: order.failed,
        key: printed.as_deref().unwrap_or(""),
        replays: 0,
        router,
        detail: order.detail,
    };
    let letter = Letter {
        partition: order.partition,
        key: decoded.as_ref().map(|decoded| decoded.frame.device_id),
        value: Some(order.frame),
        headers: Headers::default(),
        record_time: decoded.as_ref().map(|decoded| decoded.frame.accepted.as_ms()),
        notes,
    };
    desk.take((shard as u64) << 32 | u64::from(order.slot), &letter, now)
}

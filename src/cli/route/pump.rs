//! The pump: from a feed into an ingress, one batch after another, in order. What is shed is held and offered again; the
//! feed is not read meanwhile, which is how pressure reaches the source.

use crate::engine::Router;
use crate::ingress::{ClosedWhy, Ingress, Refused};
use crate::source::{Batch, FAULTS, Fault, Feed, Trail};
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two offers of a trigger that was shed. A full ring holds far more than is drained meanwhile.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// What all connections of a source count. `Relaxed` throughout: numbers to look at; at the end they are read after the
/// threads that wrote them were joined.
#[derive(Default)]
pub(super) struct Tally {
    /// Lines or frames taken from the source, blank ones included.
    pub(super) lines: AtomicU64,
    /// Their bytes.
    pub(super) bytes: AtomicU64,
    /// Those that are no triggers.
    pub(super) malformed: AtomicU64,
    /// Triggers that break a rule.
    pub(super) rejected: AtomicU64,
    /// Triggers that were read and not offered before the end.
    pub(super) unoffered: AtomicU64,
    /// Waits for room.
    pub(super) waits: AtomicU64,
    /// Connections taken.
    pub(super) connections: AtomicU64,
    /// Connections sent away.
    pub(super) turned_away: AtomicU64,
    /// Connections that were closed from this side.
    pub(super) cut: AtomicU64,
}

impl Tally {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
    pub(super) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Whoever the lines come from, and who wants to know what became of them.
pub(super) trait Host {
    /// A line that is not delivered, by its number, with a word for scripts and a sentence for people.
    fn refused(&mut self, line: u64, code: &str, why: &dyn Display);
    /// Called often: everything up to line `settled` is settled.
    fn tick(&mut self, settled: u64, trail: &Trail);
    /// Called once, last: as [`Host::tick`].
    fn end(&mut self, settled: u64, trail: &Trail);
    /// Whether to stop offering.
    fn is_over(&mut self) -> bool;
}

/// Why the pump stopped, if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    /// Everything that was there is offered.
    On,
    /// The host said so.
    Over,
    /// The router takes nothing any more.
    Closed(ClosedWhy),
}

/// See the [module](self).
pub(super) struct Pump<'a> {
    router: &'a Router,
    ingress: Ingress,
    trail: Trail,
    faults: Vec<(u64, Fault)>,
    tally: &'a Tally,
}

impl<'a> Pump<'a> {
    pub(super) fn new(router: &'a Router, ingress: Ingress, trail: Trail, tally: &'a Tally) -> Pump<'a> {
        Pump { router, ingress, trail, faults: Vec::with_capacity(FAULTS), tally }
    }

    /// Offers everything whole that the feed holds.
    pub(super) fn take(&mut self, feed: &mut Feed, host: &mut dyn Host) -> Went {
        loop {
            let (before, fresh_before) = (feed.position(), feed.fresh_lines());
            let mut batch = Batch::new();
            if !feed.batch(&mut batch, &mut self.faults) {
                if feed.is_between() {
                    self.trail.mark(feed.position());
                }
                return Went::On;
            }
            Tally::add(&self.tally.malformed, self.faults.len() as u64);
            for (line, fault) in self.faults.drain(..) {
                host.refused(line, fault.code(), &fault);
            }
            let went = self.offer(&batch, host);
            let after = feed.position();
            Tally::add(&self.tally.lines, feed.fresh_lines() - fresh_before);
            Tally::add(&self.tally.bytes, after.offset - before.offset);
            if went != Went::On {
                return went;
            }
            self.trail.seen(after);
            self.look_after(host);
        }
    }

    /// Counts what the feed still holds and nobody will offer any more.
    pub(super) fn leave(&mut self, feed: &mut Feed) {
        loop {
            let (before, fresh_before) = (feed.position(), feed.fresh_lines());
            let mut batch = Batch::new();
            if !feed.batch(&mut batch, &mut self.faults) {
                return;
            }
            Tally::add(&self.tally.unoffered, batch.triggers().len() as u64);
            Tally::add(&self.tally.malformed, self.faults.len() as u64);
            self.faults.clear();
            Tally::add(&self.tally.lines, feed.fresh_lines() - fresh_before);
            Tally::add(&self.tally.bytes, feed.position().offset - before.offset);
        }
    }

    /// The same for bytes that were read and are not in the feed yet.
    pub(super) fn leave_all(&mut self, feed: &mut Feed, mut rest: &[u8]) {
        self.leave(feed);
        // Reading from memory does not fail.
        while !rest.is_empty() && feed.fill(&mut rest).is_ok() {
            self.leave(feed);
        }
    }

    fn offer(&mut self, batch: &Batch<'_>, host: &mut dyn Host) -> Went {
        let mut from = 0;
        loop {
            let (triggers, lines) = (&batch.triggers()[from..], &batch.lines()[from..]);
            let (trail, tally) = (&mut self.trail, self.tally);
            let answer = self.ingress.submit_until_shed(triggers, |index, answer| match answer {
                Ok(accepted) => trail.accepted(accepted.seq, lines[index]),
                Err(reason) => {
                    Tally::add(&tally.rejected, 1);
                    host.refused(lines[index], "rejected", &reason);
                }
            });
            let went = match answer {
                Ok(()) => return Went::On,
                Err((taken, Refused::Closed(why))) => {
                    from += taken;
                    Went::Closed(why)
                }
                // `submit_until_shed` passes rejections on; one here would be held like a shed one, and reported again.
                Err((taken, Refused::Shed(_) | Refused::Rejected(_))) => {
                    from += taken;
                    Tally::add(&self.tally.waits, 1);
                    std::thread::sleep(RETRY_PAUSE);
                    self.look_after(host);
                    if host.is_over() { Went::Over } else { Went::On }
                }
            };
            if went != Went::On {
                Tally::add(&self.tally.unoffered, (batch.triggers().len() - from) as u64);
                return went;
            }
        }
    }

    /// Passes on what failed and how far everything is settled. To be called whenever there is nothing to offer.
    pub(super) fn look_after(&mut self, host: &mut dyn Host) {
        while let Some(failed) = self.ingress.take_failed() {
            host.refused(self.trail.line_of(failed.seq).unwrap_or(0), "failed", &failed.reason);
        }
        let settled = self.trail.settled(self.ingress.settled());
        host.tick(settled, &self.trail);
    }

    /// The last word on how far everything is settled.
    pub(super) fn end(&mut self, host: &mut dyn Host) {
        let settled = self.trail.settled(self.ingress.settled());
        host.end(settled, &self.trail);
    }

    /// Whether everything that was accepted is settled.
    pub(super) fn is_settled(&mut self) -> bool {
        self.ingress.settled().0 >= self.ingress.accepted()
    }

    /// Waits until everything is settled, or `is_late` says so, or the router fails. True: everything is.
    pub(super) fn drain(&mut self, host: &mut dyn Host, mut is_late: impl FnMut() -> bool) -> bool {
        loop {
            let is_settled = self.is_settled();
            self.look_after(host);
            if is_settled || is_late() || !self.router.is_healthy() {
                return is_settled;
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }
}

/// A limit that begins to run when it is first asked about.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    limit: Duration,
    until: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(limit: Duration) -> Deadline {
        Deadline { limit, until: None }
    }

    pub(super) fn has_passed(&mut self) -> bool {
        self.left().is_zero()
    }

    /// How much of it is left.
    pub(super) fn left(&mut self) -> Duration {
        let now = Instant::now();
        self.until.get_or_insert(now + self.limit).saturating_duration_since(now)
    }
}

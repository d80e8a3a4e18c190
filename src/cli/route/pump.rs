//! The pump: from a feed into an ingress, one batch after another, in order. What is shed is held and offered again; the
//! feed is not read meanwhile, which is how pressure reaches the source. With `route.on_shed = "dead-letter"` it goes to the
//! dead letters instead, and the feed is read on.
//!
//! What is no trigger, or breaks a rule, goes to the dead letters as the bytes it came as, in its place among the triggers:
//! it takes a seq of the ingress as they do, so that nothing is said to be settled behind it before it is durable.
//! Where there are no dead letters it is reported and passed over.

use super::Setup;
use crate::config::RouteOnShed;
use crate::engine::Router;
use crate::ingress::{Accepted, ClosedWhy, Ingress, Refused};
use crate::letter::notes::DETAIL_BYTES;

use crate::source::{Batch, Fault, Faulty, Feed, Trail};
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two offers of a trigger that was shed. A full ring holds far more than is drained meanwhile.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Between two looks at what is unsettled: a few batches of a partition are acknowledged meanwhile.
const SETTLE_PAUSE: Duration = Duration::from_micros(200);
/// After so many of them without room, it is the answers that take long.
const LONG_PAUSES: u32 = 100;

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
    /// Of both, and of those below, what the dead letters took.
    pub(super) lettered: AtomicU64,
    /// Triggers that were shed and that the dead letters took.
    pub(super) shed: AtomicU64,
    /// What was read and not offered before the end: triggers, and with dead letters all that goes there.
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
    tally: &'a Tally,
    has_letters: bool,
    /// What is shed goes there.
    diverts_shed: bool,
    /// The window in flight of a partition, for a source that heeds it; 0: it does not.
    window: u64,
    /// So many may be unsettled in the router before such a source is read on.
    most_unsettled: u64,
    /// A letter's words, put together here.
    detail: String,
}

impl<'a> Pump<'a> {
    pub(super) fn new(setup: &Setup<'a>, ingress: Ingress, trail: Trail) -> Pump<'a> {
        let has_letters = ingress.has_dead_letters();
        Pump {
            router: setup.router,
            ingress,
            trail,
            tally: setup.tally,
            has_letters,
            diverts_shed: has_letters && setup.config.route.on_shed == RouteOnShed::DeadLetter,
            window: 0,
            most_unsettled: 0,
            detail: String::with_capacity(2 * DETAIL_BYTES),
        }
    }

    /// For a source that can wait: it is read no further while three quarters of a window in flight are unsettled, so that no
    /// window fills. What does not fit one is diverted, so a file that is read faster than brokers take it would go over the
    /// disk, nearly all of it. Where answers take long, more is let in, as long as the fullest window is a quarter full.
    pub(super) fn patient(mut self, window: u64) -> Pump<'a> {
        (self.window, self.most_unsettled) = (window, window / 4 * 3);
        self
    }

    /// Waits until little enough is unsettled; what is stuck somewhere is diverted, and thereby settled, in time.
    fn let_it_settle(&mut self, host: &mut dyn Host) -> Went {
        let mut pauses = 0;
        while self.router.unsettled() >= self.most_unsettled && self.router.is_healthy() {
            std::thread::sleep(SETTLE_PAUSE);
            self.look_after(host);
            if host.is_over() {
                return Went::Over;
            }
            pauses += 1;
            let fullest = self.router.fullest_window();
            if fullest > self.window / 2 {
                self.most_unsettled = self.window / 4 * 3;
            } else if pauses > LONG_PAUSES && fullest < self.window / 4 && self.most_unsettled < 8 * self.window {
                // How full a window is was seen some milliseconds ago: in small steps, none fills meanwhile.
                self.most_unsettled += self.window / 64;
            }
        }
        Went::On
    }

    /// Offers everything whole that the feed holds.
    pub(super) fn take(&mut self, feed: &mut Feed, host: &mut dyn Host) -> Went {
        loop {
            let (before, fresh_before) = (feed.position(), feed.fresh_lines());
            let mut batch = Batch::new();
            if !feed.batch(&mut batch) {
                if feed.is_between() {
                    self.trail.mark(feed.position());
                }
                return Went::On;
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
            if self.window > 0 {
                match self.let_it_settle(host) {
                    Went::On => {}
                    went => return went,
                }
            }
        }
    }

    /// Counts what the feed still holds and nobody will offer any more.
    pub(super) fn leave(&mut self, feed: &mut Feed) {
        loop {
            let (before, fresh_before) = (feed.position(), feed.fresh_lines());
            let mut batch = Batch::new();
            if !feed.batch(&mut batch) {
                return;
            }
            self.left(batch.triggers().len(), batch.faults().len());
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

    /// Counts triggers and faults that were read and that nobody looks at any more.
    fn left(&self, triggers: usize, faults: usize) {
        let (triggers, faults) = (triggers as u64, faults as u64);
        let (unoffered, malformed) = if self.has_letters { (triggers + faults, 0) } else { (triggers, faults) };
        Tally::add(&self.tally.unoffered, unoffered);
        Tally::add(&self.tally.malformed, malformed);
    }

    fn offer(&mut self, batch: &Batch<'_>, host: &mut dyn Host) -> Went {
        let (triggers, lines) = (batch.triggers(), batch.lines());
        let mut faults = batch.faults();
        let mut from = 0;
        loop {
            // The triggers in front of the next fault, and then that.
            let fault = faults.next();
            let until = fault.map_or(lines.len(), |faulty| lines.partition_point(|line| *line < faulty.line));
            let went = self.offer_until(batch, &mut from, until, host);
            let went = match (went, fault) {
                (Ok(()), None) => return Went::On,
                (Ok(()), Some(Faulty { line, fault, raw })) => self.pass_over_fault(*line, fault, raw, host),
                (went, _) => went,
            };
            if let Err(went) = went {
                self.left(triggers.len() - from, faults.len() + usize::from(fault.is_some()));
                return went;
            }
        }
    }

    /// Offers the triggers up to `until`, from `from` on, which says afterwards up to where they were taken.
    fn offer_until(
        &mut self,
        batch: &Batch<'_>,
        from: &mut usize,
        until: usize,
        host: &mut dyn Host,
    ) -> Result<(), Went> {
        while *from < until {
            let (first, lines, trail) = (*from, batch.lines(), &mut self.trail);
            let answer = self.ingress.submit_until_refused(&batch.triggers()[first..until], |index, accepted| {
                trail.accepted(accepted.seq, lines[first + index]);
            });
            let Err((taken, refused)) = answer else {
                *from = until;
                break;
            };
            *from += taken;
            let line = lines[*from];
            match refused {
                Refused::Closed(why) => return Err(Went::Closed(why)),
                Refused::Rejected(reason) => {
                    self.pass_over(line, "rejected", &reason, batch.raws()[*from], host)?;
                    Tally::add(&self.tally.rejected, 1);
                    *from += 1;
                }
                Refused::Shed(_) if self.diverts_shed => {
                    match self.ingress.dead_letter(&batch.triggers()[*from], "shed") {
                        Ok(accepted) => {
                            self.lettered(accepted, line);
                            Tally::add(&self.tally.shed, 1);
                            *from += 1;
                        }
                        Err(Refused::Closed(why)) => return Err(Went::Closed(why)),
                        // Neither has room; whichever has it first gets the trigger. A rejection is met by the next offer.
                        Err(Refused::Shed(_) | Refused::Rejected(_)) => self.wait(host)?,
                    }
                }
                Refused::Shed(_) => self.wait(host)?,
            }
        }
        Ok(())
    }

    /// A line that is no trigger: to the dead letters, or past them.
    fn pass_over_fault(&mut self, line: u64, fault: &Fault, raw: &[u8], host: &mut dyn Host) -> Result<(), Went> {
        if fault.is_too_long() {
            let bytes = raw.len();
            self.pass_over(line, fault.code(), &format_args!("{fault}; its first {bytes} bytes are kept"), raw, host)?;
        } else {
            self.pass_over(line, fault.code(), fault, raw, host)?;
        }
        Tally::add(&self.tally.malformed, 1);
        Ok(())
    }

    /// What is begun and will not be ended: to the dead letters, or past them.
    pub(super) fn abandon(&mut self, feed: &mut Feed, code: &str, why: &str, host: &mut dyn Host) -> Went {
        let before = feed.position();
        let Some((fault, raw)) = feed.abandon() else {
            host.refused(before.lines + 1, code, &why);
            return Went::On;
        };
        let (line, bytes) = (before.lines + 1, raw.len());
        let passed = match fault {
            Some(fault) => self.pass_over(line, code, &format_args!("{why}; {fault}, {bytes} came"), raw, host),
            None => self.pass_over(line, code, &why, raw, host),
        };
        let after = feed.position();
        Tally::add(&self.tally.lines, 1);
        Tally::add(&self.tally.bytes, after.offset - before.offset);
        match passed {
            Ok(()) => {
                Tally::add(&self.tally.malformed, 1);
                self.trail.seen(after);
                Went::On
            }
            Err(went) => {
                self.left(0, 1);
                went
            }
        }
    }

    /// Takes the blank lines in front of a feed. False: something else was taken from it before.
    pub(super) fn is_at_first_line(&mut self, feed: &mut Feed, blank: &mut u64) -> bool {
        let before = feed.position();
        if before.lines > *blank {
            return false;
        }
        let passed = feed.pass_blank();
        *blank += passed;
        Tally::add(&self.tally.lines, passed);
        Tally::add(&self.tally.bytes, feed.position().offset - before.offset);
        true
    }

    /// Gives a line to the dead letters as it came, waits for their room, and tells its host.
    fn pass_over(
        &mut self,
        line: u64,
        code: &str,
        why: &dyn Display,
        raw: &[u8],
        host: &mut dyn Host,
    ) -> Result<(), Went> {
        if self.has_letters {
            self.detail.clear();
            // To a `String` nothing fails.
            let _ = write!(self.detail, "line {line}: {why}");
            loop {
                match self.ingress.dead_letter_raw(raw, "malformed", &self.detail) {
                    Ok(accepted) => break self.lettered(accepted, line),
                    Err(Refused::Closed(why)) => return Err(Went::Closed(why)),
                    Err(Refused::Shed(_)) => self.wait(host)?,
                    // More bytes than a dead letter may have: no time makes room for them.
                    Err(Refused::Rejected(_)) => break,
                }
            }
        }
        host.refused(line, code, why);
        Ok(())
    }

    fn lettered(&mut self, accepted: Accepted, line: u64) {
        self.trail.accepted(accepted.seq, line);
        Tally::add(&self.tally.lettered, 1);
    }

    /// Waits a moment for room.
    fn wait(&mut self, host: &mut dyn Host) -> Result<(), Went> {
        Tally::add(&self.tally.waits, 1);
        std::thread::sleep(RETRY_PAUSE);
        self.look_after(host);
        if host.is_over() { Err(Went::Over) } else { Ok(()) }
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

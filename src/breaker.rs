//! The breaker of one partition: a pure machine, `(state, what happened, now) → state`. It reads no clock and sends
//! nothing; the shard asks it whether to send and tells it what came of it.
//!
//! ```text
//!            failures in a row, or grace without progress           reset passed
//!   Closed ────────────────────────────────────────────▶ Open ─────────────────────▶ HalfOpen
//!     ▲                                                   ▲  ◀─────────────────────────  │
//!     │ any ack (cause failures or progress)              │     the probe's deadline     │
//!     └───────────────────────────────────────────────────┴──────────────────────────────┘
//! ```
//!
//! The probe: while anything of the partition is in flight, that is the probe, and HalfOpen only waits. When nothing is,
//! one frame is let through. A probe that misses its deadline stays the one outstanding: reopening sends no second one.
//! A breaker that lag or SLA opened, on a broker that acknowledges, is not closed by an ack but by three good reads.
//!
//! Costs: 40 bytes a partition; each call is a few compares.

use crate::units::Nanos;

/// Good reads that close a breaker which lag or SLA opened.
pub const GOOD_READS: u8 = 3;

/// What opened a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Failed outcomes in a row.
    Failures,
    /// Frames in flight, and no acknowledgement for the grace.
    Progress,
    /// Consumer lag over its limit.
    Lag,
    /// A stage over its ceiling.
    Sla,
}

/// Where a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Frames flow.
    Closed,
    /// Nothing is sent.
    Open(Cause),
    /// One probe decides.
    HalfOpen(Cause),
}

/// What the shard may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// As much as the window allows.
    Flow,
    /// One frame, and only since nothing is in flight.
    Probe,
    /// Nothing.
    Hold,
}

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Failed outcomes in a row that open it; at least 1. A refused batch is one.
    pub failures: u32,
    /// Without progress for this long, it opens.
    pub grace: Nanos,
    /// From open to half open. A probe gets as long as the grace.
    pub reset: Nanos,
}

/// One partition's breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    failures_in_row: u32,
    good_reads: u8,
    /// Closed: when there last was progress, or when frames began to be in flight. Open: until when. HalfOpen: the
    /// probe's deadline.
    instant: Nanos,
}

impl Breaker {
    /// Closed.
    pub const CLOSED: Breaker = Breaker { state: State::Closed, failures_in_row: 0, good_reads: 0, instant: Nanos(0) };

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether frames flow.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// What may be sent while `in_flight` frames of the partition are out.
    #[must_use]
    pub fn permit(&self, in_flight: u32) -> Permit {
        match self.state {
            State::Closed => Permit::Flow,
            State::HalfOpen(_) if in_flight == 0 => Permit::Probe,
            State::Open(_) | State::HalfOpen(_) => Permit::Hold,
        }
    }

    /// A frame was handed over; it was the first one in flight.
    pub fn first_sent(&mut self, now: Nanos) {
        if self.is_closed() {
            self.instant = now;
        }
    }

    /// A frame was acknowledged. Returns whether that closed it.
    pub fn acked(&mut self, now: Nanos) -> bool {
        self.failures_in_row = 0;
        match self.state {
            State::Closed => {
                self.instant = now;
                false
            }
            State::Open(Cause::Lag | Cause::Sla) | State::HalfOpen(Cause::Lag | Cause::Sla) => false,
            State::Open(_) | State::HalfOpen(_) => {
                self.close(now);
                true
            }
        }
    }

    /// An outcome failed: one frame, or one batch as a whole. Returns whether that opened it.
    pub fn failed(&mut self, now: Nanos, limits: &BreakerLimits) -> bool {
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        match self.state {
            State::Closed if self.failures_in_row >= limits.failures => {
                self.open(Cause::Failures, now, limits);
                true
            }
            // The probe failed.
            State::HalfOpen(cause) => {
                self.open(cause, now, limits);
                true
            }
            State::Closed | State::Open(_) => false,
        }
    }

    /// Something outside the partition's own outcomes wants it open.
    pub fn trip(&mut self, cause: Cause, now: Nanos, limits: &BreakerLimits) {
        if self.is_closed() {
            self.open(cause, now, limits);
        }
        self.good_reads = 0;
    }

    /// Lag or SLA was read and is good. Returns whether that closed it.
    pub fn good_read(&mut self, now: Nanos) -> bool {
        match self.state {
            State::Open(Cause::Lag | Cause::Sla) | State::HalfOpen(Cause::Lag | Cause::Sla) => {
                self.good_reads += 1;
                if self.good_reads >= GOOD_READS {
                    self.close(now);
                }
                self.is_closed()
            }
            _ => false,
        }
    }

    /// Time passed; `in_flight` frames are out. Returns whether the state changed.
    pub fn tick(&mut self, now: Nanos, in_flight: u32, limits: &BreakerLimits) -> bool {
        match self.state {
            State::Closed if in_flight > 0 && now.since(self.instant) >= limits.grace => {
                self.open(Cause::Progress, now, limits);
                true
            }
            State::Open(cause) if now >= self.instant => {
                self.state = State::HalfOpen(cause);
                self.instant = now + limits.grace;
                true
            }
            // Also with nothing in flight: whoever had no frame to probe with tries again after the reset.
            State::HalfOpen(cause) if now >= self.instant => {
                self.open(cause, now, limits);
                true
            }
            _ => false,
        }
    }

    fn open(&mut self, cause: Cause, now: Nanos, limits: &BreakerLimits) {
        self.state = State::Open(cause);
        self.instant = now + limits.reset;
    }

    fn close(&mut self, now: Nanos) {
        *self = Breaker { instant: now, ..Breaker::CLOSED };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: BreakerLimits =
        BreakerLimits { failures: 3, grace: Nanos::from_millis(1_000), reset: Nanos::from_millis(5_000) };

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Sent,
        Acked,
        Failed,
        Tick { in_flight: u32 },
        Trip(Cause),
        GoodRead,
    }

    fn step(breaker: &mut Breaker, at: Nanos, event: Event) {
        match event {
            Event::Sent => breaker.first_sent(at),
            Event::Acked => drop(breaker.acked(at)),
            Event::Failed => drop(breaker.failed(at, &LIMITS)),
            Event::Tick { in_flight } => drop(breaker.tick(at, in_flight, &LIMITS)),
            Event::Trip(cause) => breaker.trip(cause, at, &LIMITS),
            Event::GoodRead => drop(breaker.good_read(at)),
        }
    }

    #[test]
    fn every_transition_by_table() {
        use Event::{Acked, Failed, GoodRead, Sent, Tick, Trip};
        use State::{Closed, HalfOpen, Open};
        // Each history with the state after its last event.
        let table: &[(&[(u64, Event)], State)] = &[
            (&[], Closed),
            (&[(0, Failed), (1, Failed)], Closed),
            (&[(0, Failed), (1, Failed), (2, Failed)], Open(Cause::Failures)),
            (&[(0, Failed), (1, Failed), (2, Acked), (3, Failed), (4, Failed)], Closed),
            (&[(0, Sent), (999, Tick { in_flight: 1 })], Closed),
            (&[(0, Sent), (1_000, Tick { in_flight: 1 })], Open(Cause::Progress)),
            (&[(0, Sent), (1_000, Tick { in_flight: 0 })], Closed),
            (&[(0, Sent), (900, Acked), (1_800, Tick { in_flight: 1 })], Closed),
            (&[(0, Sent), (900, Acked), (1_900, Tick { in_flight: 1 })], Open(Cause::Progress)),
            (&[(0, Trip(Cause::Progress)), (4_999, Tick { in_flight: 1 })], Open(Cause::Progress)),
            (&[(0, Trip(Cause::Progress)), (5_000, Tick { in_flight: 1 })], HalfOpen(Cause::Progress)),
            (&[(0, Trip(Cause::Progress)), (10, Acked)], Closed),
            (&[(0, Trip(Cause::Progress)), (5_000, Tick { in_flight: 1 }), (5_100, Acked)], Closed),
            (&[(0, Trip(Cause::Failures)), (5_000, Tick { in_flight: 0 }), (5_100, Failed)], Open(Cause::Failures)),
            (&[(0, Trip(Cause::Lag)), (10, Acked)], Open(Cause::Lag)),
            (&[(0, Trip(Cause::Lag)), (1, GoodRead), (2, GoodRead)], Open(Cause::Lag)),
            (&[(0, Trip(Cause::Sla)), (1, GoodRead), (2, GoodRead), (3, GoodRead)], Closed),
            (
                &[(0, Trip(Cause::Lag)), (1, GoodRead), (2, GoodRead), (3, Trip(Cause::Lag)), (4, GoodRead)],
                Open(Cause::Lag),
            ),
            (&[(0, Trip(Cause::Progress)), (1, GoodRead), (2, GoodRead), (3, GoodRead)], Open(Cause::Progress)),
        ];
        for (history, want) in table {
            let mut breaker = Breaker::CLOSED;
            history.iter().for_each(|(at, event)| step(&mut breaker, ms(*at), *event));
            assert_eq!(breaker.state(), *want, "{history:?}");
        }
    }

    #[test]
    fn l6_a_probe_that_is_never_answered_reopens_and_no_second_one_is_sent() {
        let mut breaker = Breaker::CLOSED;
        breaker.trip(Cause::Failures, ms(0), &LIMITS);
        breaker.tick(ms(5_000), 0, &LIMITS);
        assert_eq!(breaker.permit(0), Permit::Probe);
        assert_eq!(breaker.permit(1), Permit::Hold, "the probe is out");
        breaker.tick(ms(6_000), 1, &LIMITS);
        assert_eq!(breaker.state(), State::Open(Cause::Failures));
        breaker.tick(ms(11_000), 1, &LIMITS);
        assert_eq!((breaker.state(), breaker.permit(1)), (State::HalfOpen(Cause::Failures), Permit::Hold));
        assert!(breaker.acked(ms(11_001)), "its late ack closes");
    }

    #[test]
    fn l12_an_ack_does_not_close_what_lag_opened_and_three_good_reads_do() {
        let mut breaker = Breaker::CLOSED;
        breaker.trip(Cause::Lag, ms(0), &LIMITS);
        assert!(!breaker.acked(ms(1)));
        assert_eq!([2, 3, 4].map(|at| breaker.good_read(ms(at))), [false, false, true]);
    }

    /// What the model answers to: the events, without what they carry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Asked {
        Acked,
        Failed,
        Tick,
        Trip,
        GoodRead,
    }

    /// Who opened it: the partition's own outcomes, or somebody who watches from outside.
    const OWN: &[Cause] = &[Cause::Failures, Cause::Progress];
    const OUTSIDE: &[Cause] = &[Cause::Lag, Cause::Sla];

    /// When a row of the table holds.
    #[derive(Clone, Copy, Debug)]
    enum When {
        Always,
        EnoughFailures,
        GraceOverWithFramesOut,
        ResetOver,
        DeadlineOver,
        EnoughGoodReads,
    }

    /// The machine as a table: where it is, what happens, when that counts, and where it is then. `None` as the place is
    /// closed; of the other places the flag says whether it is half open. All that is not in it changes nothing.
    type Row = (Option<(bool, &'static [Cause])>, Asked, When, Then);

    #[derive(Clone, Copy, Debug)]
    enum Then {
        Close,
        /// With the cause that it has, or where it has none, the one given.
        Open(Option<Cause>),
        OpenAsTripped,
        HalfOpen,
    }

    const TABLE: &[Row] = &[
        (None, Asked::Failed, When::EnoughFailures, Then::Open(Some(Cause::Failures))),
        (None, Asked::Tick, When::GraceOverWithFramesOut, Then::Open(Some(Cause::Progress))),
        (None, Asked::Trip, When::Always, Then::OpenAsTripped),
        (Some((false, OWN)), Asked::Tick, When::ResetOver, Then::HalfOpen),
        (Some((false, OUTSIDE)), Asked::Tick, When::ResetOver, Then::HalfOpen),
        (Some((false, OWN)), Asked::Acked, When::Always, Then::Close),
        (Some((false, OUTSIDE)), Asked::GoodRead, When::EnoughGoodReads, Then::Close),
        (Some((true, OWN)), Asked::Tick, When::DeadlineOver, Then::Open(None)),
        (Some((true, OUTSIDE)), Asked::Tick, When::DeadlineOver, Then::Open(None)),
        (Some((true, OWN)), Asked::Failed, When::Always, Then::Open(None)),
        (Some((true, OUTSIDE)), Asked::Failed, When::Always, Then::Open(None)),
        (Some((true, OWN)), Asked::Acked, When::Always, Then::Close),
        (Some((true, OUTSIDE)), Asked::GoodRead, When::EnoughGoodReads, Then::Close),
    ];

    /// The slow, obvious way: it keeps all that happened, and looks into it for whatever a row asks.
    struct Model {
        state: State,
        /// When it came into this state.
        since: Nanos,
        /// What happened, each with the state it met; its own closings stand among it.
        past: Vec<(Nanos, Option<Event>, State)>,
    }

    impl Model {
        /// How many of the last events `counts`, up to the first one from the end that `ends`. A closing ends all.
        fn count(&self, counts: impl Fn(Event) -> bool, ends: impl Fn(Event) -> bool) -> u32 {
            let events = self.past.iter().rev().map_while(|(_, event, _)| *event);
            events.take_while(|event| !ends(*event)).filter(|event| counts(*event)).count() as u32
        }

        fn holds(&self, when: When, at: Nanos, in_flight: u32) -> bool {
            match when {
                When::Always => true,
                When::EnoughFailures => {
                    let ends = |event| matches!(event, Event::Acked);
                    self.count(|event| matches!(event, Event::Failed), ends) >= LIMITS.failures
                }
                When::GraceOverWithFramesOut => {
                    let progress = self.past.iter().rev().find(|(_, event, met)| {
                        *met == State::Closed && matches!(event, None | Some(Event::Sent | Event::Acked))
                    });
                    let progress = progress.map_or(Nanos(0), |(at, ..)| *at);
                    in_flight > 0 && at.0 - progress.0 >= LIMITS.grace.0
                }
                When::ResetOver => at.0 - self.since.0 >= LIMITS.reset.0,
                When::DeadlineOver => at.0 - self.since.0 >= LIMITS.grace.0,
                When::EnoughGoodReads => {
                    let ends = |event| matches!(event, Event::Trip(_));
                    self.count(|event| matches!(event, Event::GoodRead), ends) >= u32::from(GOOD_READS)
                }
            }
        }

        fn step(&mut self, at: Nanos, event: Event) {
            self.past.push((at, Some(event), self.state));
            let (asked, in_flight) = match event {
                Event::Sent => return,
                Event::Acked => (Asked::Acked, 0),
                Event::Failed => (Asked::Failed, 0),
                Event::Tick { in_flight } => (Asked::Tick, in_flight),
                Event::Trip(_) => (Asked::Trip, 0),
                Event::GoodRead => (Asked::GoodRead, 0),
            };
            let row = TABLE.iter().find(|(place, event, when, _)| {
                let is_there = match (*place, self.state) {
                    (None, State::Closed) => true,
                    (Some((false, causes)), State::Open(cause)) | (Some((true, causes)), State::HalfOpen(cause)) => {
                        causes.contains(&cause)
                    }
                    _ => false,
                };
                is_there && *event == asked && self.holds(*when, at, in_flight)
            });
            let Some((.., then)) = row else { return };
            self.state = match (then, self.state, event) {
                (Then::Close, ..) => State::Closed,
                (Then::Open(Some(cause)), State::Closed, _) => State::Open(*cause),
                (Then::OpenAsTripped, State::Closed, Event::Trip(cause)) => State::Open(cause),
                (Then::Open(None), State::HalfOpen(cause), _) => State::Open(cause),
                (Then::HalfOpen, State::Open(cause), _) => State::HalfOpen(cause),
                wrong => panic!("no row says this: {wrong:?}"),
            };
            self.since = at;
            if self.state == State::Closed {
                self.past.push((at, None, State::Closed));
            }
        }
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let cause = prop::sample::select([Cause::Lag, Cause::Sla, Cause::Failures, Cause::Progress].as_slice());
        prop_oneof![
            2 => Just(Event::Sent),
            2 => Just(Event::Acked),
            4 => Just(Event::Failed),
            6 => (0u32..3).prop_map(|in_flight| Event::Tick { in_flight }),
            1 => cause.prop_map(Event::Trip),
            3 => Just(Event::GoodRead),
        ]
    }

    /// Spans around the ones that decide, to the nanosecond.
    fn any_span() -> impl Strategy<Value = u64> {
        let edge = prop::sample::select([LIMITS.grace.0, LIMITS.reset.0, LIMITS.grace.0 / 2].as_slice());
        prop_oneof![
            3 => Just(0),
            3 => (edge, 0u64..3).prop_map(|(edge, around)| edge + around - 1),
            2 => 0..2 * LIMITS.grace.0,
        ]
    }

    proptest! {
        /// Whatever happens and whenever: where it is, what it lets through, and what each call says of it.
        #[test]
        fn the_breaker_is_its_table(steps in prop::collection::vec((any_event(), any_span()), 0..200)) {
            let mut breaker = Breaker::CLOSED;
            let mut model = Model { state: State::Closed, since: Nanos(0), past: Vec::new() };
            let mut now = Nanos(0);
            for (event, after) in steps {
                now = now + Nanos(after);
                let before = model.state;
                model.step(now, event);
                let said = match event {
                    Event::Sent => { breaker.first_sent(now); None }
                    Event::Trip(cause) => { breaker.trip(cause, now, &LIMITS); None }
                    Event::Acked => Some(breaker.acked(now)),
                    Event::Failed => Some(breaker.failed(now, &LIMITS)),
                    Event::GoodRead => Some(breaker.good_read(now)),
                    Event::Tick { in_flight } => Some(breaker.tick(now, in_flight, &LIMITS)),
                };
                prop_assert_eq!(breaker.state(), model.state, "{:?} at {:?} in {:?}", event, now, before);
                prop_assert!(said.is_none_or(|changed| changed == (before != model.state)), "{:?} said {:?}", event, said);
                prop_assert_eq!(breaker.is_closed(), model.state == State::Closed);
                for in_flight in 0..3 {
                    let want = match model.state {
                        State::Closed => Permit::Flow,
                        State::HalfOpen(_) if in_flight == 0 => Permit::Probe,
                        _ => Permit::Hold,
                    };
                    prop_assert_eq!(breaker.permit(in_flight), want);
                }
            }
        }

        /// L7: whatever happens, a breaker is never half open with no permit and nothing in flight, and time alone
        /// brings it to a probe.
        #[test]
        fn l7_never_stuck(events in prop::collection::vec((0u8..6, 0u64..2_000, 0u32..3), 0..200)) {
            let mut breaker = Breaker::CLOSED;
            let mut now = ms(0);
            for (kind, after, in_flight) in events {
                now = now + ms(after);
                let event = match kind {
                    0 => Event::Sent,
                    1 => Event::Acked,
                    2 => Event::Failed,
                    3 => Event::Trip(Cause::Lag),
                    4 => Event::GoodRead,
                    _ => Event::Tick { in_flight },
                };
                step(&mut breaker, now, event);
                if let State::HalfOpen(_) = breaker.state() {
                    prop_assert_eq!(breaker.permit(0), Permit::Probe);
                }
            }
            let mut waited = 0;
            while breaker.permit(0) == Permit::Hold {
                waited += 1;
                prop_assert!(waited <= 7, "no probe after {} s", waited);
                now = now + ms(1_000);
                breaker.tick(now, 0, &LIMITS);
            }
        }
    }
}

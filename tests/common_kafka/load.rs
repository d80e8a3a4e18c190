//! One submitting thread: it keeps what was accepted, takes back what failed, and at the end everything is compared.

use super::reader::{Kept, judge, missing_numbers, read_topic};
use super::{PATIENCE, hand};
use fencepost::clock::SystemClock;
use fencepost::engine::{Counts, Report, Router};
use fencepost::ingress::{Ingress, Refused};
use fencepost::shard::shared::{Failed, FailedReason};
use fencepost::trigger::{State, Trigger};
use fencepost::verify::{Ledger, Verdict, conservation};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A trigger that can be kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sent {
    pub device: String,
    pub fence: String,
    pub state: State,
    pub event_time_ms: i64,
}

impl Sent {
    pub fn new(device: impl Into<String>, fence: impl Into<String>, state: State, event_time_ms: i64) -> Sent {
        Sent { device: device.into(), fence: fence.into(), state, event_time_ms }
    }

    pub fn trigger(&self) -> Trigger<'_> {
        Trigger::new(&self.device, &self.fence, self.state, self.event_time_ms)
    }
}

/// `count` different triggers of `devices` devices by turns, a second apart for each device, the last one now.
pub fn turns(devices: usize, count: usize) -> Vec<Sent> {
    turns_of("veh", devices, count)
}

/// Like [`turns`], of devices with this prefix.
pub fn turns_of(prefix: &str, devices: usize, count: usize) -> Vec<Sent> {
    let first = super::now_ms() - (count / devices) as i64 * 1_000;
    let one = |nth: usize| {
        let state = if (nth / devices).is_multiple_of(2) { State::Enter } else { State::Exit };
        let time = first + (nth / devices) as i64 * 1_000;
        Sent::new(format!("{prefix}:{}", nth % devices), format!("cell:{}", nth / devices / 2), state, time)
    };
    (0..count).map(one).collect()
}

/// An ingress with its memory.
pub struct Load {
    pub ingress: Ingress<SystemClock>,
    /// What was accepted, by seq.
    pub accepted: Vec<Sent>,
    pub failed: Vec<Failed>,
    pub shed: u64,
}

impl Load {
    pub fn new(ingress: Ingress<SystemClock>) -> Load {
        Load { ingress, accepted: Vec::new(), failed: Vec::new(), shed: 0 }
    }

    /// Offers it once.
    pub fn offer(&mut self, sent: &Sent) -> Result<(), Refused> {
        match self.ingress.submit(&sent.trigger()) {
            Ok(accepted) => {
                self.accepted.push(sent.clone());
                assert_eq!(accepted.seq.0, self.accepted.len() as u64, "seqs rise by one");
                Ok(())
            }
            Err(refused) => {
                self.shed += u64::from(matches!(refused, Refused::Shed(_)));
                Err(refused)
            }
        }
    }

    /// Offers it until it is accepted; while it is shed, failed ones are taken back and time passes.
    pub fn submit(&mut self, sent: &Sent) {
        let began = Instant::now();
        while let Err(refused) = self.offer(sent) {
            assert!(matches!(refused, Refused::Shed(_)), "{sent:?}: {refused}");
            assert!(began.elapsed() < PATIENCE, "shed for too long: {refused}");
            self.take_failed();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn submit_all(&mut self, all: &[Sent]) {
        for sent in all {
            self.submit(sent);
        }
    }

    pub fn take_failed(&mut self) {
        while let Some(failed) = self.ingress.take_failed() {
            self.failed.push(failed);
        }
    }

    pub fn is_settled(&mut self) -> bool {
        self.take_failed();
        self.ingress.settled().0 == self.accepted.len() as u64
    }

    /// Waits until all of it is settled.
    pub fn settle(&mut self, router: &Router) {
        let began = Instant::now();
        while !self.is_settled() {
            let (settled, all) = (self.ingress.settled(), self.accepted.len());
            assert!(router.is_healthy(), "a shard panicked, see above");
            assert!(began.elapsed() < PATIENCE, "settled up to {settled} of {all}: {}", router.counts());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn failed_as(&self, reason: FailedReason) -> usize {
        self.failed.iter().filter(|failed| failed.reason == reason).count()
    }

    /// What the topic must hold: everything accepted but what was handed back.
    pub fn ledger(&self) -> Ledger {
        let failed: HashMap<u64, FailedReason> =
            self.failed.iter().map(|failed| (failed.seq.0, failed.reason)).collect();
        assert_eq!(failed.len(), self.failed.len(), "nothing is handed back twice");
        let mut ledger = Ledger::with_capacity(self.accepted.len(), 1_024);
        for (seq, sent) in (1..).zip(&self.accepted) {
            if !failed.contains_key(&seq) {
                ledger.accept(&sent.trigger());
            }
        }
        ledger
    }
}

/// What is known at the end of a test.
pub struct Finished {
    pub counts: Counts,
    pub verdict: Verdict,
    pub kept: Vec<Kept>,
    pub report: Report,
}

impl Finished {
    /// Nothing lost, repeated or reordered.
    pub fn assert_clean(&self) {
        let counts = &self.counts;
        assert_in_order(&self.verdict, &self.kept, counts.failed, counts.refused_batches > 0);
        assert_eq!(self.verdict.records, counts.delivered, "{}\n{counts}", self.verdict);
    }
}

/// No fault but holes in the numbers of the frames, and those only for what failed. The numbers may also fall after a
/// refused batch: other devices' later triggers landed before its own were sent again.
pub fn assert_in_order(verdict: &Verdict, kept: &[Kept], failed: u64, was_refused: bool) {
    for (name, count) in verdict.faults() {
        if name != "seq_gaps" || (failed == 0 && !was_refused) {
            assert_eq!(count, 0, "{name}: {verdict}");
        }
    }
    // Those of the highest numbers leave no hole below a record.
    let missing = missing_numbers(kept);
    assert!(missing <= failed, "{missing} numbers are missing, {failed} triggers failed: {verdict}");
}

/// The counters add up, by the checkers' own list of them.
pub fn assert_conserved(counts: &Counts) {
    let named = serde_json::to_value(counts).expect("counters are JSON");
    conservation::check(|name| named[name].as_u64()).unwrap_or_else(|imbalance| panic!("{imbalance}"));
    assert!(counts.add_up());
}

/// Stops the router with everything settled, and checks what it says.
pub fn stop(router: Router, loads: &mut [Load]) -> Report {
    for load in &mut *loads {
        load.settle(&router);
    }
    let report = router.shutdown(Duration::from_secs(30));
    let counts = &report.counts;
    println!("{counts}");
    assert_conserved(counts);
    assert_eq!(report.lost_shards, Vec::<u16>::new());
    assert_eq!(counts.unsettled(), 0, "{counts}");
    let accepted: u64 = loads.iter().map(|load| load.accepted.len() as u64).sum();
    let failed: u64 = loads.iter().map(|load| load.failed.len() as u64).sum();
    assert_eq!((counts.accepted, counts.failed), (accepted, failed), "{counts}");
    report
}

/// [`stop`], then reads the topic, which was empty before, and compares it.
pub fn finish(router: Router, loads: &mut [Load], bootstrap: &str, topic: &str, partitions: u32) -> Finished {
    let report = stop(router, loads);
    let kept = read_topic(bootstrap, topic, partitions);
    let ledgers: Vec<Ledger> = loads.iter().map(Load::ledger).collect();
    let verdict = judge(&kept, partitions, &ledgers);
    println!("{verdict}");
    Finished { counts: report.counts, verdict, kept, report }
}

/// Turns a shard by hand until `done`.
pub fn turn_until(hand: &mut hand::Hand, what: &str, mut done: impl FnMut(&mut hand::Hand) -> bool) {
    let began = Instant::now();
    loop {
        hand.turn();
        if done(hand) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}: {}", hand.page_text());
        std::thread::sleep(Duration::from_micros(200));
    }
}

//! Compares a topic with what was accepted. Records come one by one, live or later; the ledgers come at the end, when
//! the threads that kept them are done.
//!
//! Memory: what [`Stream`] takes, and 32 bytes a record; with the ledgers, about 100 bytes a trigger at the end.

use super::identity::ByFingerprint;
use super::ledger::Ledger;
use super::stream::{Record, Stream, StreamOptions};
use super::verdict::{Fault, Verdict};
use std::collections::HashMap;

/// How to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckerOptions {
    /// The topic's partitions, as the router has them pinned.
    pub partitions: u32,
    /// Whether the topic was empty when the routers began, so that their numbers start at 1.
    pub from_start: bool,
    /// How many different keys can be checked; further records are counted as `unchecked`.
    pub keys_max: usize,
    /// How many devices can be checked.
    pub devices_max: usize,
    /// How many examples of each fault the verdict shows.
    pub examples_max: usize,
}

impl CheckerOptions {
    /// For a new topic of so many partitions: 20 million keys, 4 million devices, 5 examples of each fault.
    #[must_use]
    pub const fn new(partitions: u32) -> CheckerOptions {
        CheckerOptions { partitions, from_start: true, keys_max: 20_000_000, devices_max: 4_000_000, examples_max: 5 }
    }
}

/// The first record of a key.
struct First {
    fingerprint: u64,
    offset: i64,
    partition: u32,
    device: u32,
    replayed: bool,
}

/// Where a key stands in the ledgers.
#[derive(Clone, Copy)]
struct Place {
    ledger: u32,
    /// Accepted by more than one ingress, between which no order is promised.
    shared: bool,
    entry: usize,
}

/// Takes the topic, then the ledgers, and tells what is wrong.
pub struct Checker {
    stream: Stream,
    firsts: Vec<First>,
    keys_max: usize,
    unchecked: u64,
}

impl Checker {
    /// A checker that has seen nothing.
    ///
    /// # Panics
    /// If the topic has no partitions.
    #[must_use]
    pub fn new(options: CheckerOptions) -> Checker {
        let CheckerOptions { partitions, from_start, keys_max, devices_max, examples_max } = options;
        Checker {
            stream: Stream::new(StreamOptions { partitions, from_start, keys_max, devices_max, examples_max }),
            firsts: Vec::new(),
            keys_max,
            unchecked: 0,
        }
    }

    /// Takes the next record of a partition; partitions may come in any mixture.
    pub fn record(&mut self, record: &Record<'_>) {
        if self.firsts.len() >= self.keys_max {
            self.unchecked += 1;
            return;
        }
        let Some(finding) = self.stream.record(record) else { return };
        if let Some(device) = finding.device.filter(|_| finding.first) {
            self.firsts.push(First {
                fingerprint: finding.fingerprint,
                offset: record.offset,
                partition: record.partition,
                device,
                replayed: record.replays > 0,
            });
        }
    }

    /// Says that this frame is in the dead letters or in the spill: neither its key nor its number is missing from
    /// `partition` then. False: it is no frame, and nothing was noted.
    pub fn set_aside(&mut self, partition: u32, value: &[u8]) -> bool {
        self.stream.set_aside(partition, value)
    }

    /// The counts so far, for a live display: what needs no ledger, without examples.
    #[must_use]
    pub const fn counts(&self) -> &Verdict {
        self.stream.counts()
    }

    /// Compares with what was accepted, one ledger for each ingress. Without any ledger the verdict is that of
    /// [`Stream::verdict`].
    #[must_use]
    pub fn finish(mut self, ledgers: &[Ledger]) -> Verdict {
        let mut found = Verdict { against_ledger: !ledgers.is_empty(), ..Verdict::default() };
        if found.against_ledger {
            let places = self.places(ledgers);
            found.accepted = places.len() as u64;
            found.lost = self.count_lost(ledgers, &places);
            (found.foreign, found.reordered) = self.count_foreign_and_reordered(&places);
        }
        let mut verdict = self.stream.verdict();
        verdict.unchecked += self.unchecked + ledgers.iter().map(|ledger| ledger.unrecorded).sum::<u64>();
        if found.against_ledger {
            let Verdict { against_ledger, accepted, lost, foreign, reordered, .. } = found;
            verdict = Verdict { against_ledger, accepted, lost, foreign, reordered, ..verdict };
        }
        verdict
    }

    /// Each accepted key at its first acceptance.
    fn places(&self, ledgers: &[Ledger]) -> ByFingerprint<Place> {
        let entries = ledgers.iter().map(Ledger::len).sum();
        let mut places = ByFingerprint::with_capacity_and_hasher(entries, Default::default());
        for (number, ledger) in (0..).zip(ledgers) {
            for (entry, &fingerprint) in ledger.fingerprints.iter().enumerate() {
                places
                    .entry(fingerprint)
                    .and_modify(|place: &mut Place| place.shared |= place.ledger != number)
                    .or_insert(Place { ledger: number, shared: false, entry });
            }
        }
        places
    }

    fn count_lost(&mut self, ledgers: &[Ledger], places: &ByFingerprint<Place>) -> u64 {
        let mut lost = 0;
        // By ledger and entry, so that the examples are the first ones.
        for (number, ledger) in (0..).zip(ledgers) {
            for (entry, fingerprint) in ledger.fingerprints.iter().enumerate() {
                let place = places[fingerprint];
                let accepted_here = place.ledger == number && place.entry == entry;
                let is_somewhere = self.stream.holds(*fingerprint) || self.stream.aside_keys.contains_key(fingerprint);
                if accepted_here && !is_somewhere {
                    lost += 1;
                    self.stream.examples_mut().add(Fault::Lost, || {
                        let device = &ledger.names[ledger.devices[entry] as usize];
                        let nth = entry + 1;
                        format!("device {device:?}: acceptance {nth} of ingress {number} is in no partition")
                    });
                }
            }
        }
        lost
    }

    fn count_foreign_and_reordered(&mut self, places: &ByFingerprint<Place>) -> (u64, u64) {
        let (mut foreign, mut reordered) = (0, 0);
        // Per device (and salt) and ingress: the latest acceptance seen so far, and its record.
        let mut latest: HashMap<(u32, u32), (usize, u32, i64)> = HashMap::new();
        for first in &self.firsts {
            let First { fingerprint, offset, partition, device, replayed } = *first;
            let Some(place) = places.get(&fingerprint) else {
                foreign += 1;
                let name = self.stream.device_name(device);
                self.stream.examples_mut().add(Fault::Foreign, || {
                    format!("partition {partition} offset {offset}: nobody accepted this trigger of device {name:?}")
                });
                continue;
            };
            if place.shared || replayed {
                continue;
            }
            let here = (place.entry, partition, offset);
            let seen = latest.entry((device, place.ledger)).or_insert(here);
            if place.entry < seen.0 {
                reordered += 1;
                let (later_entry, later_partition, later_offset) = *seen;
                let name = self.stream.device_name(device);
                self.stream.examples_mut().add(Fault::Reordered, || {
                    format!(
                        "partition {partition} offset {offset}: device {name:?}, acceptance {} of ingress {}, stands \
                         behind acceptance {} at partition {later_partition} offset {later_offset}",
                        place.entry + 1,
                        place.ledger,
                        later_entry + 1
                    )
                });
            } else {
                *seen = here;
            }
        }
        (foreign, reordered)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::written::Written;
    use super::super::murmur2::partition_of;
    use super::*;
    use crate::trigger::{State, Trigger};
    use crate::units::UnixMicros;
    use prost::Message;
    use std::collections::HashMap;

    const PARTITIONS: u32 = 6;

    /// A record that a test may spoil before the checker sees it.
    #[derive(Clone)]
    struct Sent {
        partition: u32,
        key: Vec<u8>,
        frame: Written,
        replays: u32,
    }

    /// What a faultless router makes of the accepted triggers: one record each, in order.
    fn route(triggers: &[(String, String, State, i64)]) -> Vec<Sent> {
        let mut seqs: HashMap<u32, u64> = HashMap::new();
        let sent = |(nth, (device, fence, state, time_ms)): (usize, &(String, String, State, i64))| {
            let partition = partition_of(device.as_bytes(), PARTITIONS);
            let seq = seqs.entry(partition).or_default();
            *seq += 1;
            let frame = Written {
                version: 1,
                device_id: device.clone(),
                fence_id: fence.clone(),
                state: *state as i32,
                event_time_ms: *time_ms,
                hlc: (1_700_000_000_000 << 16) + nth as u64,
                accepted_unix_us: 1_700_000_000_000_000 + nth as i64,
                priority: 2,
                router_id: "router-a".into(),
                incarnation: 1,
                partition_seq: *seq,
                ..Written::default()
            };
            Sent { partition, key: device.clone().into_bytes(), frame, replays: 0 }
        };
        triggers.iter().enumerate().map(sent).collect()
    }

    /// 60 triggers of 6 devices, by turns.
    fn triggers() -> Vec<(String, String, State, i64)> {
        let one = |nth: usize| {
            let state = if (nth / 6).is_multiple_of(2) { State::Enter } else { State::Exit };
            let time_ms = 1_700_000_000_000 + nth as i64 * 100;
            (format!("veh:{}#1", nth % 6), format!("cell:{}", nth / 12), state, time_ms)
        };
        (0..60).map(one).collect()
    }

    fn ledger_of(triggers: &[(String, String, State, i64)]) -> Ledger {
        let mut ledger = Ledger::with_capacity(triggers.len(), 8);
        for (device, fence, state, time_ms) in triggers {
            ledger.accept(&Trigger::new(device, fence, *state, *time_ms));
        }
        ledger
    }

    fn feed(checker: &mut Checker, sent: &[Sent]) {
        let mut offsets: HashMap<u32, i64> = HashMap::new();
        for Sent { partition, key, frame, replays } in sent {
            let offset = offsets.entry(*partition).or_insert(-1);
            *offset += 1;
            let value = frame.encode_to_vec();
            let received = Some(UnixMicros(frame.accepted_unix_us + 5_000));
            let record =
                Record { partition: *partition, offset: *offset, key, value: &value, received, replays: *replays };
            checker.record(&record);
        }
    }

    fn verdict(sent: &[Sent], ledgers: &[Ledger]) -> Verdict {
        let mut checker = Checker::new(CheckerOptions::new(PARTITIONS));
        feed(&mut checker, sent);
        checker.finish(ledgers)
    }

    /// The verdict after a fault was planted, with and without a ledger.
    fn planted(plant: impl FnOnce(&mut Vec<Sent>)) -> (Verdict, Verdict) {
        let triggers = triggers();
        let mut sent = route(&triggers);
        plant(&mut sent);
        (verdict(&sent, &[ledger_of(&triggers)]), verdict(&sent, &[]))
    }

    /// All faults but these are 0.
    fn assert_only(verdict: &Verdict, expected: &[(&str, u64)]) {
        for (name, count) in verdict.faults() {
            let wanted = expected.iter().find(|fault| fault.0 == name).map_or(0, |fault| fault.1);
            assert_eq!(count, wanted, "{name} in {verdict}");
        }
        assert_eq!(verdict.is_clean(), expected.is_empty());
        if !expected.is_empty() {
            assert!(!verdict.first_examples.is_empty());
        }
    }

    fn restamp(sent: &mut [Sent]) {
        // As if the router had stamped and numbered them in this order: only the ledger knows better.
        let mut seqs: HashMap<u32, u64> = HashMap::new();
        for (nth, record) in sent.iter_mut().enumerate() {
            let seq = seqs.entry(record.partition).or_default();
            *seq += 1;
            record.frame.partition_seq = *seq;
            record.frame.hlc = (1_700_000_000_000 << 16) + nth as u64;
        }
    }

    #[test]
    fn a_faultless_topic_is_clean() {
        let (with, without) = planted(|_| {});
        assert_only(&with, &[]);
        assert_only(&without, &[]);
        assert_eq!((with.records, with.distinct, with.accepted, with.timed), (60, 60, 60, 60));
        assert!((5_000..=5_157).contains(&with.deliver_us_p99) && with.deliver_us_max == 5_000, "{with:?}");
        assert!(with.against_ledger && !without.against_ledger);
        assert_eq!(without.accepted, 0);
    }

    #[test]
    fn a_dropped_record_is_lost_and_a_hole() {
        let (with, without) = planted(|sent| drop(sent.remove(20)));
        assert_only(&with, &[("lost", 1), ("seq_gaps", 1)]);
        assert_only(&without, &[("seq_gaps", 1)]);
        assert_eq!(without.seq_missing, 1);
        let lost = &with.first_examples[0];
        assert!(lost.contains("veh:2#1") && lost.contains("acceptance 21 of ingress 0"), "{lost}");
    }

    #[test]
    fn a_dropped_last_record_is_lost_though_no_number_tells() {
        let (with, without) = planted(|sent| drop(sent.pop()));
        assert_only(&with, &[("lost", 1)]);
        assert_only(&without, &[]);
    }

    #[test]
    fn a_dropped_first_record_is_a_hole_only_when_read_from_the_start() {
        let triggers = triggers();
        let mut sent = route(&triggers);
        sent.remove(0);
        assert_only(&verdict(&sent, &[]), &[("seq_gaps", 1)]);
        let mut options = CheckerOptions::new(PARTITIONS);
        options.from_start = false;
        let mut checker = Checker::new(options);
        feed(&mut checker, &sent);
        assert_only(&checker.finish(&[]), &[]);
    }

    #[test]
    fn a_doubled_record_is_repeated_whether_sent_again_or_encoded_again() {
        let (with, without) = planted(|sent| {
            let again = sent[20].clone();
            sent.insert(33, again);
        });
        assert_only(&with, &[("repeated", 1)]);
        assert_only(&without, &[("repeated", 1)]);
        let example = &with.first_examples[0];
        assert!(
            example.contains("veh:2#1") && example.contains("partition") && example.contains("offset"),
            "{example}"
        );

        let (with, _) = planted(|sent| {
            let mut again = sent[20].clone();
            again.frame.event_time_ms += 1;
            sent.insert(33, again);
            restamp(sent);
        });
        assert_only(&with, &[("repeated", 1)]);
    }

    #[test]
    fn two_swapped_records_of_a_device_are_reordered() {
        let (with, without) = planted(|sent| sent.swap(20, 26));
        assert_only(&with, &[("reordered", 1), ("hlc_regressions", 1), ("seq_gaps", with.seq_gaps)]);
        assert!(with.seq_gaps >= 1);
        assert_eq!((without.reordered, without.event_time_falls), (1, 1));
        // A router that accepts in one order and sends in another has good stamps and numbers: the ledger tells.
        let (with, without) = planted(|sent| {
            sent.swap(20, 26);
            restamp(sent);
        });
        assert_only(&with, &[("reordered", 1)]);
        assert_only(&without, &[]);
        let example = &with.first_examples[0];
        assert!(example.contains("acceptance 21 of ingress 0, stands behind acceptance 27"), "{example}");
    }

    #[test]
    fn two_swapped_records_of_different_devices_and_partitions_are_in_order() {
        let sent = route(&triggers());
        let one = (20..26)
            .find(|&one| sent[one].partition != sent[one + 1].partition)
            .expect("six devices are not all in one partition");
        let (with, without) = planted(|sent| sent.swap(one, one + 1));
        assert_only(&with, &[]);
        assert_only(&without, &[]);
        // Also in one partition, where the numbers follow the order in which they were sent.
        let (with, without) = planted(|sent| {
            sent.swap(20, 21);
            restamp(sent);
        });
        assert_only(&with, &[]);
        assert_only(&without, &[]);
    }

    #[test]
    fn a_record_in_another_partition_is_in_the_wrong_one() {
        let (with, _) = planted(|sent| {
            sent[20].partition = (sent[20].partition + 1) % PARTITIONS;
            restamp(sent);
        });
        assert_only(&with, &[("wrong_partition", 1)]);
        let (with, _) = planted(|sent| {
            sent[20].partition = PARTITIONS + 3;
            restamp(sent);
        });
        assert_only(&with, &[("wrong_partition", 1)]);
    }

    #[test]
    fn a_record_under_another_key_is_a_mismatch() {
        let (with, _) = planted(|sent| {
            // Another key of the same partition, so that only the key is wrong.
            let home = sent[20].partition;
            let other =
                (0..).map(|n| format!("other-{n}")).find(|key| partition_of(key.as_bytes(), PARTITIONS) == home);
            sent[20].key = other.expect("some key has this partition").into_bytes();
        });
        assert_only(&with, &[("key_mismatch", 1)]);
    }

    #[test]
    fn a_salted_record_belongs_under_its_salted_key_and_has_its_own_order() {
        let salted = |sent: &mut Vec<Sent>| {
            for nth in [20, 32] {
                sent[nth].frame.salt = 7;
                sent[nth].key = format!("{}#7", sent[nth].frame.device_id).into_bytes();
                sent[nth].partition = partition_of(&sent[nth].key, PARTITIONS);
            }
            restamp(sent);
        };
        let (with, _) = planted(salted);
        assert_only(&with, &[]);
        // Behind later ones of the device, but not of its salt.
        let (with, _) = planted(|sent| {
            salted(sent);
            let early = sent.remove(20);
            sent.insert(29, early);
            restamp(sent);
        });
        assert_only(&with, &[]);
        let (with, _) = planted(|sent| {
            salted(sent);
            sent.swap(20, 32);
            restamp(sent);
        });
        assert_only(&with, &[("reordered", 1)]);
        let (with, _) = planted(|sent| {
            salted(sent);
            sent[20].frame.salt = 8;
        });
        assert_only(&with, &[("key_mismatch", 1)]);
    }

    #[test]
    fn a_number_that_is_left_out_or_comes_twice_is_a_gap() {
        let (with, without) = planted(|sent| {
            let home = sent[20].partition;
            for record in sent[20..].iter_mut().filter(|record| record.partition == home) {
                record.frame.partition_seq += 3;
            }
        });
        assert_only(&with, &[("seq_gaps", 1)]);
        assert_eq!((with.seq_missing, without.seq_missing), (3, 3));
        let (with, _) = planted(|sent| {
            let home = sent[20].partition;
            for record in sent[20..].iter_mut().filter(|record| record.partition == home) {
                record.frame.partition_seq -= 1;
            }
        });
        assert_only(&with, &[("seq_gaps", 1)]);
        // The numbers begin anew with each incarnation and for each router.
        let (with, _) = planted(|sent| {
            restamp(&mut sent[30..]);
            for (nth, record) in sent.iter_mut().enumerate().skip(30) {
                record.frame.hlc += nth as u64 + 100;
                record.frame.incarnation = 2;
            }
        });
        assert_only(&with, &[]);
        let (with, _) = planted(|sent| sent[59].frame.partition_seq = u64::MAX);
        assert_only(&with, &[("seq_gaps", 1)]);
        let (with, _) = planted(|sent| sent[59].frame.partition_seq = 0);
        assert_only(&with, &[("seq_gaps", 1)]);
    }

    #[test]
    fn a_clock_stamp_that_falls_or_stands_still_is_a_regression() {
        for stamp in [14, 13] {
            let (with, without) = planted(|sent| sent[20].frame.hlc = (1_700_000_000_000 << 16) + stamp);
            assert_only(&with, &[("hlc_regressions", 1)]);
            assert_only(&without, &[("hlc_regressions", 1), ("reordered", 1)]);
        }
        // Another router has another clock.
        let (_, without) = planted(|sent| {
            sent[20].frame.hlc = 5;
            sent[20].frame.router_id = "router-b".into();
            sent[20].frame.partition_seq = 1;
            let home = sent[20].partition;
            for record in sent[21..].iter_mut().filter(|record| record.partition == home) {
                record.frame.partition_seq -= 1;
            }
        });
        assert_only(&without, &[]);
    }

    #[test]
    fn an_event_time_that_falls_is_noted_and_no_fault() {
        let mut triggers = triggers();
        triggers[20].3 -= 3_600_000;
        let late = verdict(&route(&triggers), &[ledger_of(&triggers)]);
        assert_only(&late, &[]);
        assert_eq!(late.event_time_falls, 1);
    }

    #[test]
    fn garbage_is_unreadable_and_what_it_replaced_is_lost() {
        for garbage in [b"".as_slice(), b"\xff\xff\xff", b"{\"device_id\":\"veh-1\"}"] {
            let triggers = triggers();
            let sent = route(&triggers);
            let mut checker = Checker::new(CheckerOptions::new(PARTITIONS));
            feed(&mut checker, &sent[..59]);
            let last = &sent[59];
            checker.record(&Record::new(last.partition, 1_000, &last.key, garbage));
            let verdict = checker.finish(&[ledger_of(&triggers)]);
            assert_only(&verdict, &[("unreadable", 1), ("lost", 1)]);
            assert!(verdict.first_examples.iter().any(|example| example.contains("offset 1000")), "{verdict}");
        }
        let (_, version_2) = planted(|sent| sent[20].frame.version = 2);
        assert_only(&version_2, &[("unreadable", 1), ("seq_gaps", 1)]);
    }

    #[test]
    fn a_record_that_nobody_accepted_is_foreign() {
        let triggers = triggers();
        let sent = route(&triggers);
        let verdict = verdict(&sent, &[ledger_of(&triggers[..59])]);
        assert_only(&verdict, &[("foreign", 1)]);
    }

    #[test]
    fn a_repeat_that_was_accepted_is_neither_lost_nor_out_of_order() {
        let mut accepted = triggers();
        let sent = route(&accepted);
        accepted.insert(40, accepted[20].clone());
        let verdict = verdict(&sent, &[ledger_of(&accepted)]);
        assert_only(&verdict, &[]);
        assert_eq!(verdict.accepted, 60);
    }

    #[test]
    fn no_order_is_asked_between_two_ingresses() {
        let triggers = triggers();
        let mut sent = route(&triggers);
        sent.swap(20, 26);
        restamp(&mut sent);
        let (mut one, mut other) = (triggers.clone(), vec![triggers[26].clone()]);
        one.remove(26);
        assert_only(&verdict(&sent, &[ledger_of(&one), ledger_of(&other)]), &[]);
        // Accepted by both: it has no place in the order, and is still missed when absent.
        other.push(triggers[20].clone());
        one.insert(26, triggers[26].clone());
        assert_only(&verdict(&sent, &[ledger_of(&one), ledger_of(&other)]), &[]);
        sent.retain(|record| record.frame.event_time_ms != triggers[20].3);
        restamp(&mut sent);
        assert_only(&verdict(&sent, &[ledger_of(&one), ledger_of(&other)]), &[("lost", 1)]);
    }

    #[test]
    fn what_was_set_aside_is_not_lost_and_leaves_no_hole() {
        let triggers = triggers();
        let mut sent = route(&triggers);
        let dead = sent.remove(20);
        let mut checker = Checker::new(CheckerOptions::new(PARTITIONS));
        feed(&mut checker, &sent);
        assert!(checker.set_aside(dead.partition, &dead.frame.encode_to_vec()));
        assert!(!checker.set_aside(dead.partition, b"garbage"));
        let verdict = checker.finish(&[ledger_of(&triggers)]);
        assert_only(&verdict, &[]);
        assert_eq!(verdict.set_aside, 1);
    }

    #[test]
    fn a_replayed_record_is_outside_the_order_but_not_outside_the_rest() {
        let replay = |sent: &mut Vec<Sent>| {
            let mut late = sent.remove(20);
            late.replays = 1;
            sent.push(late);
        };
        let (with, without) = planted(replay);
        assert_only(&with, &[]);
        assert_only(&without, &[]);
        assert_eq!(with.replayed, 1);
        let (with, _) = planted(|sent| {
            replay(sent);
            let again = sent[59].clone();
            sent.push(again);
        });
        assert_only(&with, &[("repeated", 1)]);
    }

    #[test]
    fn what_the_reader_gets_again_is_not_repeated() {
        let triggers = triggers();
        let sent = route(&triggers);
        let mut checker = Checker::new(CheckerOptions::new(PARTITIONS));
        feed(&mut checker, &sent);
        feed(&mut checker, &sent);
        let verdict = checker.finish(&[ledger_of(&triggers)]);
        assert_only(&verdict, &[]);
        assert_eq!((verdict.records, verdict.rereads), (60, 60));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let triggers = triggers();
        let sent = route(&triggers);
        let run = |change: &dyn Fn(&mut CheckerOptions), ledger_max: usize| {
            let mut options = CheckerOptions::new(PARTITIONS);
            change(&mut options);
            let mut checker = Checker::new(options);
            feed(&mut checker, &sent);
            let mut ledger = Ledger::with_capacity(ledger_max, 8);
            for (device, fence, state, time_ms) in &triggers {
                ledger.accept(&Trigger::new(device, fence, *state, *time_ms));
            }
            checker.finish(&[ledger])
        };
        assert_eq!(run(&|options| options.keys_max = 60, 60).unchecked, 0);
        assert_eq!(run(&|options| options.keys_max = 59, 60).unchecked, 1);
        assert_eq!(run(&|_| {}, 59).unchecked, 1);
        assert_eq!(run(&|options| options.devices_max = 6, 60).unchecked, 0);
        assert_eq!(run(&|options| options.devices_max = 5, 60).unchecked, 10);
        assert!(!run(&|options| options.keys_max = 59, 60).is_clean());
    }

    #[test]
    fn a_stream_forgets_the_oldest_key_and_says_so() {
        let sent = route(&triggers());
        let mut options = StreamOptions::new(PARTITIONS);
        options.keys_max = 10;
        let mut stream = Stream::new(options);
        let mut offset = 0;
        let mut put = |record: &Sent, stream: &mut Stream| {
            offset += 1;
            let value = record.frame.encode_to_vec();
            stream.record(&Record::new(record.partition, offset, &record.key, &value)).expect("it is readable").first
        };
        for record in &sent[..11] {
            assert!(put(record, &mut stream));
        }
        assert!(!put(&sent[1], &mut stream), "the second is still remembered");
        assert!(put(&sent[0], &mut stream), "the first is not");
        assert_eq!(stream.verdict().keys_forgotten, 2);
    }

    #[test]
    fn examples_are_bounded_for_each_fault() {
        let (with, _) = planted(|sent| {
            let all = sent.clone();
            sent.extend(all);
            sent.remove(0);
        });
        assert_eq!(with.repeated, 59);
        assert_eq!(with.first_examples.iter().filter(|example| example.contains("repeats")).count(), 5);
        assert!(with.first_examples.len() <= 5 * 9);
    }

    #[test]
    fn a_verdict_is_one_line_for_people_and_an_object_for_programs() {
        let (with, _) = planted(|sent| drop(sent.remove(20)));
        let text = with.to_string();
        assert!(text.starts_with("59 records, 59 distinct of 60 accepted: 1 lost, 1 seq_gaps\n  "), "{text}");
        let json = serde_json::to_value(&with).expect("it is an object");
        assert_eq!((&json["lost"], &json["repeated"], &json["reordered"]), (&1.into(), &0.into(), &0.into()));
        assert_eq!(
            planted(|_| {}).0.to_string(),
            "60 records, 60 distinct of 60 accepted: nothing lost, repeated or reordered"
        );
    }

    /// Two ingresses with half a fleet each, a router that sheds one in seven and collapses repeats: all is well. Then
    /// one fault of each kind among 60,000 records: each is found, and nothing else.
    #[cfg(feature = "sim")]
    #[test]
    fn a_fleet_through_a_shedding_router_is_clean_and_each_fault_in_it_is_found() {
        use crate::sim::fleet::{Fleet, FleetOptions};
        let options = FleetOptions { devices: 600, rate: 12_000, ..FleetOptions::default() };
        let mut parts = Fleet::split(&options, 2).expect("options are in bounds");
        let mut ledgers = vec![Ledger::with_capacity(50_000, 300); 2];
        let mut seen = std::collections::HashSet::new();
        let mut published = Vec::new();
        for nth in 0..80_000_usize {
            let sample = parts[nth % 2].next();
            let trigger = sample.trigger;
            if nth.is_multiple_of(7) {
                continue;
            }
            ledgers[nth % 2].accept(&trigger);
            let owned =
                (trigger.device_id.to_owned(), trigger.fence_id.to_owned(), trigger.state, trigger.event_time_ms);
            if seen.insert(trigger.key().to_string()) {
                published.push(owned);
            }
        }
        let sent = route(&published);
        let clean = verdict(&sent, &ledgers);
        assert_only(&clean, &[]);
        assert_eq!((clean.records, clean.accepted), (published.len() as u64, published.len() as u64));
        assert!(clean.records > 60_000 && ledgers[0].len() + ledgers[1].len() > published.len() + 1_000);

        let mut spoiled = sent.clone();
        let first = 30_000;
        let device = &sent[first].frame.device_id;
        let next = (first + 1..).find(|&next| sent[next].frame.device_id == *device).expect("it moves again");
        spoiled.swap(first, next);
        spoiled.remove(50_000);
        let again = spoiled[20_000].clone();
        spoiled.insert(20_100, again);
        restamp(&mut spoiled);
        assert_only(&verdict(&spoiled, &ledgers), &[("lost", 1), ("repeated", 1), ("reordered", 1)]);
    }
}

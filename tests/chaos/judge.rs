//! What a topic must hold after a chaos, recomputed from what the sources know and from nothing of the router's: every
//! settled row, each device in the order of its submits, nothing else, and no repeat without a reason.
//!
//! A repeat has a reason if, between the acceptance of the one record and the appending of the other, a producer was
//! replaced, or a process died that had not settled that row: then its source sends it again. With a spill, a row that was
//! settled on disk may come again too, but only if the first record was not in the topic yet when the next process looked
//! there at its start. The topic's timestamps are the broker's own, so that appending can be told from accepting.
//!
//! `collapsible` counts the explained repeats whose first record stood in the topic before the sender of the second one
//! was ready: a start that reads far enough back collapses them. How far it reads is a matter of its configuration and of
//! how often a source keeps its position, so that they are no fault.

use super::rows::Key;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::ops::Range;

/// How far two clocks of one host, in ms, may seem apart.
const SLACK_MS: i64 = 20;
/// A record must stand this long before a start is done for that start to know it.
const KNOWN_MS: i64 = 200;
/// How many rows before and behind a fault are shown.
const AROUND: usize = 8;

/// What a source sent, by row number, and how far it was told that it is settled.
pub struct Sent {
    pub keys: Vec<Key>,
    pub settled: u64,
}

/// One life of our process.
#[derive(Clone, Debug)]
pub struct Life {
    pub spawned_ms: i64,
    pub ready_ms: Option<i64>,
    pub is_cold: bool,
    pub killed_ms: i64,
    pub gone_ms: i64,
    /// For each source, the rows that were sent and not settled when it died.
    pub unsettled: Vec<Range<u64>>,
    pub rebuilds_ms: Vec<i64>,
}

/// One record of the topic, in the order of partition and offset.
#[derive(Clone, Debug)]
pub struct Seen {
    pub partition: u32,
    pub offset: i64,
    pub appended_ms: i64,
    pub accepted_ms: i64,
    pub key: Key,
}

/// What is known beside the records.
pub struct History {
    pub sources: Vec<Sent>,
    pub lives: Vec<Life>,
    /// Whether what is settled may be on disk instead of in the topic, and is sent after a crash.
    pub has_spill: bool,
    /// Keys in the dead letters; their devices have no order.
    pub aside: HashSet<Key>,
}

#[derive(Debug, Default)]
pub struct Verdict {
    pub records: u64,
    pub settled: u64,
    pub lost: Vec<Key>,
    pub foreign: Vec<Key>,
    pub reordered: Vec<Key>,
    pub repeats: u64,
    pub unexplained: Vec<Key>,
    pub collapsible: u64,
    /// For each device concerned, both orders.
    pub devices: BTreeMap<String, String>,
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        let Verdict { lost, foreign, reordered, unexplained, .. } = self;
        [lost, foreign, reordered, unexplained].iter().all(|fault| fault.is_empty())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} records, {} settled rows: lost {}, reordered {}, foreign {}, repeats {}, of them unexplained {}, \
             collapsible {}",
            self.records,
            self.settled,
            self.lost.len(),
            self.reordered.len(),
            self.foreign.len(),
            self.repeats,
            self.unexplained.len(),
            self.collapsible
        )
    }
}

pub fn judge(seen: &[Seen], history: &History) -> Verdict {
    let mut places: HashMap<&Key, (usize, u64)> = HashMap::new();
    for (source, sent) in history.sources.iter().enumerate() {
        for (number, key) in (0..).zip(&sent.keys) {
            assert!(places.insert(key, (source, number)).is_none(), "the sources repeat {key:?}");
        }
    }
    let settled = history.sources.iter().map(|sent| sent.settled).sum();
    let mut verdict = Verdict { records: seen.len() as u64, settled, ..Verdict::default() };
    let unordered: HashSet<&str> = history.aside.iter().map(|key| key.device.as_str()).collect();
    let mut latest_of_key: HashMap<&Key, &Seen> = HashMap::new();
    let mut latest_of_device: HashMap<&str, u64> = HashMap::new();
    for record in seen {
        let Some(&(source, number)) = places.get(&record.key) else {
            verdict.foreign.push(record.key.clone());
            continue;
        };
        if let Some(earlier) = latest_of_key.insert(&record.key, record) {
            verdict.repeats += 1;
            if !history.explains(earlier, record, source, number) {
                verdict.unexplained.push(record.key.clone());
            } else if history.would_know(earlier, record) {
                verdict.collapsible += 1;
            }
            continue;
        }
        if unordered.contains(record.key.device.as_str()) {
            continue;
        }
        let latest = latest_of_device.entry(&record.key.device).or_insert(number);
        if number < *latest {
            verdict.reordered.push(record.key.clone());
        }
        *latest = number.max(*latest);
    }
    for sent in &history.sources {
        let settled = sent.keys.iter().take(sent.settled as usize);
        let is_lost = |key: &&Key| !latest_of_key.contains_key(*key) && !history.aside.contains(*key);
        verdict.lost.extend(settled.filter(is_lost).cloned());
    }
    verdict.devices = both_orders(seen, history, &verdict);
    verdict
}

impl History {
    fn explains(&self, earlier: &Seen, later: &Seen, source: usize, number: u64) -> bool {
        let between = (earlier.accepted_ms - SLACK_MS)..=(later.appended_ms + SLACK_MS);
        self.lives.iter().any(|life| {
            let died = life.gone_ms >= *between.start() && life.killed_ms <= *between.end();
            let owed = life.unsettled[source].contains(&number);
            let replaced = life.rebuilds_ms.iter().any(|at| between.contains(at));
            replaced || died && (owed || self.has_spill && !self.would_know(earlier, later))
        })
    }

    fn would_know(&self, earlier: &Seen, later: &Seen) -> bool {
        let sender = self.lives.iter().rfind(|life| life.spawned_ms <= later.appended_ms);
        sender.is_some_and(|life| {
            let knows = |ready: i64| ready <= later.appended_ms && earlier.appended_ms + KNOWN_MS < ready;
            !life.is_cold && life.rebuilds_ms.is_empty() && life.ready_ms.is_some_and(knows)
        })
    }
}

/// The rows of each device that a fault is about, as they were submitted and as they stand in the topic, around the
/// faults.
fn both_orders(seen: &[Seen], history: &History, verdict: &Verdict) -> BTreeMap<String, String> {
    let Verdict { lost, foreign, reordered, unexplained, .. } = verdict;
    let faults: HashSet<&Key> = [lost, foreign, reordered, unexplained].into_iter().flatten().collect();
    let concerned: HashSet<&str> = faults.iter().map(|key| key.device.as_str()).take(50).collect();
    let mut texts = BTreeMap::new();
    for device in concerned {
        let mut text = String::new();
        for (source, sent) in history.sources.iter().enumerate() {
            let own: Vec<_> = (0..).zip(&sent.keys).filter(|(_, key)| key.device == device).collect();
            for at in around(own.iter().map(|(_, key)| faults.contains(key))) {
                let (number, key) = own[at];
                let mark = if faults.contains(key) { '!' } else { ' ' };
                let state = if number < sent.settled { "settled" } else { "unsettled" };
                put(&mut text, format_args!("{mark} submitted: source {source} row {number}, {state}: {}", show(key)));
            }
        }
        let own: Vec<&Seen> = seen.iter().filter(|record| record.key.device == device).collect();
        for at in around(own.iter().map(|record| faults.contains(&record.key))) {
            let Seen { partition, offset, appended_ms, accepted_ms, key } = own[at];
            let mark = if faults.contains(key) { '!' } else { ' ' };
            put(
                &mut text,
                format_args!(
                    "{mark} in the topic: partition {partition} offset {offset}, accepted {accepted_ms}, appended \
                     {appended_ms}: {}",
                    show(key)
                ),
            );
        }
        texts.insert(device.to_owned(), text);
    }
    texts
}

fn put(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("to a string nothing fails");
}

fn show(key: &Key) -> String {
    format!("{} of {} in second {}", key.state.name(), key.fence, key.second)
}

/// The places of the faults, and some before and behind each.
fn around(faults: impl Iterator<Item = bool>) -> Vec<usize> {
    let faults: Vec<bool> = faults.collect();
    let is_near = |at: &usize| {
        let (from, to) = (at.saturating_sub(AROUND), (at + AROUND + 1).min(faults.len()));
        faults[from..to].contains(&true)
    };
    (0..faults.len()).filter(is_near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost::trigger::State;

    /// 40 rows of 4 devices by turns, row n accepted at 1000 + 10 n and appended 3 ms later. All but the last 10 are
    /// settled. The process is killed at 1300, when rows 20 to 39 are not settled, and another is ready at 2000.
    fn world() -> (Vec<Seen>, History) {
        let key = |number: u64| Key::new(&format!("veh-{}", number % 4), "cell:1", State::Enter, number as i64 * 1_000);
        let keys: Vec<Key> = (0..40).map(key).collect();
        let one = |(number, key): (usize, &Key)| {
            let accepted_ms = 1_000 + 10 * number as i64;
            Seen { partition: 0, offset: number as i64, appended_ms: accepted_ms + 3, accepted_ms, key: key.clone() }
        };
        let seen = keys.iter().enumerate().map(one).collect();
        let first = Life {
            spawned_ms: 500,
            ready_ms: Some(900),
            is_cold: false,
            killed_ms: 1_450,
            gone_ms: 1_455,
            unsettled: std::iter::once(20..40).collect(),
            rebuilds_ms: Vec::new(),
        };
        let second = Life {
            spawned_ms: 1_500,
            ready_ms: Some(2_000),
            killed_ms: 3_000,
            gone_ms: 3_000,
            unsettled: std::iter::once(30..30).collect(),
            ..first.clone()
        };
        let sources = vec![Sent { keys, settled: 30 }];
        (seen, History { sources, lives: vec![first, second], has_spill: false, aside: HashSet::new() })
    }

    /// The record of a row once more, at the end.
    fn repeat(seen: &mut Vec<Seen>, number: usize, appended_ms: i64) {
        let copy =
            Seen { offset: seen.len() as i64, appended_ms, accepted_ms: appended_ms - 3, ..seen[number].clone() };
        seen.push(copy);
    }

    fn counts(verdict: &Verdict) -> [usize; 6] {
        let Verdict { lost, foreign, reordered, unexplained, collapsible, repeats, .. } = verdict;
        [lost.len(), foreign.len(), reordered.len(), *repeats as usize, unexplained.len(), *collapsible as usize]
    }

    #[test]
    fn a_faultless_topic_is_clean() {
        let (seen, history) = world();
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [0; 6], "{verdict}");
        assert!(verdict.is_clean() && verdict.devices.is_empty());
    }

    #[test]
    fn a_planted_loss_of_a_settled_row_is_found_and_one_of_an_unsettled_row_is_none() {
        let (mut seen, history) = world();
        seen.remove(35);
        assert_eq!(counts(&judge(&seen, &history)), [0; 6], "row 35 was promised to nobody");
        seen.remove(17);
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [1, 0, 0, 0, 0, 0], "{verdict}");
        assert_eq!(verdict.lost, [history.sources[0].keys[17].clone()]);
        assert!(!verdict.is_clean());
        let both = &verdict.devices["veh-1"];
        assert!(both.contains("! submitted: source 0 row 17, settled") && !both.contains("! in the topic"), "{both}");
    }

    #[test]
    fn what_is_in_the_dead_letters_is_not_lost_and_its_device_has_no_order() {
        let (mut seen, mut history) = world();
        history.aside.insert(seen.remove(17).key);
        seen.swap(12, 20);
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [0, 0, 1, 0, 0, 0], "veh-0 still has one: {verdict}");
        seen.swap(12, 20);
        seen.swap(13, 20);
        assert_eq!(seen[13].key.device, "veh-1");
        assert_eq!(counts(&judge(&seen, &history)), [0; 6]);
    }

    #[test]
    fn a_planted_swap_within_a_device_is_found_and_one_between_devices_is_none() {
        let (mut seen, history) = world();
        seen.swap(20, 21);
        assert_eq!(counts(&judge(&seen, &history)), [0; 6], "two devices");
        seen.swap(4, 8);
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [0, 0, 1, 0, 0, 0], "{verdict}");
        assert_eq!(verdict.reordered, [history.sources[0].keys[4].clone()]);
        let both = &verdict.devices["veh-0"];
        let (submitted, topic) = both.split_at(both.find("  in the topic").expect("both orders"));
        let at = |text: &str, second: &str| text.find(second).expect("it is shown");
        assert!(at(submitted, "second 4\n") < at(submitted, "second 8\n"), "{both}");
        assert!(at(topic, "second 8\n") < at(topic, "second 4\n"), "{both}");
    }

    #[test]
    fn a_foreign_record_is_found() {
        let (mut seen, history) = world();
        seen[7].key.fence = "cell:2".into();
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [1, 1, 0, 0, 0, 0], "{verdict}");
    }

    #[test]
    fn a_repeat_after_a_kill_is_explained_for_what_the_dead_had_not_settled_and_for_nothing_else() {
        let (mut seen, history) = world();
        repeat(&mut seen, 25, 2_100);
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [0, 0, 0, 1, 0, 1], "known to the second process: {verdict}");
        assert!(verdict.is_clean());
        // Row 10 was settled before the kill: nobody had a reason to send it again.
        repeat(&mut seen, 10, 2_100);
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [0, 0, 0, 2, 1, 1], "{verdict}");
        assert!(!verdict.is_clean());
        assert!(verdict.devices["veh-2"].contains("! in the topic"), "{:?}", verdict.devices);
    }

    #[test]
    fn a_planted_repeat_without_a_crash_between_is_found() {
        let (mut seen, history) = world();
        repeat(&mut seen, 25, 1_420);
        let verdict = judge(&seen, &history);
        assert_eq!(counts(&verdict), [0, 0, 0, 1, 1, 0], "nobody had died yet: {verdict}");
    }

    #[test]
    fn a_repeat_that_landed_late_could_not_be_known() {
        let (mut seen, history) = world();
        // A frozen broker appends what the dead had sent only now.
        seen[25].appended_ms = 1_950;
        repeat(&mut seen, 25, 2_100);
        assert_eq!(counts(&judge(&seen, &history)), [0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn with_a_spill_what_was_settled_on_disk_may_come_again_and_a_replaced_producer_explains_too() {
        let (mut seen, mut history) = world();
        seen[10].appended_ms = 1_950;
        repeat(&mut seen, 10, 2_100);
        assert_eq!(counts(&judge(&seen, &history)), [0, 0, 0, 1, 1, 0]);
        history.has_spill = true;
        assert_eq!(counts(&judge(&seen, &history)), [0, 0, 0, 1, 0, 0]);
        seen[10].appended_ms = 1_103;
        assert_eq!(counts(&judge(&seen, &history)), [0, 0, 0, 1, 1, 0], "it was there to be found");
        seen[10].appended_ms = 1_950;
        history.has_spill = false;
        history.lives[0].rebuilds_ms.push(1_200);
        assert_eq!(counts(&judge(&seen, &history)), [0, 0, 0, 1, 0, 0]);
    }
}

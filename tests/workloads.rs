//! The workloads of the benchmarks are what their names say: fixed, distinct by key, skewed, repeated, in bursts.

#[path = "../benches/support/mod.rs"]
mod support;

use std::collections::{HashMap, HashSet};
use support::{NAMES, Workload};

const END_MS: i64 = 1_700_000_000_500;
const COUNT: usize = 200_000;

fn share(count: usize) -> f64 {
    count as f64 / COUNT as f64
}

#[test]
fn each_workload_is_fixed_and_its_distinct_triggers_are_distinct_by_key() {
    for name in NAMES {
        let workload = Workload::named(name, COUNT, END_MS);
        assert_eq!((workload.name, workload.triggers.len()), (name, COUNT));
        assert!(workload.about().contains("200000 triggers"), "{}", workload.about());
        let distinct =
            |of: fn(&support::OwnedTrigger) -> &str| workload.triggers.iter().map(of).collect::<HashSet<_>>().len();
        let (stated, fences) = (workload.dimensions, distinct(|owned| &owned.fence));
        assert_eq!((stated.triggers, stated.devices), (COUNT, distinct(|owned| &owned.device)));
        assert!(
            fences <= stated.fences && fences * 10 > stated.fences * 9,
            "{name} meets {fences} of {}",
            stated.fences
        );
        assert_eq!(stated.repeats, workload.triggers.iter().filter(|owned| owned.repeat).count());
        assert!(workload.triggers == Workload::named(name, COUNT, END_MS).triggers, "{name} is the same each time");
        let mut keys = HashMap::new();
        let mut latest_ms: HashMap<&str, i64> = HashMap::new();
        let mut last_due_us = 0;
        for (place, owned) in workload.triggers.iter().enumerate() {
            let trigger = owned.as_trigger();
            let key = trigger.key().to_string();
            let before = keys.get(&key).copied();
            assert_eq!(before.is_some(), owned.repeat, "{name}: {key} at {place}, before at {before:?}");
            keys.insert(key, place);
            assert!(owned.due_us >= last_due_us);
            last_due_us = owned.due_us;
            assert!(owned.event_time_ms <= END_MS && owned.event_time_ms > END_MS - 86_400_000);
            if !owned.repeat {
                let latest_ms = latest_ms.entry(&owned.device).or_insert(i64::MIN);
                assert!(owned.event_time_ms >= *latest_ms);
                *latest_ms = owned.event_time_ms;
            }
        }
        assert_eq!(workload.distinct(), keys.len());
    }
}

#[test]
fn each_workload_has_its_shape() {
    let count_by = |name: &str, of: fn(&support::OwnedTrigger) -> String| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for owned in Workload::named(name, COUNT, END_MS).triggers {
            *counts.entry(of(&owned)).or_default() += 1;
        }
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    };
    let uniform = count_by("uniform", |owned| owned.fence.clone());
    assert_eq!(uniform.len(), 4_096);
    assert!(share(uniform[..410].iter().sum()) < 0.15);
    let skewed = count_by("skewed", |owned| owned.fence.clone());
    let first_tenth = share(skewed[..410].iter().sum());
    assert!((0.70..0.80).contains(&first_tenth), "{first_tenth}");
    let hot = count_by("hot_key", |owned| owned.device.clone());
    assert!((0.49..0.51).contains(&share(hot[0])) && share(hot[1]) < 0.001, "{:?}", &hot[..2]);
    let repeats = Workload::named("repeat_heavy", COUNT, END_MS).triggers.iter().filter(|owned| owned.repeat).count();
    assert!((0.29..0.31).contains(&share(repeats)), "{repeats}");
    let bursts = count_by("bursty", |owned| owned.due_us.to_string());
    assert_eq!((bursts.len(), bursts[0], bursts[39]), (40, 5_000, 5_000));
}

#[test]
fn each_body_gives_the_right_answer_however_often_it_runs() {
    let mut names = HashSet::new();
    for entry in support::BODIES {
        assert!(names.insert(entry.name), "{} is there twice", entry.name);
        let mut body = entry.make(support::Size::Small);
        for _ in 0..3 {
            body.prepare();
            body.run();
        }
        body.check();
    }
}

/// What is counted and what is written down are the same bodies, in the same order and of the same length; only the counts
/// themselves need valgrind.
#[test]
fn the_baseline_has_a_count_of_each_counted_body() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/baseline.tsv")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let written: Vec<(&str, u64)> = lines
        .map(|line| {
            let mut columns = line.split('\t');
            (columns.next().unwrap(), columns.next().unwrap().parse().unwrap())
        })
        .collect();
    let counted = support::BODIES.iter().filter(|entry| entry.is_counted);
    let counted: Vec<_> = counted.map(|entry| (entry.name, entry.operations(support::Size::Full))).collect();
    assert_eq!(written, counted, "script/bench --bless writes benches/baseline.tsv anew");
}

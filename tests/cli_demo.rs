//! `fencepost demo`, as a person or a script runs it: the built binary, its streams and its exit code.
#![cfg(feature = "cli")]

use fencepost::verify::conservation;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

fn demo(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.arg("demo").args(options).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn run(options: &[&str]) -> Output {
    demo(options).output().expect("the binary was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

/// Standard output, which must be one JSON object and nothing else.
fn object(output: &Output) -> Value {
    let out = text(&output.stdout);
    let parsed: Value = serde_json::from_str(out)
        .unwrap_or_else(|error| panic!("{error} in {out:?}; standard error: {}", text(&output.stderr)));
    assert!(parsed.is_object());
    parsed
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} is no count in {object:#}"))
}

/// All that a good run must say, whatever the machine did meanwhile.
fn assert_good(output: &Output) -> Value {
    let object = object(output);
    assert_eq!(output.status.code(), Some(0), "{object:#}\n{}", text(&output.stderr));
    for name in ["lost", "repeated", "reordered", "unsettled", "unread", "failed", "in_flight", "in_rings"] {
        assert_eq!(number(&object, name), 0, "{name} in {object:#}");
    }
    for name in ["in_spill", "dead_lettered", "corrupt", "recovered"] {
        assert_eq!(number(&object, name), 0, "{name} in {object:#}");
    }
    assert_eq!(number(&object, "drained"), number(&object, "spilled"), "{object:#}");
    assert_nothing_stays(output);
    conservation::check(|name| object[name].as_u64()).unwrap_or_else(|imbalance| panic!("{imbalance}"));
    assert_eq!(number(&object, "offered"), number(&object, "accepted") + number(&object, "shed"));
    assert_eq!(number(&object["check"], "records"), number(&object, "delivered"));
    assert_eq!(number(&object["check"], "accepted"), number(&object, "delivered"));
    object
}

/// The directory of what was spilled is named while the demo runs, and gone when it has ended.
fn assert_nothing_stays(output: &Output) {
    let directory = state_of(text(&output.stderr));
    assert!(!std::path::Path::new(directory).exists(), "{directory} is still there");
}

fn state_of(said: &str) -> &str {
    let named = said.split("state and spill lie in ").nth(1).and_then(|rest| rest.split(" until the end").next());
    named.unwrap_or_else(|| panic!("no directory is named: {said}"))
}

#[test]
fn an_outage_longer_than_the_grace_is_spilled_and_drained_to_the_last_record() {
    let output = run(&["--json", "--rate", "5000", "--seconds", "10"]);
    let object = assert_good(&output);
    let (outage, spilled) = (&object["outage"], number(&object, "spilled"));
    assert!(number(outage, "frozen_ms") >= 3_000, "{object:#}");
    // Partitions stall a second after the freeze began; two seconds of the fleet come in after that.
    assert!(spilled > 1_000, "{object:#}");
    assert!(number(outage, "spilled_max") > 1_000 && number(outage, "spilled_max") <= 50_000, "{object:#}");
    assert!(outage["drained_after_ms"].is_u64() && outage["drain_rate"].as_f64().is_some_and(|rate| rate > 0.0));
    let progress = text(&output.stderr);
    assert!(progress.contains("FROZEN"), "{progress}");
    let spills = |line: &str| line.contains("in spill") && !line.contains("in spill       0");
    assert!(progress.lines().any(spills), "{progress}");
    let said = object["sentence"].as_str().unwrap_or_default();
    assert!(said.contains("frozen for 3.0"), "{said}");
}

#[test]
fn a_second_interrupt_ends_at_once_and_leaves_no_directory_behind() {
    let mut child = demo(&["--seconds", "10", "--rate", "2000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut progress = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut said = String::new();
    // Within the freeze it does not end by itself, whatever it was asked.
    while !said.contains("FROZEN") {
        assert!(progress.read_line(&mut said).expect("it is text") > 0, "it ended by itself");
    }
    let directory = state_of(&said).to_owned();
    assert!(std::path::Path::new(&directory).is_dir(), "{directory}");
    let twice = format!("kill -INT {0}; sleep 0.2; kill -INT {0}", child.id());
    assert!(Command::new("sh").args(["-c", &twice]).status().expect("there is a shell").success());
    // Its last words, so that it never waits for a reader.
    progress.read_to_string(&mut said).expect("it is text");
    assert_eq!(child.wait().expect("it ran").code(), Some(130), "{said}");
    assert!(!std::path::Path::new(&directory).exists(), "{directory} is still there");
}

#[test]
fn a_short_demo_is_clean_and_its_counters_add_up() {
    let output = run(&["--json", "--rate", "5000", "--seconds", "2", "--seed", "7"]);
    let object = assert_good(&output);
    assert_eq!((number(&object, "offered"), number(&object, "seed")), (10_000, 7));
    assert_eq!(number(&object, "rate_asked"), 5_000);
    assert!(object["rate_reached"].as_f64().is_some_and(|rate| rate > 0.0), "{object:#}");
    assert!(number(&object, "deduplicated") > 100, "5 % are repeats: {object:#}");
    for stage in ["emit", "queue", "dedup", "publish", "settle", "deliver"] {
        let stage = &object["stages"][stage];
        assert!(number(stage, "count") > 0, "{object:#}");
        let quantiles = ["p50_us", "p95_us", "p99_us", "p999_us", "max_us"];
        let values = quantiles.map(|name| stage[name].as_f64().unwrap_or_else(|| panic!("{name} in {object:#}")));
        assert!(values.is_sorted() && values[0] > 0.0, "{values:?}");
    }
    // Whatever was under way when the brokers froze took at least as long as the freeze.
    assert!(number(&object["outage"], "frozen_ms") >= 300, "{object:#}");
    assert!(object["stages"]["settle"]["max_us"].as_f64().is_some_and(|max| max > 250_000.0), "{object:#}");
    let progress = text(&output.stderr);
    assert!(progress.contains("delivered") && progress.contains("in flight"), "{progress}");
    assert!(!progress.contains("max.message.bytes"), "{progress}");
}

#[test]
fn the_table_fits_100_columns_and_says_the_verdict_in_words() {
    let output = run(&["--rate", "2000", "--seconds", "1", "--ingresses", "3", "--shards", "2"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}\n{}", text(&output.stderr));
    for line in out.lines().chain(text(&output.stderr).lines()) {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        assert_eq!(line, line.trim_end());
    }
    for part in ["Nothing was lost, doubled or reordered", "2,000", "3 ingresses", "2 shards", "P99.9", "2,000 = 2,000"]
    {
        assert!(out.contains(part), "{part:?} is not in:\n{out}");
    }
}

#[test]
fn a_seed_makes_the_same_triggers_again_and_another_seed_makes_others() {
    let of_seed = |seed| {
        let object = assert_good(&run(&["--json", "--rate", "4000", "--seconds", "1", "--seed", seed]));
        (number(&object, "offered"), number(&object, "offered_distinct"))
    };
    let first = of_seed("11");
    assert_eq!(first, of_seed("11"));
    assert_ne!(first, of_seed("12"));
}

#[test]
fn wrong_options_end_with_2_and_say_what_is_allowed() {
    for (options, expected) in [
        (&["--rate", "0"][..], &["--rate", "1..=1000000"][..]),
        (&["--seconds", "0"], &["--seconds", "1..=3600"]),
        (&["--shards", "13"], &["--shards", "1..=12"]),
        (&["--ingresses", "65"], &["--ingresses", "1..=64"]),
        (&["--devices", "many"], &["--devices", "many"]),
        (&["--sed", "1"], &["--sed", "--seed"]),
        (&["--rate", "200000"], &["100000 for 5000 devices", "take more devices"]),
        (&["--devices", "1"], &["20 for 1 devices"]),
        (&["--rate", "20", "--devices", "1"], &["each part needs a device"]),
        (&["--seconds", "401"], &["20050000 triggers", "--seconds 400 or fewer"]),
    ] {
        let output = run(options);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(output.stdout.is_empty());
        for part in expected {
            assert!(error.contains(part), "{options:?}: {part:?} is not in {error}");
        }
    }
}

#[test]
fn an_interrupted_demo_delivers_and_checks_what_it_accepted() {
    let options = ["--json", "--rate", "3000", "--seconds", "600"];
    let mut child = demo(&options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary was built");
    let mut progress = BufReader::new(child.stderr.take().expect("it is piped"));
    // In the middle: something was delivered.
    let mut said = String::new();
    while !said.lines().any(|line| line.contains("delivered") && !line.contains("delivered         0")) {
        assert!(progress.read_line(&mut said).expect("it is text") > 0, "it ended by itself");
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("there is a kill");
    assert!(kill.success());
    progress.read_to_string(&mut said).expect("it is text");
    let output = Output { stderr: said.into_bytes(), ..child.wait_with_output().expect("it ran") };
    let object = assert_good(&output);
    assert_eq!(object["interrupted"], Value::Bool(true));
    let offered = number(&object, "offered");
    assert!(offered > 0 && offered < 1_800_000, "{offered}");
    assert_eq!(object["outage"], Value::Null, "it had not come yet");
}

#[test]
fn each_planted_fault_is_found_and_ends_with_1() {
    for fault in ["lost", "repeated", "reordered"] {
        let output = run(&["--json", "--rate", "4000", "--seconds", "1", "--devices", "400", "--plant", fault]);
        let object = object(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {object:#}");
        for name in ["lost", "repeated", "reordered"] {
            assert_eq!(number(&object, name), u64::from(name == fault), "{name} with {fault} planted: {object:#}");
        }
        assert!(object["sentence"].as_str().is_some_and(|said| said.contains(&format!("1 {fault}"))), "{object:#}");
        // The router's own counters are untouched: only the checker can tell.
        conservation::check(|name| object[name].as_u64()).unwrap_or_else(|imbalance| panic!("{imbalance}"));
    }
}

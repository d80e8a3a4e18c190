//! `fencepost bench` as a script runs it, on the mock: short turns, and only what does not hang on the machine's speed.
#![cfg(feature = "cli")]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.arg("bench").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Runs `fencepost bench` with `--json -` and reads its document, which must be sound.
fn bench(arguments: &[&str]) -> Document {
    let output = run(&[arguments, &["--json", "-"]].concat());
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?} ended with {}\n{text}\n{errors}", output.status);
    let document = Document::read(&text);
    assert_eq!(document.0["outcome"]["bench"], arguments[0]);
    assert_eq!(document.0["outcome"]["is_interrupted"], false);
    document
}

/// The document of a run.
struct Document(Value);

impl Document {
    fn read(text: &str) -> Document {
        let document: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!((document["schema"].as_str(), document["version"].as_u64()), (Some("fencepost.bench"), Some(1)));
        let words = document["command"].as_array().unwrap();
        assert!(words.iter().any(|word| word == "bench"), "{words:?}");
        assert!(document["machine"]["cores"].as_u64().unwrap() > 0);
        assert!(!document["outcome"]["checks"].as_array().unwrap().is_empty());
        for check in document["outcome"]["checks"].as_array().unwrap() {
            assert_eq!(check["is_good"], true, "{check}");
        }
        Document(document)
    }

    fn figure(&self, name: &str) -> f64 {
        let figures = self.0["outcome"]["figures"].as_array().unwrap();
        let found = figures.iter().find(|figure| figure["name"] == name);
        found.and_then(|figure| figure["value"].as_f64()).unwrap_or_else(|| panic!("no figure {name}: {figures:?}"))
    }

    /// The values of a column of the first table that has it.
    fn column(&self, name: &str) -> Vec<Value> {
        let tables = self.0["outcome"]["tables"].as_array().unwrap();
        let in_table = |table: &Value| {
            let at = table["columns"].as_array()?.iter().position(|column| column["name"] == name)?;
            Some(table["rows"].as_array()?.iter().map(|row| row[at].clone()).collect())
        };
        tables.iter().find_map(in_table).unwrap_or_else(|| panic!("no column {name}: {tables:?}"))
    }

    fn charts(&self) -> Vec<&str> {
        self.0["outcome"]["charts"].as_array().unwrap().iter().map(|chart| chart["title"].as_str().unwrap()).collect()
    }
}

/// A place for a file of this test.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fencepost-cli-bench-{}-{name}", std::process::id()))
}

#[test]
fn the_ceiling_adds_up_and_the_memory_is_shown_as_time_goes() {
    let document = bench(&["ceiling", "--seconds", "1"]);
    assert!(document.figure("rate") > 0.0 && document.figure("accepted") > 0.0);
    assert_eq!(document.figure("accepted"), document.figure("delivered"));
    assert!(document.column("memory").iter().all(|bytes| bytes.as_f64().unwrap() > 0.0));
    assert_eq!(document.charts(), ["Throughput over time", "Memory over time"]);
}

#[test]
fn every_driver_has_its_turns() {
    let document = bench(&["vs-librdkafka", "--seconds", "1", "--pairs", "2"]);
    assert_eq!(document.column("who"), ["fencepost", "raw", "base"]);
    assert!(document.column("records/s").iter().all(|rate| rate.as_f64().unwrap() > 0.0));
    assert_eq!(document.column("of raw")[1], 1.0);
    assert!(document.figure("ratio") > 0.0 && document.figure("records") > 0.0);
}

#[test]
fn latency_is_measured_from_submit_to_acknowledged_and_to_the_consumer() {
    let document = bench(&["e2e", "--seconds", "1", "--rate", "2000"]);
    // The second before the clock counts is sent too.
    let count = 4_000.0;
    assert_eq!((document.figure("accepted"), document.figure("consumed")), (count, count));
    let (p50, p99) = (&document.column("P50"), &document.column("P99"));
    let who = document.column("who");
    assert_eq!(
        who,
        ["fencepost, to acknowledged", "fencepost, to consumer", "raw, to acknowledged", "the loop itself, late"]
    );
    for at in 0..3 {
        let (p50, p99) = (p50[at].as_f64().unwrap(), p99[at].as_f64().unwrap());
        // The client waits for its linger, 5 ms, before it sends what does not fill a batch.
        assert!(p50 >= 1e6 && p99 >= p50, "{}: {p50} {p99}", who[at]);
    }
    assert_eq!(document.column("count"), vec![Value::from(2_000.0); 4]);
    let alone = bench(&["e2e", "--seconds", "1", "--rate", "2000", "--without-raw", "--without-consumer"]);
    assert_eq!(alone.column("who"), ["fencepost, to acknowledged", "the loop itself, late"]);
}

#[test]
fn an_outage_loses_doubles_and_reorders_nothing() {
    let arguments = ["outage", "--rate", "5000", "--outage", "2", "--before", "1", "--after", "0"];
    let document = bench(&arguments);
    for name in ["lost", "repeated", "reordered"] {
        assert_eq!(document.figure(name), 0.0, "{name}");
    }
    let accepted = document.figure("accepted");
    assert!(accepted >= 15_000.0, "three seconds of it: {accepted}");
    assert_eq!((document.figure("delivered"), document.figure("records")), (accepted, accepted));
    assert_eq!(document.figure("spilled"), document.figure("drained"));
    let throughput = &document.0["outcome"]["charts"][0];
    assert_eq!(throughput["bands"][0]["label"], "frozen");
    assert!(throughput["bands"][0]["to"].as_f64() > throughput["bands"][0]["from"].as_f64());
}

#[test]
fn a_drain_brings_back_what_was_filled_in() {
    let document = bench(&["drain", "--records", "20000", "--rate", "2000"]);
    let accepted = document.figure("accepted");
    assert!(accepted >= 40_000.0);
    assert_eq!((document.figure("delivered"), document.figure("records")), (accepted, accepted));
    assert_eq!(document.figure("spilled"), document.figure("drained"));
    assert_eq!(document.column("drain"), ["alone", "beside live traffic"]);
    assert_eq!(document.column("live")[0], 0.0);
    assert_eq!((document.figure("lost"), document.figure("repeated"), document.figure("reordered")), (0.0, 0.0, 0.0));
}

#[test]
fn the_window_is_measured_at_each_size() {
    let document = bench(&["dedup-scale", "--keys", "2000,8000", "--seconds", "1"]);
    assert_eq!(document.column("keys"), [2_000.0, 8_000.0]);
    for name in ["miss and commit", "hit", "chained read", "free read"] {
        assert!(document.column(name).iter().all(|nanos| nanos.as_f64().unwrap() > 0.0), "{name}");
    }
}

#[test]
fn shards_are_added_one_by_one() {
    for sink in ["null", "kafka"] {
        let document = bench(&["shards", "--seconds", "1", "--max", "2", "--ingresses", "2", "--sink", sink]);
        assert_eq!(document.column("shards"), [1.0, 2.0]);
        assert!(document.figure("accepted") > 0.0);
        assert_eq!(document.figure("accepted"), document.figure("delivered"));
    }
}

#[test]
fn a_restart_reads_what_was_filled_in_and_knows_it() {
    let document = bench(&["restart", "--records", "5000", "--rounds", "1"]);
    assert_eq!((document.figure("accepted"), document.figure("delivered")), (5_000.0, 5_000.0));
    assert_eq!(document.column("start"), ["offsets known", "offsets searched"]);
    assert_eq!(document.column("records"), [5_000.0, 5_000.0]);
    assert_eq!(document.column("repeats collapsed"), [5_000.0, 5_000.0]);
}

#[test]
fn files_are_written_and_the_table_is_printed_all_the_same() {
    let (json, html) = (file("files.json"), file("files.html"));
    let arguments = ["dedup-scale", "--keys", "2000", "--seconds", "1", "--json", json.to_str().unwrap(), "--html"];
    let output = run(&[&arguments[..], &[html.to_str().unwrap()]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("miss and commit") && text.contains("Verdict"), "{text}");
    let document = Document::read(&std::fs::read_to_string(&json).unwrap());
    assert_eq!(document.column("keys"), [2_000.0]);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.contains("All is well."));
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org/2000/svg").count()
    );
    [json, html].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn what_cannot_be_is_refused_with_the_bounds_and_the_fix() {
    for (arguments, code, words) in [
        (&["outage", "--outage", "10"][..], 2, &["--outage 10", "1..=3", "--broker-pid"][..]),
        (&["outage", "--rate", "1000000", "--before", "100"], 2, &["20000000", "lower rate"]),
        (&["dedup-scale", "--keys", "5"], 2, &["--keys 5", "1024..=64000000"]),
        (&["drain", "--kafka", "127.0.0.1:1", "--records", "10"], 2, &["1000..=8000000"]),
        (&["shards", "--sink", "kafka", "--max", "13"], 2, &["--max 13", "1..=12"]),
        (&["ceiling", "--json", "/nowhere/at/all.json"], 3, &["/nowhere/at/all.json", "may write"]),
        (&["ceiling", "--html", "-"], 2, &["--html -"]),
        (&["ceiling", "--flame"], 2, &["--html"]),
        (&["no-such"], 2, &["no-such"]),
    ] {
        let output = run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(words.iter().all(|word| errors.contains(word)), "{arguments:?}: {errors}");
    }
}

#[test]
fn an_interrupt_ends_a_long_run_with_what_was_done_by_then() {
    let arguments = ["outage", "--rate", "2000", "--before", "3600", "--json", "-"];
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = errors.by_ref().map_while(Result::ok).find(|line| line.contains("before"));
    assert!(told.is_some(), "it says how far it is");
    let killed = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(killed.success());
    let rest = std::thread::spawn(move || errors.map_while(Result::ok).collect::<Vec<_>>());
    let output = child.wait_with_output().unwrap();
    let rest = rest.join().unwrap().join("\n");
    assert_eq!(output.status.code(), Some(0), "{rest}");
    let document = Document::read(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(document.0["outcome"]["is_interrupted"], true);
    assert!(document.figure("accepted") > 0.0);
    assert_eq!(document.figure("accepted"), document.figure("records"));
}

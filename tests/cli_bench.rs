//! `fencepost bench` as a script runs it, on the mock: short turns, and only what does not hang on the machine's speed.
#![cfg(feature = "cli")]

use serde_json::Value;
use std::process::Command;

/// Runs `fencepost bench` with `--json` and reads its answer.
fn bench(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    let output = command.arg("bench").args(arguments).arg("--json").output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?} ended with {}\n{text}\n{errors}", output.status);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_ceiling_adds_up() {
    let result = bench(&["ceiling", "--seconds", "1"]);
    assert_eq!(result["adds_up"], true, "{result}");
    assert!(result["rate"].as_f64().unwrap() > 0.0);
    assert_eq!(result["counts"]["accepted"], result["counts"]["delivered"]);
    assert_eq!(result["counts"]["deduplicated"], 0, "no two triggers of the load are the same");
}

#[test]
fn every_driver_has_its_turns() {
    let result = bench(&["vs-librdkafka", "--seconds", "1", "--pairs", "1"]);
    let names: Vec<&str> = result["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fencepost", "raw", "base"]);
    for row in result["rows"].as_array().unwrap() {
        assert!(row["rate"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(result["rows"][1]["ratio"]["median"], 1.0);
}

#[test]
fn latency_is_measured_from_submit_to_acknowledged_and_to_the_consumer() {
    let result = bench(&["e2e", "--seconds", "1", "--rate", "2000", "--consumer"]);
    for of in ["fencepost", "raw"] {
        let ack = &result["ack_ns"][of];
        let (p50, p99) = (ack["p50"]["median"].as_f64().unwrap(), ack["p99"]["median"].as_f64().unwrap());
        // The client waits for its linger, 5 ms, before it sends what does not fill a batch.
        assert!(p50 >= 1e6 && p99 >= p50, "{ack}");
    }
    assert!(result["consumer_ns"]["p50"]["median"].as_f64().unwrap() > 0.0, "{result}");
}

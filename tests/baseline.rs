//! `script/bench --check` fails when it should: a count that grew, one that is new, one that is gone. Nothing is counted
//! here; the baseline stands in for what was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BASELINE: &str = "benches/baseline.tsv";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The baseline with each line of a count changed by `change`, which is handed its place and its three columns.
fn changed(name: &str, change: impl Fn(usize, &str, u64, u64) -> Option<String>) -> PathBuf {
    let text = fs::read_to_string(root().join(BASELINE)).expect("there is a baseline");
    let mut lines = Vec::new();
    let mut place = 0;
    for line in text.lines() {
        if line.starts_with('#') {
            lines.push(line.to_owned());
            continue;
        }
        let mut columns = line.split('\t');
        let mut column = || columns.next().expect("name, operations, instructions");
        let (name, operations, count) = (column(), column(), column());
        lines.extend(change(place, name, operations.parse().expect("a number"), count.parse().expect("a number")));
        place += 1;
    }
    assert!(place > 30, "the baseline has its counts: {place}");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("counts-{}-{name}.tsv", std::process::id()));
    fs::write(&path, lines.join("\n") + "\n").expect("the build directory can be written");
    path
}

/// The exit code of a check of the baseline's own counts against `baseline`, and what it printed.
fn check(baseline: &Path) -> (Option<i32>, String) {
    let output = Command::new(root().join("script/bench"))
        .args(["--check", "--counted", BASELINE, "--against"])
        .arg(baseline)
        .current_dir(root())
        .output()
        .expect("the script can be run");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[test]
fn the_baseline_is_no_more_than_itself() {
    let (code, text) = check(Path::new(BASELINE));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("none over 3 % more") && !text.contains("Not made with the same"), "{text}");
}

#[test]
fn three_in_a_hundred_more_pass_and_four_do_not() {
    let less = |name: &str, per_cent: u64| {
        changed(name, |place, name, operations, count| {
            let count = if place == 2 { count * 100 / (100 + per_cent) + 1 } else { count };
            Some(format!("{name}\t{operations}\t{count}"))
        })
    };
    let (code, text) = check(&less("three", 3));
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&less("four", 4));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("  MORE") && text.contains("1 over 3 % more"), "{text}");
}

#[test]
fn a_baseline_a_tenth_lower_fails_all_of_them() {
    let lower =
        changed("tenth", |_, name, operations, count| Some(format!("{name}\t{operations}\t{}", count * 9 / 10)));
    let (code, text) = check(&lower);
    assert_eq!(code, Some(1), "{text}");
    let all = fs::read_to_string(&lower).expect("it was written").lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(text.matches("  MORE").count(), all, "{text}");
}

#[test]
fn fewer_instructions_pass_and_are_pointed_out() {
    let higher = changed("higher", |_, name, operations, count| Some(format!("{name}\t{operations}\t{}", count * 2)));
    let (code, text) = check(&higher);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("script/bench --bless keeps that"), "{text}");
}

#[test]
fn what_is_new_gone_or_of_another_size_is_not_compared_in_silence() {
    let line = |name: &str, operations: u64, count: u64| Some(format!("{name}\t{operations}\t{count}"));
    let cases = [
        ("new", "NOT IN THE BASELINE", changed("new", |place, n, o, c| if place == 0 { None } else { line(n, o, c) })),
        (
            "gone",
            "GONE",
            changed("gone", |place, n, o, c| line(&if place == 0 { format!("{n}_old") } else { n.into() }, o, c)),
        ),
        ("other", "OTHER OPERATIONS", changed("other", |place, n, o, c| line(n, o + u64::from(place == 0), c))),
    ];
    for (case, said, path) in cases {
        let (code, text) = check(&path);
        assert_eq!(code, Some(1), "{case}: {text}");
        assert!(text.contains(said), "{case}: {text}");
    }
}

#[test]
fn another_compiler_is_said() {
    let path = changed("compiler", |_, name, operations, count| Some(format!("{name}\t{operations}\t{count}")));
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(&path, text.replace("rustc 1.", "rustc 0.")).expect("it can be written");
    let (code, text) = check(&path);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Not made with the same: the baseline by rustc 0."), "{text}");
}

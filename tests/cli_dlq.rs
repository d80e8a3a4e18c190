//! `fencepost dlq` on a directory of dead letters, as a stopped router leaves it.
#![cfg(feature = "cli")]

use fencepost::letter::notes::{Header, Headers, Meta, Notes, Reason, meta_len, write_meta};
use fencepost::spill::{Kind, RealDisk, Record, Spill, SpillLimits};
use fencepost::units::{PartitionId, UnixMs};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory of one test alone.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed has its own word to say.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn dlq(words: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.arg("dlq").args(words).arg("--dir").arg(dir).env_remove("RUST_LOG").stdin(Stdio::null());
    command.output().expect("the binary was built")
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Three letters in partition 1, one in 2; the first of partition 1 has gone to the topic meanwhile.
fn written(name: &str) -> Scratch {
    let dir = std::env::temp_dir().join(format!("fencepost-dlq-{}-{name}", std::process::id()));
    let limits = SpillLimits {
        limit_bytes: 16 << 20,
        reserve_bytes: 0,
        partition_bytes: 4 << 20,
        segment_bytes: 1 << 20,
        marks: 64,
        ..SpillLimits::new(4)
    };
    let (mut spill, _) = Spill::open(RealDisk, &dir, limits).expect("the directory can be made");
    for (number, partition) in [1, 1, 1, 2].into_iter().enumerate() {
        let own = [Header { name: b"trace", value: Some(b"\xff") }, Header { name: b"trace", value: None }];
        let meta = Meta {
            notes: Notes {
                reason: if number == 2 { Reason::Malformed } else { Reason::Refused },
                stage: "publish",
                topic: "t",
                first_failure: UnixMs(1_700_000_000_000 + number as i64),
                last_failure: UnixMs(1_700_000_000_000 + number as i64),
                key: "bus/zone/enter/17",
                ..Notes::default()
            },
            key: Some(b"bus"),
            value_is_null: false,
            record_time: None,
            headers: Headers::List(&own),
        };
        let mut place = vec![0; meta_len(&meta)];
        let len = write_meta(&meta, &mut place).expect("it is short");
        let record = Record {
            partition: PartitionId(partition),
            kind: Kind::DeadLetter,
            meta: &place[..len],
            frame: b"\x00not a frame",
        };
        spill.append(record).expect("there is room");
    }
    spill.release(PartitionId(1), 1);
    spill.commit().expect("the disk holds");
    Scratch(dir)
}

#[test]
fn letters_on_disk_are_listed_and_shown_and_not_touched() {
    let dir = written("listed");
    let files = || {
        let mut files: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&dir.0)
            .expect("the directory is there")
            .map(|entry| entry.expect("it can be listed").path())
            .map(|path| (path.clone(), std::fs::read(path).expect("it can be read")))
            .collect();
        files.sort();
        files
    };
    let before = files();
    let output = dlq(&["ls", "--json"], &dir.0);
    let all = object(&output);
    assert_eq!((output.status.code(), &all["letters"], &all["records"]), (Some(0), &3.into(), &3.into()), "{all:#}");
    assert_eq!(all["by_reason"]["refused"]["letters"], 2);
    assert_eq!(all["by_partition"]["1"]["letters"], 2);
    assert_eq!((&all["rows"][0]["offset"], &all["rows"][2]["partition"]), (&2.into(), &2.into()));
    let malformed = object(&dlq(&["ls", "--json", "--reason", "malformed", "--device", "bus"], &dir.0));
    assert_eq!(malformed["letters"], 1);

    let output = dlq(&["show", "--partition", "1", "--offset", "3", "--json"], &dir.0);
    let shown = object(&output);
    assert_eq!((output.status.code(), &shown["reason"]), (Some(0), &"malformed".into()), "{shown:#}");
    assert_eq!((&shown["key"]["text"], &shown["value"]["hex"]), (&"bus".into(), &"006e6f742061206672616d65".into()));
    assert_eq!(shown["headers"][0]["value"]["hex"], "ff");
    assert!(shown["headers"][1]["value"].is_null() && shown["frame"].is_null(), "{shown:#}");
    let text = dlq(&["show", "--partition", "2", "--offset", "1"], &dir.0);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("last failure    2023-11-14T22:13:20.003Z (1700000000003)\n"), "{text}");
    assert!(text.contains("00000000  00 6e 6f 74"), "{text}");
    assert_eq!(dlq(&["show", "--partition", "1", "--offset", "1"], &dir.0).status.code(), Some(1), "it was released");
    assert!(files() == before, "nothing was changed");
}

#[test]
fn what_cannot_be_read_is_said_with_its_exit_code() {
    let missing = std::env::temp_dir().join("fencepost-no-such-directory");
    let output = dlq(&["ls"], &missing);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("fencepost-no-such-directory: ") && said.contains("; give the directory `dead-letters`"),
        "{said}"
    );
    let shown = dlq(&["show", "--partition", "1", "--offset", "1"], &missing);
    assert_eq!(shown.status.code(), Some(3), "{shown:?}");
    let both = dlq(&["ls", "-c", "fencepost.toml"], &missing);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    // Letters on disk go to their topic when the router runs again; replay is for those in the topic.
    assert_eq!(dlq(&["replay"], &missing).status.code(), Some(2));
}

/// A replay would make it, begin anew, and take the topic's own count for the one that devices are mapped by.
#[test]
fn a_replay_whose_state_directory_is_not_there_is_refused_before_anybody_is_asked() {
    let place = Scratch(std::env::temp_dir().join(format!("fencepost-dlq-{}-state", std::process::id())));
    std::fs::create_dir_all(&place.0).expect("the directory can be made");
    let (file, state) = (place.0.join("fencepost.toml"), place.0.join("mistyped"));
    std::fs::write(&file, format!("topic.name = \"t\"\nkafka.bootstrap = \"127.0.0.1:1\"\nstate.dir = {state:?}\n"))
        .expect("it can be written");
    for options in [&[][..], &["--dry-run"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        command.args(["dlq", "replay", "-c"]).arg(&file).args(options).env_remove("RUST_LOG").stdin(Stdio::null());
        let output = command.output().expect("the binary was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains(&format!("state.dir = {}: ", state.display())) && said.contains("--resume-file"),
            "{said}"
        );
        assert!(!state.exists(), "nothing is made");
    }
}

#[test]
fn a_directory_without_letters_is_done_and_the_state_directory_above_it_is_not_taken_for_one() {
    let state = Scratch(std::env::temp_dir().join(format!("fencepost-dlq-{}-none", std::process::id())));
    let below = state.0.join("dead-letters");
    std::fs::create_dir_all(&below).expect("the directory can be made");
    let output = dlq(&["ls"], &below);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("0 letters"), "{output:?}");
    let output = dlq(&["ls"], &state.0);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("give {}", below.display())), "{output:?}");
}

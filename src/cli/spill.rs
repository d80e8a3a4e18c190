//! `fencepost spill`: what is on disk, looked at, or sent to where it was meant to go.

mod replay;

use super::signals::Signals;
use super::{CliError, Exit, directory};
use crate::engine::disk::SPILL_DIR;
use crate::spill::{self, PartitionFound, RealDisk, Recovery, SurveyError};
use clap::{Args, Subcommand};
use replay::Replay;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Looks into a spill directory, or sends what is there to the topic.
#[derive(Args)]
pub struct Spill {
    #[command(subcommand)]
    command: SpillCommand,
}

#[derive(Subcommand)]
enum SpillCommand {
    Verify(Verify),
    Replay(Replay),
}

/// Reads every segment of a spill directory, checks every record, and says what a start would find.
///
/// Nothing is changed, and reading is all it needs to be allowed. Stop the router first: what it writes meanwhile would
/// look like damage. A tail that a crash cut short is no damage: nothing in it was settled. The exit code is 1 when a
/// settled record is lost, or when any byte is not what it should be; 2 when the segments lie one level below; 3 when the
/// directory is not there.
#[derive(Args)]
struct Verify {
    /// The directory that holds the segments.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Spill {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        match self.command {
            SpillCommand::Verify(verify) => verify.run(),
            SpillCommand::Replay(replay) => replay.run(),
        }
    }
}

impl Verify {
    fn run(self) -> Result<Exit, CliError> {
        let dir = self.dir.display();
        let fix = "give the directory `spill` below the state.dir of a router that has run here";
        directory::must_be_there(&self.dir, &dir.to_string(), fix)?;
        let found = survey(&self.dir)?;
        // A state directory itself has no segments, and would pass for one whose spill is whole.
        let below = self.dir.join(SPILL_DIR);
        if found.0.has_no_files() && below.is_dir() {
            return Err(CliError::Usage(format!(
                "the segments are not in {dir}, but below it: give {}",
                below.display()
            )));
        }
        Ok(said(&self.dir, &found, self.json))
    }
}

/// What a directory that is there holds.
fn survey(dir: &Path) -> Result<(Recovery, Vec<PartitionFound>), CliError> {
    let signals = Signals::listen().map_err(|error| CliError::Unavailable(format!("signals: {error}")))?;
    spill::verify(&mut RealDisk, dir, |_| !signals.asked_to_stop()).map_err(survey_error)
}

/// Says what was found, and returns the exit code it stands for.
fn said(dir: &Path, (recovery, partitions): &(Recovery, Vec<PartitionFound>), json: bool) -> Exit {
    if json {
        say!("{}", as_json(recovery, partitions));
    } else {
        super::say::out(format_args!("{}", as_text(recovery, partitions)));
    }
    if recovery.has_no_files() {
        tell!("nothing is spilled: there is no segment in {}", dir.display());
    }
    if recovery.is_whole() { Exit::Done } else { Exit::Wrong }
}

fn survey_error(error: SurveyError) -> CliError {
    match error {
        SurveyError::Version { .. } => CliError::Usage(error.to_string()),
        _ => CliError::Unavailable(error.to_string()),
    }
}

fn as_json(recovery: &Recovery, partitions: &[PartitionFound]) -> serde_json::Value {
    json!({
        "recovered": recovery.recovered(),
        "in_spill": recovery.records,
        "lost": recovery.lost,
        "lost_ranges": recovery.lost_ranges.iter().map(|range| json!({
            "partition": range.partition, "first": range.first, "last": range.last,
        })).collect::<Vec<_>>(),
        "bytes": recovery.bytes,
        "read_bytes": recovery.read_bytes,
        "segments": recovery.segments,
        "empty": recovery.removed,
        "garbage": recovery.quarantined,
        "damaged": recovery.damaged,
        "unreadable_pages": recovery.unreadable_pages,
        "torn_bytes": recovery.torn_bytes,
        "unsettled_kept": recovery.unsettled_kept,
        "unsettled_dropped": recovery.unsettled_dropped,
        "partitions": partitions.iter().map(|row| json!({
            "partition": row.partition.0,
            "released": row.released,
            "committed": row.committed,
            "in_spill": row.records,
            "bytes": row.bytes,
        })).collect::<Vec<_>>(),
    })
}

fn as_text(recovery: &Recovery, partitions: &[PartitionFound]) -> String {
    let mut text = format!("{} segments, {} bytes read\n", recovery.segments, recovery.read_bytes);
    if !partitions.is_empty() {
        text += "partition      released     committed      in spill         bytes\n";
    }
    for row in partitions {
        let (partition, released, committed) = (row.partition.0, row.released, row.committed);
        text += &format!("{partition:>9}  {released:>12}  {committed:>12}  {:>12}  {:>12}\n", row.records, row.bytes);
    }
    text += &format!("{} records to be drained, {} lost\n", recovery.records, recovery.lost);
    for range in &recovery.lost_ranges {
        text += &format!("lost: partition {}, sequences {} to {}\n", range.partition, range.first, range.last);
    }
    if recovery.lost_ranges.len() == spill::LOST_NAMED {
        text += "lost: and more, not named\n";
    }
    for name in &recovery.quarantined {
        text += &format!("garbage: {name} holds no record that is whole; a start sets it aside as .corrupt\n");
    }
    for (count, what) in [
        (recovery.damaged, "places are damaged"),
        (recovery.unreadable_pages, "pages of 4 KiB cannot be read"),
        (recovery.torn_bytes, "bytes of a torn tail; nothing in them was settled"),
        (recovery.unsettled_kept, "records of the last commit are there though nobody was told"),
        (recovery.unsettled_dropped, "records nobody was told of, behind a gap; a start leaves them out"),
        (recovery.removed, "empty segments; a start removes them"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    text += if recovery.is_whole() { "whole\n" } else { "NOT WHOLE\n" };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::{Kind, Lost, Record, SpillLimits};
    use crate::units::PartitionId;

    #[test]
    fn the_text_names_each_loss_and_ends_with_the_verdict() {
        let lost_ranges = vec![Lost { partition: 3, first: 17, last: 19 }];
        let bad = Recovery { segments: 2, records: 7, lost: 3, lost_ranges, damaged: 1, ..Recovery::default() };
        let text = as_text(&bad, &[]);
        assert!(text.contains("lost: partition 3, sequences 17 to 19\n"), "{text}");
        assert!(text.ends_with("NOT WHOLE\n"), "{text}");
        assert!(as_text(&Recovery { torn_bytes: 5, ..Recovery::default() }, &[]).ends_with("settled\nwhole\n"));
    }

    #[test]
    fn a_flip_on_the_disk_makes_the_exit_code_1_a_directory_above_2_and_a_missing_one_3() {
        let state = std::env::temp_dir().join(format!("fencepost-cli-spill-{}", std::process::id()));
        let dir = state.join(SPILL_DIR);
        let run = |dir: &PathBuf| Verify { dir: dir.clone(), json: true }.run().map_err(|error| error.exit());
        assert_eq!(run(&dir), Err(Exit::Unavailable));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(run(&dir), Ok(Exit::Done), "it is empty");
        assert_eq!(run(&state), Err(Exit::Usage), "the segments lie below");
        let limits = SpillLimits {
            limit_bytes: 16 << 20,
            reserve_bytes: 1 << 20,
            partition_bytes: 4 << 20,
            segment_bytes: 1 << 20,
            marks: 64,
            ..SpillLimits::new(4)
        };
        let (mut spill, _) = spill::Spill::open(RealDisk, &dir, limits).unwrap();
        let record = Record { partition: PartitionId(2), kind: Kind::Spilled, meta: b"", frame: b"a frame of its own" };
        spill.append(record).unwrap();
        spill.commit().unwrap();
        drop(spill);
        assert_eq!(run(&dir), Ok(Exit::Done));
        let path = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().unwrap() == "seg")
            .unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(18).position(|window| window == b"a frame of its own").unwrap();
        bytes[at] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(run(&dir), Ok(Exit::Wrong));
        let (recovery, rows) = spill::verify(&mut RealDisk, &dir, |_| true).unwrap();
        let json = as_json(&recovery, &rows);
        assert_eq!((&json["lost"], &json["in_spill"], &json["recovered"]), (&json!(1), &json!(0), &json!(1)));
        std::fs::remove_dir_all(&state).unwrap();
    }
}

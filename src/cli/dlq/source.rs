//! Where `ls` and `show` take letters from: the topic that the configuration names, or a directory on disk.

use super::letter::Letter;
use super::place::Place;
use super::progress::Progress;
use crate::cli::signals::Signals;
use crate::cli::{CliError, directory};
use crate::engine::disk::LETTER_DIR;
use crate::spill::{Kind, RealDisk, SurveyError, read_all};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which of the two.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct SourceArgs {
    /// The configuration file: it names the dead-letter topic and how its cluster is reached.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Letters on disk instead: the directory `dead-letters` below the state directory of a router that is stopped. It is
    /// read and not touched.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What was read.
#[derive(Default)]
pub(super) struct Survey {
    /// Where, for a person.
    pub(super) place: String,
    /// Records that were read.
    pub(super) records: u64,
    /// Of these, on disk, ones whose notes cannot be read.
    pub(super) unreadable: u64,
    /// A signal ended the reading before its end.
    pub(super) stopped: bool,
}

impl SourceArgs {
    /// Hands over each letter until `each` says that it is enough. `only`: from this partition and offset on, and of no
    /// other partition.
    ///
    /// # Errors
    /// The source cannot be read.
    pub(super) fn read(
        &self,
        only: Option<(u32, i64)>,
        mut each: impl FnMut(Letter) -> bool,
    ) -> Result<Survey, CliError> {
        let signals = Signals::listen().map_err(|error| CliError::Unavailable(format!("signals: {error}")))?;
        let mut progress = Progress::new();
        let survey = match (&self.config, &self.dir) {
            (Some(config), _) => read_topic(config, only, &signals, &mut progress, &mut each),
            (None, Some(dir)) => read_dir(dir, only, &signals, &mut progress, &mut each),
            (None, None) => Err(CliError::Usage("where are the letters? Give -c FILE, or --dir DIR".into())),
        };
        progress.end();
        survey
    }
}

fn read_topic(
    config: &Path,
    only: Option<(u32, i64)>,
    signals: &Signals,
    progress: &mut Progress,
    each: &mut dyn FnMut(Letter) -> bool,
) -> Result<Survey, CliError> {
    let place = Place::of(config)?;
    place.tell_of_disk();
    let (mut reader, partitions) = place.letters()?;
    let from: BTreeMap<u32, i64> = match only {
        Some((partition, _)) if partition >= partitions => {
            let topic = &place.topic;
            return Err(CliError::Usage(format!("{topic} has partitions 0 to {}, not {partition}", partitions - 1)));
        }
        Some((partition, offset)) => BTreeMap::from([(partition, offset)]),
        None => (0..partitions).map(|partition| (partition, 0)).collect(),
    };
    reader.begin(&from, false)?;
    let mut survey = Survey { place: place.topic, ..Survey::default() };
    let watch = |behind| {
        progress.tick("letters", behind, &"");
        !signals.asked_to_stop()
    };
    let records = &mut survey.records;
    reader.read(watch, |record| {
        *records += 1;
        each(Letter::of_record(record))
    })?;
    survey.stopped = signals.asked_to_stop();
    Ok(survey)
}

fn read_dir(
    dir: &Path,
    only: Option<(u32, i64)>,
    signals: &Signals,
    progress: &mut Progress,
    each: &mut dyn FnMut(Letter) -> bool,
) -> Result<Survey, CliError> {
    let mut survey = Survey { place: dir.display().to_string(), ..Survey::default() };
    let fix = "give the directory `dead-letters` below the state.dir of a router that has run here";
    directory::must_be_there(dir, &survey.place, fix)?;
    // A state directory itself has no segments, and would pass for one without letters.
    let below = dir.join(LETTER_DIR);
    if below.is_dir() {
        return Err(CliError::Usage(format!(
            "the letters are not in {}, but below it: give {}",
            dir.display(),
            below.display()
        )));
    }
    let mut enough = false;
    let watch = |bytes| {
        progress.tick("bytes", (bytes, bytes), &"");
        !signals.asked_to_stop()
    };
    let read = read_all(&mut RealDisk, dir, watch, |stored| {
        if enough || stored.record.kind != Kind::DeadLetter {
            return;
        }
        if only.is_some_and(|(partition, _)| stored.id.partition.0 != partition) {
            return;
        }
        survey.records += 1;
        match Letter::of_stored(&stored) {
            Some(letter) if only.is_none_or(|(_, offset)| letter.offset >= offset) => enough = !each(letter),
            Some(_) => {}
            None => survey.unreadable += 1,
        }
    });
    match read {
        Ok(_) => Ok(survey),
        Err(SurveyError::Stopped) => Ok(Survey { stopped: true, ..survey }),
        Err(error @ SurveyError::Version { .. }) => Err(CliError::Usage(error.to_string())),
        Err(error) => Err(CliError::Unavailable(error.to_string())),
    }
}

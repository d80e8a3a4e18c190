//! `fencepost dlq replay`: dead letters back to the topic, each key once, from where the last replay ended.
//!
//! Batch by batch: letters are read and judged; the topic is scanned from the first failure of the batch on, and what it
//! holds already is suppressed; the rest is published; positions are saved behind the acks. What a crash leaves between an
//! ack and its saving is found in the topic by the next run. Memory: one batch, 64 MiB at most.

use super::filter::{Filter, FilterArgs};
use super::letter::Letter;
use super::now_ms;
use super::place::{Place, connection};
use super::progress::Progress;
use super::publish::{At, Outcome, Publisher};
use super::reader::{Ended, TopicReader};
use super::resume::{ResumeFile, Whose};
use crate::cli::signals::Signals;
use crate::cli::table::{grouped, right};
use crate::cli::{CliError, Exit, directory, say};
use crate::config::{Config, KafkaSettings, RecordTime};
use crate::letter::notes::header;
use crate::partition::partition_of;
use crate::replay::{Positions, Wanted};
use crate::state::StateDir;
use crate::wire;
use clap::Args;
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of letters that are held at one time.
const BATCH_BYTES: usize = 64 << 20;
/// The scan begins so much before the first failure: the clocks of two hosts differ.
const CLOCKS_DIFFER_MS: i64 = 60_000;
/// Between two savings of the positions.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// So many letters in a row that are refused alone say something of the topic: the others are not tried.
const IN_A_ROW_MAX: u32 = 20;
/// Failures that are named; more are counted.
const NAMED: u64 = 10;
/// The resume file below the state directory.
const RESUME_FILE: &str = "dlq-replay.toml";

/// Publishes dead letters to their topic again, each trigger at most once.
///
/// Key, value and headers stay as they are; fencepost.replays counts up. Each letter goes to the partition of its device.
/// What the topic already holds since the letter's first failure is not published again, so a replay that was stopped, or
/// killed, is simply started again: it goes on where it was. The router may run meanwhile. Letters that hold no trigger, or
/// were replayed too often, are left where they are and counted; the exit code is 1 then, as when the topic refuses one.
#[derive(Args)]
pub(super) struct Replay {
    /// The configuration file: it names both topics and how their clusters are reached.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    filter: FilterArgs,
    /// Count what would be published, and publish nothing. The positions stay as they are.
    #[arg(long)]
    dry_run: bool,
    /// Publish at most so many letters, then end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Leave letters alone that were replayed so often already: they come back each time.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    replays_max: u32,
    /// Hold at most so many letters, or 64 MiB, at one time. The topic is scanned once for each batch.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Where the positions are kept; without it, dlq-replay.toml in the state directory of the configuration.
    #[arg(long, value_name = "FILE")]
    resume_file: Option<PathBuf>,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// What became of the letters that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// Records of the dead-letter topic.
    read: u64,
    /// Letters that the filter takes.
    matching: u64,
    /// Acknowledged by the topic.
    delivered: u64,
    /// Would have been published, but for --dry-run.
    would_deliver: u64,
    /// In the topic already, or the second letter of one trigger.
    deduplicated: u64,
    /// Refused by the topic.
    failed: u64,
    /// No trigger inside, or a count of replays that is no number.
    malformed: u64,
    /// Replayed too often.
    over_replays_max: u64,
    /// Meant for another topic.
    other_topic: u64,
    /// Records that say no reason.
    not_letters: u64,
}

/// A letter that is to be published, unless the topic holds it.
struct Item {
    letter: Letter,
    partition: u32,
    replays: u32,
}

/// What is known after each outcome.
struct Ledger {
    positions: Positions,
    sums: Sums,
    resume: Option<ResumeFile>,
    saved: Instant,
    /// Refused just now: a broker refuses a batch as a whole, so most of them may be innocent.
    refused: Vec<(At, String)>,
}

impl Ledger {
    fn done(&mut self, (partition, offset): At) {
        self.positions.done(partition, offset);
    }

    fn outcome(&mut self, (at, outcome): Outcome) {
        match outcome {
            Ok(()) => {
                self.sums.delivered += 1;
                self.done(at);
            }
            Err(why) => self.refused.push((at, why)),
        }
    }

    /// A letter that is refused for its own sake stays open: the next run tries it again.
    fn failed(&mut self, (partition, offset): At, why: &str) {
        self.sums.failed += 1;
        if self.sums.failed <= NAMED {
            tell!("partition {partition}, offset {offset}: not published: {why}");
        }
    }

    fn save(&mut self) -> Result<(), CliError> {
        self.saved = Instant::now();
        match &mut self.resume {
            Some(resume) => resume.save(&self.positions),
            None => Ok(()),
        }
    }
}

/// How a replay ended, when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Every letter was read.
    All,
    /// --max was reached.
    Max,
    /// A signal.
    Stopped,
}

impl Replay {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let filter = self.filter.clone().understood(now_ms())?;
        let place = Place::of(&self.config)?;
        let settings = place.config.kafka_settings()?;
        let resume_path = match (&self.resume_file, &place.config.state.dir) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(dir)) => Some(dir.join(RESUME_FILE)),
            (None, None) if self.dry_run => None,
            (None, None) => {
                return Err(CliError::Usage(
                    "where are the positions kept? Give --resume-file FILE, or set state.dir in the configuration"
                        .into(),
                ));
            }
        };
        self.check_state_dir(&place.config)?;
        let signals = Signals::listen().map_err(|error| CliError::Unavailable(format!("signals: {error}")))?;
        place.tell_of_disk();
        let (mut letters, letter_partitions) = place.letters()?;
        let topic_name = place.config.topic.name.clone();
        let connection = connection(&settings.bootstrap, &settings.properties);
        let partitions = self.partitions(&place, &TopicReader::new(&connection, &topic_name)?)?;
        let whose = Whose {
            cluster: letters.cluster_id(),
            dead_letters: place.topic.clone(),
            topic: topic_name.clone(),
            filter: filter.text().to_owned(),
        };
        let resume = resume_path.map(|path| ResumeFile::open(&path, whose, !self.dry_run)).transpose()?;
        let known = resume.as_ref().map(ResumeFile::positions).unwrap_or_default();
        let from: BTreeMap<u32, i64> =
            (0..letter_partitions).map(|partition| (partition, known.get(&partition).copied().unwrap_or(0))).collect();
        for partition in letters.begin(&from, true)? {
            tell!(
                "partition {partition} of {} ends before the position that was kept, so it was made anew: read from its \
                 beginning",
                place.topic
            );
        }
        let mut positions = Positions::default();
        letters.first().iter().for_each(|(partition, first)| positions.begin(*partition, *first));
        let resume_shown = resume.as_ref().map(|resume| resume.path().display().to_string());
        let resume = resume.filter(|_| !self.dry_run);
        let mut run = Run {
            replay: &self,
            filter,
            topic_name,
            connection,
            partitions,
            settings: &settings,
            publisher: None,
            signals,
            progress: Progress::new(),
            ledger: Ledger { positions, sums: Sums::default(), resume, saved: Instant::now(), refused: Vec::new() },
        };
        let ended = run.all(&mut letters);
        run.progress.end();
        // Whatever happened: what is acknowledged is not to be read again.
        let saved = run.ledger.save();
        let sums = run.ledger.sums;
        let end = ended.as_ref().copied().ok();
        if self.json {
            say!("{}", self.as_json(&place.topic, &run.topic_name, &sums, end, resume_shown.as_deref()));
        } else {
            say::out(format_args!("{}", self.as_text(&place.topic, &run.topic_name, &sums, end)));
        }
        ended.and(saved)?;
        let is_whole = sums.failed + sums.malformed + sums.over_replays_max == 0;
        Ok(if is_whole { Exit::Done } else { Exit::Wrong })
    }

    /// A state directory that is not there would be made, and taken for one that pins nothing and was never replayed from.
    fn check_state_dir(&self, config: &Config) -> Result<(), CliError> {
        match &config.state.dir {
            Some(dir) if self.resume_file.is_none() || config.topic.partitions.is_none() => directory::must_be_there(
                dir,
                &format!("state.dir = {}", dir.display()),
                "it says how far the last replay came, and by how many partitions devices are mapped: mount or name the \
                 directory of the router, or give --resume-file and set topic.partitions",
            ),
            _ => Ok(()),
        }
    }

    /// The count that devices are mapped by: pinned by the configuration or the state directory, or the topic's own.
    fn partitions(&self, place: &Place, topic: &TopicReader) -> Result<u32, CliError> {
        let config = &place.config;
        let name = &config.topic.name;
        let Some(there) = topic.partitions()? else {
            return Err(CliError::Unavailable(format!("topic {name} does not exist: the router makes it, or you do")));
        };
        let remembered = match &config.state.dir {
            Some(dir) if config.topic.partitions.is_none() => {
                StateDir::peek(dir, name).map_err(|error| CliError::Usage(error.to_string()))?
            }
            _ => None,
        };
        let pinned = config.topic.partitions.or(remembered.map(|remembered| remembered.partitions)).unwrap_or(there);
        if pinned > there {
            return Err(CliError::Usage(format!("topic {name} has {there} partitions, and {pinned} are pinned")));
        }
        Ok(pinned)
    }

    fn as_json(&self, from: &str, to: &str, sums: &Sums, end: Option<End>, resume: Option<&str>) -> Value {
        json!({
            "dead_letters": from,
            "topic": to,
            "dry_run": self.dry_run,
            "read": sums.read,
            "matching": sums.matching,
            "delivered": sums.delivered,
            "would_deliver": sums.would_deliver,
            "deduplicated": sums.deduplicated,
            "failed": sums.failed,
            "malformed": sums.malformed,
            "over_replays_max": sums.over_replays_max,
            "other_topic": sums.other_topic,
            "not_letters": sums.not_letters,
            "ended": match end {
                Some(End::All) => "all",
                Some(End::Max) => "max",
                Some(End::Stopped) => "stopped",
                None => "failed",
            },
            "resume_file": resume,
        })
    }

    fn as_text(&self, from: &str, to: &str, sums: &Sums, end: Option<End>) -> String {
        let mut text =
            format!("{from} to {to}: {} records read, {} letters match\n", grouped(sums.read), grouped(sums.matching));
        let replays = format!("were replayed {} times or more already, and stay where they are", self.replays_max);
        for (count, what, always) in [
            (sums.delivered, "published and acknowledged", !self.dry_run),
            (sums.would_deliver, "would be published", self.dry_run),
            (sums.deduplicated, "already in the topic, or twice among the letters: not published again", true),
            (sums.failed, "refused by the topic; the next replay tries them again", false),
            (sums.malformed, "hold no trigger, and stay where they are", false),
            (sums.over_replays_max, replays.as_str(), false),
            (sums.other_topic, "are meant for another topic", false),
            (sums.not_letters, "say no reason: no letters of a router", false),
        ] {
            if always || count > 0 {
                text += &format!("{}  {what}\n", right(&grouped(count), 12));
            }
        }
        text += match end {
            Some(End::All) => "all letters were read\n",
            Some(End::Max) => "ended at --max; start it again to go on\n",
            Some(End::Stopped) => "stopped; start it again to go on\n",
            None => "NOT COMPLETE; start it again to go on\n",
        };
        text
    }
}

/// A replay under way.
struct Run<'a> {
    replay: &'a Replay,
    filter: Filter,
    topic_name: String,
    /// How its cluster is reached.
    connection: ClientConfig,
    partitions: u32,
    settings: &'a KafkaSettings,
    /// Made when the first letter is to be published.
    publisher: Option<Publisher>,
    signals: Signals,
    progress: Progress,
    ledger: Ledger,
}

impl Run<'_> {
    fn all(&mut self, letters: &mut TopicReader) -> Result<End, CliError> {
        loop {
            let (batch, ended) = self.collect(letters)?;
            if self.signals.asked_to_stop() {
                return Ok(End::Stopped);
            }
            let end = self.publish_batch(batch)?;
            self.ledger.save()?;
            match (end, ended) {
                (Some(end), _) => return Ok(end),
                (None, Ended::End) => return Ok(End::All),
                (None, Ended::Paused) => {}
            }
        }
    }

    /// Reads and judges letters until a batch is full.
    fn collect(&mut self, letters: &mut TopicReader) -> Result<(Vec<Item>, Ended), CliError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let Run { replay, filter, topic_name, partitions, signals, progress, ledger, .. } = self;
        let published = ledger.sums.delivered;
        let watch = |behind| {
            progress.tick("letters", behind, &format_args!(", {} published", grouped(published)));
            !signals.asked_to_stop()
        };
        let ended = letters.read(watch, |record| {
            let letter = Letter::of_record(record);
            let at = (letter.partition, letter.offset);
            let item = judge(letter, filter, topic_name, replay.replays_max, *partitions, &mut ledger.sums);
            ledger.positions.read(at.0, at.1, item.is_some());
            if let Some(item) = item {
                bytes += item.letter.bytes();
                batch.push(item);
            }
            batch.len() < replay.batch as usize && bytes < BATCH_BYTES
        })?;
        Ok((batch, ended))
    }

    /// Suppresses what the topic holds and publishes the rest. `None`: all of it, so go on.
    fn publish_batch(&mut self, batch: Vec<Item>) -> Result<Option<End>, CliError> {
        if batch.is_empty() {
            return Ok(None);
        }
        let frames = batch.iter().map(|item| item.letter.frame().expect("it was judged to hold a trigger").frame);
        let frames: Vec<wire::Frame<'_>> = frames.collect();
        let mut wanted = Wanted::new(frames.iter().map(wire::Frame::key));
        if !self.scan(&batch, &frames, &mut wanted)? {
            return Ok(Some(End::Stopped));
        }
        let mut end = None;
        for (number, (item, frame)) in batch.iter().zip(&frames).enumerate() {
            let sums = &self.ledger.sums;
            let sent = match &self.publisher {
                _ if self.replay.dry_run => sums.would_deliver,
                Some(publisher) => {
                    sums.delivered + sums.failed + (publisher.in_flight() + self.ledger.refused.len()) as u64
                }
                None => 0,
            };
            if self.replay.max.is_some_and(|max| sent >= max) {
                end = Some(End::Max);
                break;
            }
            if self.signals.asked_to_stop() {
                end = Some(End::Stopped);
                break;
            }
            if !wanted.take(&frame.key()) {
                self.ledger.sums.deduplicated += 1;
                self.ledger.done((item.letter.partition, item.letter.offset));
                continue;
            }
            if self.replay.dry_run {
                self.ledger.sums.would_deliver += 1;
                self.ledger.done((item.letter.partition, item.letter.offset));
                continue;
            }
            let publisher = match &mut self.publisher {
                Some(publisher) => publisher,
                empty => empty.insert(Publisher::new(self.settings, &self.topic_name, self.partitions)?),
            };
            let ledger = &mut self.ledger;
            publisher.send(&item.letter, item.partition, item.replays, &mut |outcome| ledger.outcome(outcome))?;
            if self.ledger.saved.elapsed() >= SAVE_EVERY {
                self.ledger.save()?;
            }
            let published = self.ledger.sums.delivered;
            let more = format_args!(" of this batch, {} published", grouped(published));
            self.progress.tick("letters", (number as u64, batch.len() as u64), &more);
        }
        if let Some(publisher) = &mut self.publisher {
            let ledger = &mut self.ledger;
            publisher.settle(&mut |outcome| ledger.outcome(outcome))?;
        }
        self.try_one_by_one(&batch)?;
        Ok(end)
    }

    /// Publishes what was refused again, each alone, so that only those fail that are to blame.
    fn try_one_by_one(&mut self, batch: &[Item]) -> Result<(), CliError> {
        let refused = std::mem::take(&mut self.ledger.refused);
        let (Some(publisher), false) = (&mut self.publisher, refused.is_empty()) else { return Ok(()) };
        let items: BTreeMap<At, &Item> =
            batch.iter().map(|item| ((item.letter.partition, item.letter.offset), item)).collect();
        let ledger = &mut self.ledger;
        let mut in_a_row = 0;
        for (at, why) in refused {
            if in_a_row >= IN_A_ROW_MAX || self.signals.asked_to_stop() {
                ledger.failed(at, &why);
                continue;
            }
            let item = items[&at];
            publisher.send(&item.letter, item.partition, item.replays, &mut |outcome| ledger.outcome(outcome))?;
            publisher.settle(&mut |outcome| ledger.outcome(outcome))?;
            in_a_row += 1;
            match ledger.refused.pop() {
                Some((at, why)) => ledger.failed(at, &why),
                None => in_a_row = 0,
            }
        }
        Ok(())
    }

    /// Notes which keys of the batch the topic holds. `false`: a signal came.
    fn scan(&mut self, batch: &[Item], frames: &[wire::Frame<'_>], wanted: &mut Wanted) -> Result<bool, CliError> {
        let is_event_time = self.settings.record_time == RecordTime::Event;
        let since = batch.iter().zip(frames).map(|(item, frame)| {
            let failed = Some(item.letter.read().notes.first_failure.0).filter(|ms| *ms > 0);
            let accepted = frame.accepted.0 / 1_000;
            let event = if is_event_time { frame.event_time_ms } else { accepted };
            // A trigger in doubt carries the time it was accepted at, or that of its event: both before it failed.
            accepted.min(event).min(failed.unwrap_or(accepted))
        });
        let since_ms = since.min().unwrap_or(0).saturating_sub(CLOCKS_DIFFER_MS);
        let mut targets: BTreeSet<u32> = batch.iter().map(|item| item.partition).collect();
        // Before a hot device was split, and after, its triggers lie in its own partition.
        targets.extend(
            frames.iter().filter(|frame| frame.salt > 0).map(|frame| partition_of(frame.device_id, self.partitions).0),
        );
        let targets: Vec<u32> = targets.into_iter().collect();
        let mut topic = TopicReader::new(&self.connection, &self.topic_name)?;
        let from = topic.offsets_from(&targets, since_ms)?;
        topic.begin(&from, false)?;
        let Run { signals, progress, .. } = self;
        let watch = |behind| {
            progress.tick("records of the topic", behind, &" looked at");
            !signals.asked_to_stop()
        };
        let ended = topic.read(watch, |record| {
            if let Some(Ok(decoded)) = record.payload().map(wire::decode) {
                wanted.topic_holds(&decoded.frame.key());
            }
            true
        })?;
        let (checks, in_vain) = wanted.checks();
        log::info!("{} letters: {checks} records of the topic were compared, {in_vain} of them in vain", batch.len());
        Ok(ended == Ended::End)
    }
}

/// What is to be done with a letter: `None`, and counted, when it is not to be published.
fn judge(
    letter: Letter,
    filter: &Filter,
    topic: &str,
    replays_max: u32,
    partitions: u32,
    sums: &mut Sums,
) -> Option<Item> {
    sums.read += 1;
    let read = letter.read();
    if !read.is_letter {
        sums.not_letters += 1;
        return None;
    }
    if !filter.takes(&letter, &read) {
        return None;
    }
    sums.matching += 1;
    if !read.notes.topic.is_empty() && read.notes.topic != topic {
        sums.other_topic += 1;
        return None;
    }
    // Without a count there is no guard against a loop.
    if read.unread.contains(&header::REPLAYS) {
        sums.malformed += 1;
        return None;
    }
    let replays = read.notes.replays;
    if replays >= replays_max {
        sums.over_replays_max += 1;
        return None;
    }
    let partition = match letter.frame() {
        Ok(decoded) => match (decoded.frame.salt, letter.key.as_deref()) {
            // A part of a split hot device has a key of its own.
            (1.., Some(key)) => partition_of(key, partitions),
            _ => partition_of(decoded.frame.device_id, partitions),
        },
        Err(_) => {
            sums.malformed += 1;
            return None;
        }
    };
    Some(Item { letter, partition: partition.0, replays: replays + 1 })
}

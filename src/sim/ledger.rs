//! The ledger: every trigger that a caller had taken, and what the world outside has seen of it since. It knows nothing of
//! the router's inside. The checks read it; it judges nothing.

use crate::shard::shared::FailedReason;
use crate::trigger::{Priority, State, Trigger};
use crate::units::Nanos;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

/// What happened, line by line: kept beside the world, so that a panic leaves it.
pub type Story = Rc<RefCell<Vec<String>>>;

/// A trigger that owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Whose.
    pub device: String,
    /// Of which fence.
    pub fence: String,
    /// What happened.
    pub state: State,
    /// When.
    pub event_time_ms: i64,
    /// How much it matters.
    pub priority: Priority,
    /// Bytes of attributes behind the number.
    pub padding: usize,
}

/// One submit of a caller, under a number that its record's attributes hold.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was submitted.
    pub draft: Draft,
    /// Its idempotency key, numbered.
    pub key: u32,
    /// Its device, numbered.
    pub device: u32,
    /// When it was accepted first.
    pub first_at: Nanos,
    /// When it was accepted last.
    pub accepted_at: Nanos,
    /// How many triggers had been settled by then: those a shard had seen for certain. What waited in a ring it may see later
    /// than this one, though it was accepted before.
    pub settled_before: u64,
    /// Records of it in the topic.
    pub landed: u32,
    /// When the last one landed.
    pub landed_at: Nanos,
    /// By when the router had been told of it: until then it is pending, and no window forgets it.
    pub told_at: Nanos,
    /// The router was told of one, or will be.
    pub is_acked: bool,
    /// It was given back.
    pub failed: Option<FailedReason>,
    /// Dead letters of it.
    pub buried: u32,
    /// A watermark has passed it.
    pub is_settled: bool,
    /// The router died since it was accepted first.
    pub is_old: bool,
    /// It may be in the topic without the router being told.
    pub is_uncertain: bool,
    /// Its caller gave it up: a rule refused it when it was to be sent again.
    pub is_dropped: bool,
    /// It was accepted by a router that had not read the topic yet.
    pub was_cold: bool,
}

/// What became known of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyFacts {
    /// The submit that was acknowledged last under it.
    pub acked: Option<u64>,
    /// When a record of it landed last.
    pub landed_at: Option<Nanos>,
    /// A record of it came back refused, by a broker or by a rule of the router's, or its caller gave it to the dead
    /// letters: it is in no line any more.
    pub was_refused: bool,
    /// It was in the topic when the router died.
    pub was_found: bool,
    /// It is in the topic of dead letters.
    pub is_buried: bool,
}

/// Something that the world outside saw.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A submit was accepted: for the first time, or again after a death.
    Accepted {
        /// The number.
        id: u64,
    },
    /// A record is in the topic.
    Landed {
        /// The number.
        id: u64,
        /// Where.
        partition: u32,
        /// The record's key.
        key: &'a [u8],
        /// Its frame.
        frame: &'a crate::verify::frame::Frame<'a>,
        /// Whether the router will be told.
        is_acked: bool,
    },
    /// It may be in the topic without the router being told.
    Doubted {
        /// The number.
        id: u64,
    },
    /// A record came back refused.
    Refused {
        /// The number.
        id: u64,
    },
    /// It is in the topic of dead letters.
    Buried {
        /// The number.
        id: u64,
    },
    /// `take_failed` gave it back.
    GivenBack {
        /// The number.
        id: u64,
        /// Why.
        reason: FailedReason,
    },
    /// A watermark passed it.
    Passed {
        /// The number.
        id: u64,
    },
    /// The router died.
    Died,
}

/// Everything that was accepted.
#[derive(Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    keys: Vec<KeyFacts>,
    by_key: HashMap<(String, String, u8, i64), u32>,
    by_device: HashMap<String, u32>,
    /// Keys that are durable on disk, as of the last look.
    on_disk: HashSet<u32>,
    /// What landed since no report was under way.
    untold: Vec<u64>,
    /// Where each step and each event is told.
    pub story: Option<Story>,
    /// The clock.
    pub now: Nanos,
    /// What is entered may have landed since then; `None`: now.
    pub landed_since: Option<Nanos>,
    /// When the router died last.
    pub died_at: Nanos,
    /// When the router began last, and its window with it.
    pub began_at: Nanos,
    /// Whether it has not read the topic yet.
    pub is_cold: bool,
    /// Accepted, over all lives.
    pub accepted: u64,
    /// Of those: settled, or lost with a life and not accepted again.
    settled: u64,
    /// Of this life: accepted, acknowledged, given back.
    pub life: (u64, u64, u64),
}

impl Ledger {
    /// Tells what happened, if somebody listens.
    pub fn tell(&self, at: Nanos, what: &dyn fmt::Display) {
        if let Some(story) = &self.story {
            story.borrow_mut().push(format!("{:>14.3}  {what}", at.0 as f64 / 1e6));
        }
    }

    /// Writes down what a caller wants to submit, under the next number.
    pub fn draft(&mut self, draft: Draft) -> u64 {
        let second = draft.event_time_ms.div_euclid(1_000);
        let next = self.keys.len() as u32;
        let parts = (draft.device.clone(), draft.fence.clone(), draft.state as u8, second);
        let key = *self.by_key.entry(parts).or_insert(next);
        if key == next {
            self.keys.push(KeyFacts::default());
        }
        let next = self.by_device.len() as u32;
        let device = *self.by_device.entry(draft.device.clone()).or_insert(next);
        self.entries.push(Entry {
            draft,
            key,
            device,
            first_at: Nanos(0),
            accepted_at: Nanos(0),
            settled_before: 0,
            landed: 0,
            landed_at: Nanos(0),
            told_at: Nanos(u64::MAX),
            is_acked: false,
            failed: None,
            buried: 0,
            is_settled: false,
            is_old: false,
            is_uncertain: false,
            is_dropped: false,
            was_cold: false,
        });
        self.entries.len() as u64 - 1
    }

    /// The earliest moment at which a record that is entered now may have landed.
    #[must_use]
    pub fn landed_at(&self) -> Nanos {
        self.landed_since.unwrap_or(self.now)
    }

    /// One submit.
    #[must_use]
    pub fn entry(&self, id: u64) -> &Entry {
        &self.entries[id as usize]
    }

    /// All of them that were accepted, with their numbers.
    pub fn accepted(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().enumerate().map(|(id, entry)| (id as u64, entry)).filter(|(_, entry)| entry.was_accepted())
    }

    /// What is known of its key.
    #[must_use]
    pub fn key(&self, id: u64) -> KeyFacts {
        self.keys[self.entry(id).key as usize]
    }

    /// Its caller gives it up.
    pub fn drop_one(&mut self, id: u64) {
        self.entries[id as usize].is_dropped = true;
    }

    /// A rule came into force that may take it out of its line.
    pub fn note_refusable(&mut self, id: u64) {
        let key = self.entry(id).key;
        self.keys[key as usize].was_refused = true;
    }

    /// A rule came into force that may take any of those that are not settled out of its line.
    pub fn note_all_refusable(&mut self) {
        let unsettled = self.entries.iter().filter(|entry| entry.was_accepted() && !entry.is_settled);
        unsettled.for_each(|entry| self.keys[entry.key as usize].was_refused = true);
    }

    /// No report is under way any more: of all that landed the router has been told.
    pub fn note_told(&mut self) {
        for id in self.untold.drain(..) {
            self.entries[id as usize].told_at = self.now;
        }
    }

    /// What lies on disk, by number.
    pub fn look_at_disk(&mut self, ids: impl Iterator<Item = u64>) {
        self.on_disk.clear();
        for id in ids {
            self.on_disk.insert(self.entries[id as usize].key);
        }
    }

    /// Whether a watermark may pass it: it, or another trigger of its key, is acknowledged, given back, a dead letter, in
    /// the topic since before the last death, or on the disk as of the last look.
    #[must_use]
    pub fn is_kept(&self, id: u64) -> bool {
        let entry = self.entry(id);
        let key = self.keys[entry.key as usize];
        entry.is_acked
            || entry.failed.is_some()
            || entry.is_dropped
            || key.acked.is_some()
            || key.is_buried
            || key.was_found
            || self.on_disk.contains(&entry.key)
    }

    /// Enters what was seen. The checks have seen it before.
    pub fn enter(&mut self, event: &Event<'_>) {
        let now = self.now;
        match *event {
            Event::Accepted { id } => {
                let (settled, is_cold) = (self.settled, self.is_cold);
                let entry = &mut self.entries[id as usize];
                if !entry.was_accepted() {
                    entry.first_at = now;
                }
                (entry.accepted_at, entry.settled_before) = (now, settled);
                entry.was_cold |= is_cold;
                self.accepted += 1;
                self.life.0 += 1;
            }
            Event::Landed { id, is_acked, .. } => {
                let at = self.landed_at();
                let entry = &mut self.entries[id as usize];
                entry.landed += 1;
                (entry.landed_at, entry.told_at) = (at, Nanos(u64::MAX));
                self.untold.push(id);
                let key = &mut self.keys[entry.key as usize];
                key.landed_at = Some(at);
                if is_acked {
                    entry.is_acked = true;
                    key.acked = Some(id);
                    self.life.1 += 1;
                }
            }
            Event::Doubted { id } => self.entries[id as usize].is_uncertain = true,
            Event::Refused { id } => {
                let key = self.entry(id).key;
                self.keys[key as usize].was_refused = true;
            }
            Event::Buried { id } => {
                let entry = &mut self.entries[id as usize];
                entry.buried += 1;
                self.keys[entry.key as usize].is_buried = true;
            }
            Event::GivenBack { id, reason } => {
                self.entries[id as usize].failed = Some(reason);
                self.life.2 += 1;
            }
            Event::Passed { id } => {
                let entry = &mut self.entries[id as usize];
                entry.is_settled = true;
                self.settled += 1;
            }
            Event::Died => {
                self.life = (0, 0, 0);
                self.died_at = now;
                // What was in a ring is gone.
                self.settled = self.accepted;
                for entry in &mut self.entries {
                    entry.is_old |= entry.was_accepted();
                    if entry.landed > 0 {
                        self.keys[entry.key as usize].was_found = true;
                    }
                }
            }
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Accepted { id } => write!(out, "submit {id} is accepted"),
            Event::Landed { id, partition, frame, is_acked, .. } => {
                let told = if *is_acked { "" } else { ", and the router is not told" };
                let (number, stamp) = (frame.partition_seq, frame.hlc);
                write!(out, "submit {id} lands in partition {partition} as {}/{number}", frame.incarnation)?;
                write!(out, ", stamp {stamp:#x}{told}")
            }
            Event::Doubted { id } => write!(out, "submit {id} may have landed"),
            Event::Refused { id } => write!(out, "submit {id} is refused"),
            Event::Buried { id } => write!(out, "submit {id} is a dead letter"),
            Event::GivenBack { id, reason } => write!(out, "submit {id} is given back: {reason}"),
            Event::Passed { id } => write!(out, "submit {id} is settled"),
            Event::Died => write!(out, "the router died"),
        }
    }
}

impl Entry {
    /// Whether a router ever took it.
    #[must_use]
    pub fn was_accepted(&self) -> bool {
        self.accepted_at > Nanos(0)
    }

    /// The attributes of its records: its number, and padding.
    #[must_use]
    pub fn attributes(&self, id: u64) -> Vec<u8> {
        let mut attributes = id.to_le_bytes().to_vec();
        attributes.resize(8 + self.draft.padding, 0x55);
        attributes
    }

    /// As `submit` takes it.
    #[must_use]
    pub fn trigger<'a>(&'a self, attributes: &'a [u8]) -> Trigger<'a> {
        let Draft { device, fence, state, event_time_ms, priority, .. } = &self.draft;
        Trigger::new(device, fence, *state, *event_time_ms).with_priority(*priority).with_attributes(attributes)
    }
}

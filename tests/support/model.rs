//! The model: every trigger that was accepted, what became of it as the broker and the caller see it, and the rules
//! that a consumer of the topic relies on. It knows nothing of the engine's inside.

use fencepost::shard::shared::FailedReason;
use fencepost::sink::steered::Record;
use fencepost::trigger::{Priority, State, Trigger};
use fencepost::units::Nanos;
use fencepost::verify::frame::Frame;
use std::collections::{HashMap, HashSet};

/// A trigger that owns its ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub device: String,
    pub fence: String,
    pub state: State,
    pub event_time_ms: i64,
    pub priority: Priority,
}

impl Draft {
    pub fn new(device: impl Into<String>, fence: impl Into<String>, event_time_ms: i64) -> Draft {
        Draft {
            device: device.into(),
            fence: fence.into(),
            state: State::Enter,
            event_time_ms,
            priority: Priority::Normal,
        }
    }

    fn key(&self) -> (&str, &str, u8, i64) {
        (&self.device, &self.fence, self.state as u8, self.event_time_ms.div_euclid(1_000))
    }
}

/// An accepted trigger. Its number is in its attributes, so that each record says which submit it is from.
struct Entry {
    draft: Draft,
    key: u32,
    device: u32,
    /// Records in the log.
    landed: u32,
    /// The router was told of one of them.
    is_acked: bool,
    failed: Option<FailedReason>,
    /// Dead letters of it.
    buried: u32,
    /// A watermark has passed it.
    was_settled: bool,
    /// The router died since it was accepted.
    is_old: bool,
}

/// What a consumer knows of a device.
#[derive(Clone, Copy, Default)]
struct Progress {
    id: Option<u64>,
    hlc: u64,
}

#[derive(Default)]
pub struct Model {
    entries: Vec<Entry>,
    keys: HashMap<(String, String, u8, i64), u32>,
    devices: HashMap<String, u32>,
    /// By key: the number of the trigger that was acknowledged last under it, and its stamp in milliseconds.
    key_acked: Vec<Option<(u64, u64)>>,
    progress: Vec<Progress>,
    /// Keys on disk.
    on_disk: HashSet<u32>,
    /// Keys in the topic of dead letters.
    key_buried: HashSet<u32>,
    /// By key: when it landed last.
    key_landed: HashMap<u32, Nanos>,
    /// Keys that came back refused.
    key_refused: HashSet<u32>,
    /// Keys in the log when the router died.
    key_found: HashSet<u32>,
    /// Lost by a damaged disk.
    damaged: HashSet<u64>,
    /// The clock.
    pub now: Nanos,
    /// Since the router began: accepted, acknowledged, failed.
    life: (u64, u64, u64),
    /// Numbers of those that may be in the log more than once, or although they failed.
    uncertain: HashSet<u64>,
    /// A key's second record is right only after this long; `None`: the wall clock steps, or keys are evicted.
    pub ttl_ms: Option<u64>,
}

/// The number in a record's attributes.
pub fn id_of(value: &[u8]) -> u64 {
    let frame = Frame::read(value).expect("the log holds frames");
    u64::from_le_bytes(frame.attributes.try_into().expect("attributes hold a number"))
}

impl Model {
    pub fn next_id(&self) -> u64 {
        self.entries.len() as u64
    }

    pub fn draft(&self, id: u64) -> &Draft {
        &self.entries[id as usize].draft
    }

    /// `submit` took it under the next number.
    pub fn accept(&mut self, draft: &Draft) -> u64 {
        let (device, fence, state, second) = draft.key();
        let keys = self.keys.len() as u32;
        let key = *self.keys.entry((device.to_owned(), fence.to_owned(), state, second)).or_insert(keys);
        if key == keys {
            self.key_acked.push(None);
        }
        let devices = self.devices.len() as u32;
        let device = match self.devices.get(&draft.device) {
            Some(device) => *device,
            None => {
                self.devices.insert(draft.device.clone(), devices);
                self.progress.push(Progress::default());
                devices
            }
        };
        self.entries.push(Entry {
            draft: draft.clone(),
            key,
            device,
            landed: 0,
            is_acked: false,
            failed: None,
            buried: 0,
            was_settled: false,
            is_old: false,
        });
        self.life.0 += 1;
        self.next_id() - 1
    }

    /// `submit` took it once more, after the router had died with it unsettled.
    pub fn accept_again(&mut self, id: u64) {
        let entry = &self.entries[id as usize];
        assert!(entry.is_old && entry.failed.is_none(), "submit {id} is not to be sent again");
        self.life.0 += 1;
    }

    /// The router died. What it had not settled will be sent again. What lies on disk comes back.
    pub fn die(&mut self) {
        self.life = (0, 0, 0);
        for entry in &mut self.entries {
            entry.is_old = true;
            if entry.landed > 0 {
                self.key_found.insert(entry.key);
            }
        }
    }

    /// Its record was settled on disk, and the test damaged it.
    pub fn damage(&mut self, id: u64) {
        self.damaged.insert(id);
    }

    /// A watermark passed it.
    pub fn pass(&mut self, id: u64) {
        self.entries[id as usize].was_settled = true;
    }

    /// Whatever was settled is in the log, among the dead letters, on disk, or was given back.
    pub fn check_kept(&self) {
        for (id, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.was_settled) {
            assert!(self.is_settled(id as u64), "submit {id} was settled and is lost: {:?}", entry.draft);
        }
    }

    /// It came back refused. On its way to the dead letters it is in no line any more; if the router dies then, its caller
    /// sends it again, behind what followed it. Once it is there, a start knows nothing of its key: a repeat of it that is
    /// sent again comes behind what followed it too.
    pub fn note_refused(&mut self, id: u64) {
        self.key_refused.insert(self.entries[id as usize].key);
    }

    /// It may land, or have landed, without the router being told.
    pub fn doubt(&mut self, id: u64) {
        self.uncertain.insert(id);
    }

    /// A record appeared in the log: it must be what was submitted, and in order.
    pub fn land(&mut self, record: &Record) {
        let frame = Frame::read(&record.value).expect("the log holds frames");
        let id = id_of(&record.value);
        let entry = &mut self.entries[id as usize];
        let draft = &entry.draft;
        assert_eq!(
            (frame.device_id, frame.fence_id, frame.state, frame.event_time_ms, frame.priority),
            (draft.device.as_str(), draft.fence.as_str(), draft.state, draft.event_time_ms, draft.priority),
            "record of submit {id}"
        );
        assert_eq!(&*record.key, draft.device.as_bytes(), "the record's key is the device");
        entry.landed += 1;
        let is_uncertain = self.uncertain.contains(&id);
        // Across a death of the router a repeat is collapsed for a time to live from the first one on.
        let landed_before = self.key_landed.insert(entry.key, self.now);
        let is_late = match (self.ttl_ms, landed_before) {
            (Some(ttl), Some(before)) => self.now.since(before) >= Nanos::from_millis(ttl),
            _ => true,
        };
        let is_excused = is_uncertain || (entry.is_old && is_late);
        assert!(
            entry.landed == 1 || is_excused,
            "submit {id} is in the log {} times; before this at {landed_before:?}, now {:?}",
            entry.landed,
            self.now
        );
        assert!(entry.failed.is_none() || is_uncertain || entry.is_old, "submit {id} failed and is in the log");
        // An exact repeat is dropped by a consumer, and says nothing about order. After a death that is also one whose like
        // landed before it, longer than a time to live ago.
        let fell_behind = entry.is_old
            && self.progress[entry.device as usize].id.is_some_and(|last| last > id)
            && (self.key_refused.contains(&entry.key) || landed_before.is_some());
        if entry.landed == 1 && !fell_behind {
            let progress = &mut self.progress[entry.device as usize];
            assert!(
                progress.id.is_none_or(|last| last < id),
                "device {} is reordered: submit {id} after {:?}; its key landed before at {landed_before:?}, now {:?}",
                draft.device,
                progress.id,
                self.now
            );
            assert!(frame.hlc > progress.hlc, "the stamp of submit {id} does not rise");
            *progress = Progress { id: Some(id), hlc: frame.hlc };
        }
        if record.is_acked {
            assert!(!entry.is_acked || entry.is_old, "submit {id} was acknowledged twice");
            entry.is_acked = true;
            self.life.1 += 1;
            let ms = frame.hlc >> 16;
            let acked = &mut self.key_acked[entry.key as usize];
            if let (Some(ttl), Some((first, first_ms))) = (self.ttl_ms, *acked) {
                assert!(
                    ms.saturating_sub(first_ms) >= ttl || is_excused,
                    "submit {id} repeats {first} after {} ms and is delivered too",
                    ms.saturating_sub(first_ms)
                );
            }
            *acked = Some((id, ms));
        }
    }

    /// `take_failed` gave it back.
    pub fn fail(&mut self, id: u64, reason: FailedReason) {
        let is_uncertain = self.uncertain.contains(&id);
        let entry = &mut self.entries[id as usize];
        assert_eq!(entry.failed, None, "submit {id} failed twice");
        assert!(entry.landed == 0 || is_uncertain, "submit {id} failed though it is in the log");
        entry.failed = Some(reason);
        self.life.2 += 1;
    }

    /// Whether the watermark may pass it: it was acknowledged, given back, or is a repeat of one that was acknowledged.
    pub fn is_settled(&self, id: u64) -> bool {
        let entry = &self.entries[id as usize];
        let key = entry.key;
        entry.is_acked
            || entry.failed.is_some()
            || self.damaged.contains(&id)
            || self.key_acked[key as usize].is_some()
            || self.on_disk.contains(&key)
            || self.key_buried.contains(&key)
            || self.key_found.contains(&key)
    }

    /// It is in the topic of dead letters. After a crash of the router it may come twice.
    pub fn bury(&mut self, id: u64) {
        let is_uncertain = self.uncertain.contains(&id);
        let entry = &mut self.entries[id as usize];
        assert!(
            (!entry.is_acked && (entry.landed == 0 || is_uncertain)) || entry.is_old,
            "submit {id} is in the log and a dead letter"
        );
        entry.buried += 1;
        assert!(entry.buried == 1 || entry.is_old, "submit {id} is a dead letter twice");
        self.key_buried.insert(entry.key);
    }

    /// How many became dead letters.
    pub fn buried(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.buried > 0).count() as u64
    }

    /// Nothing is known to be on disk.
    pub fn forget_disk(&mut self) {
        self.on_disk.clear();
    }

    /// It is durable on disk.
    pub fn see_on_disk(&mut self, id: u64) {
        self.on_disk.insert(self.entries[id as usize].key);
    }

    pub fn failed(&self, id: u64) -> Option<FailedReason> {
        self.entries[id as usize].failed
    }

    pub fn landed(&self, id: u64) -> u32 {
        self.entries[id as usize].landed
    }

    /// Accepted, acknowledged, failed, since the router began.
    pub fn sums(&self) -> (u64, u64, u64) {
        self.life
    }

    /// At the end, each trigger has exactly one fate.
    pub fn check_fates(&self) {
        for id in 0..self.next_id() {
            assert!(self.is_settled(id), "submit {id} is lost: {:?}", self.draft(id));
        }
    }
}

/// As `submit` takes it, with its number.
pub fn trigger<'a>(draft: &'a Draft, id: &'a [u8; 8]) -> Trigger<'a> {
    Trigger::new(&draft.device, &draft.fence, draft.state, draft.event_time_ms)
        .with_priority(draft.priority)
        .with_attributes(id)
}

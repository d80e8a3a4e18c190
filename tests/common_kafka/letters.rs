//! Dead letters made by hand, and `fencepost dlq` run on them as a person runs it. The cases are the same on the mock
//! cluster, which does not tell offsets by time, and on a real one, which does.

use super::{PATIENCE, Scratch, fresh_topic, now_ms};
use fencepost::hlc::Hlc;
use fencepost::partition::partition_of;
use fencepost::trigger::{Priority, State};
use fencepost::units::UnixMicros;
use fencepost::wire::{FRAME_BYTES_MAX, Frame, decode, encode};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Message, Offset, TopicPartitionList};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Partitions of the main topic, and of the dead letters: replay must not take one for the other.
pub const PARTITIONS: u32 = 6;
pub const LETTER_PARTITIONS: u32 = 3;

type Headed = Vec<(String, Option<Vec<u8>>)>;

/// A record, kept whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    pub partition: u32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Headed,
}

impl Whole {
    fn of(record: &BorrowedMessage<'_>) -> Whole {
        let headers = record.headers().map(|headers| {
            let each = headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)));
            each.collect()
        });
        Whole {
            partition: record.partition() as u32,
            offset: record.offset(),
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rev().find(|(found, _)| found == name)?;
        std::str::from_utf8(value.as_deref()?).ok()
    }

    fn printed_key(&self) -> String {
        decode(self.value.as_deref().expect("a value")).expect("a frame").frame.key().to_string()
    }
}

/// The frame of a trigger, as a router writes it.
pub fn frame(device: &str, fence: &str, event_time_ms: i64) -> Vec<u8> {
    let frame = Frame {
        device_id: device.as_bytes(),
        fence_id: fence.as_bytes(),
        state: State::Enter,
        event_time_ms,
        hlc: Hlc((event_time_ms as u64) << 16),
        accepted: UnixMicros(event_time_ms * 1_000),
        priority: Priority::Normal,
        attributes: b"\x00\xff attributes",
        router_id: b"r1",
        incarnation: 7,
        partition_seq: 1,
        salt: 0,
    };
    let mut place = [0; FRAME_BYTES_MAX];
    let len = encode(&frame, &mut place);
    place[..len].to_vec()
}

/// Two topics and a configuration, of one test alone.
pub struct Office {
    pub bootstrap: String,
    pub topic: String,
    pub letters: String,
    pub scratch: Scratch,
    producer: BaseProducer,
}

impl Office {
    /// `make` makes a topic of so many partitions.
    pub fn new(bootstrap: &str, make: &dyn Fn(&str, u32)) -> Office {
        let topic = fresh_topic("office");
        let letters = format!("{topic}.dlq");
        make(&topic, PARTITIONS);
        make(&letters, LETTER_PARTITIONS);
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("acks", "all")
            .set("linger.ms", "20")
            .set("log_level", "3")
            .create()
            .expect("a producer can be made");
        let office =
            Office { bootstrap: bootstrap.to_owned(), topic, letters, scratch: Scratch::new("office"), producer };
        office.configure("");
        // As the router that wrote the letters would have made it.
        std::fs::create_dir(office.scratch.0.join("state")).expect("the scratch directory can be written");
        office
    }

    /// Writes the configuration; `more` are lines of other tables.
    pub fn configure(&self, more: &str) {
        let text = format!(
            "[topic]\nname = \"{}\"\n[kafka]\nbootstrap = \"{}\"\n[state]\ndir = \"{}\"\n{more}",
            self.topic,
            self.bootstrap,
            self.scratch.0.join("state").display()
        );
        std::fs::write(self.config(), text).expect("the scratch directory can be written");
    }

    fn config(&self) -> PathBuf {
        self.scratch.0.join("fencepost.toml")
    }

    fn put(&self, topic: &str, partition: u32, key: Option<&[u8]>, value: Option<&[u8]>, headers: &Headed) {
        let mut owned = OwnedHeaders::new();
        for (name, value) in headers {
            owned = owned.insert(Header { key: name, value: value.as_deref() });
        }
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic).partition(partition as i32).headers(owned);
        (record.key, record.payload) = (key, value);
        let began = Instant::now();
        while let Err((error, refused)) = self.producer.send(record) {
            let is_full = matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            assert!(is_full && began.elapsed() < PATIENCE, "producing: {error}");
            self.producer.poll(Duration::from_millis(20));
            record = refused;
        }
    }

    fn flush(&self) {
        self.producer.flush(PATIENCE).expect("all was acknowledged");
    }

    /// What a router writes for a trigger that the topic refused.
    pub fn notes(&self, more: &[(&str, &str)]) -> Headed {
        let now = now_ms().to_string();
        let mut notes = BTreeMap::from([
            ("fencepost.reason", "refused"),
            ("fencepost.stage", "publish"),
            ("fencepost.topic", self.topic.as_str()),
            ("fencepost.attempts", "2"),
            ("fencepost.first_failure_ms", now.as_str()),
            ("fencepost.last_failure_ms", now.as_str()),
            ("fencepost.replays", "0"),
            ("fencepost.router", "r1"),
        ]);
        notes.extend(more.iter().copied());
        notes.into_iter().map(|(name, value)| (name.to_owned(), Some(value.as_bytes().to_vec()))).collect()
    }

    /// So many letters of as many devices, spread over the partitions.
    fn letters_of(&self, what: &str, count: usize) -> Vec<String> {
        let now = now_ms();
        let mut keys = Vec::new();
        for number in 0..count {
            let device = format!("{what}-{number}");
            let value = frame(&device, "zone", now);
            keys.push(decode(&value).expect("a frame").frame.key().to_string());
            let partition = number as u32 % LETTER_PARTITIONS;
            self.put(&self.letters, partition, Some(device.as_bytes()), Some(&value), &self.notes(&[]));
        }
        self.flush();
        keys.sort();
        keys
    }

    pub fn command(&self, words: &[&str]) -> Command {
        // An example that shares these helpers is built without the binary, and does not come here.
        let binary = option_env!("CARGO_BIN_EXE_fencepost");
        let mut command = Command::new(binary.expect("the tests are built with it"));
        command.arg("dlq").args(words).arg("-c").arg(self.config()).env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary was built")
    }

    /// Runs a command with `--json`: its exit code and its object.
    #[track_caller]
    fn json(&self, words: &[&str]) -> (i32, Value) {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let output = self.output(&words);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let object = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}"));
        if !err.is_empty() {
            println!("{words:?}: {err}");
        }
        (output.status.code().expect("it was not killed"), object)
    }

    /// Everything a topic holds.
    fn read(&self, topic: &str, partitions: u32) -> Vec<Whole> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", "fencepost-tests")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "50")
            .set("log_level", "3")
            .create()
            .expect("a consumer can be made");
        let ends: Vec<(i64, i64)> = (0..partitions)
            .map(|partition| consumer.fetch_watermarks(topic, partition as i32, PATIENCE).expect("the topic has ends"))
            .collect();
        let mut list = TopicPartitionList::new();
        for (partition, (first, _)) in ends.iter().enumerate() {
            list.add_partition_offset(topic, partition as i32, Offset::Offset(*first)).expect("a valid offset");
        }
        consumer.assign(&list).expect("the partitions can be assigned");
        let wanted: i64 = ends.iter().map(|(first, end)| end - first).sum();
        let (mut whole, began) = (Vec::new(), Instant::now());
        while (whole.len() as i64) < wanted {
            assert!(began.elapsed() < PATIENCE, "{topic}: {} of {wanted} records", whole.len());
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(record)) => whole.push(Whole::of(&record)),
                Some(Err(error)) => println!("reading {topic}: {error}"),
                None => {}
            }
        }
        whole.sort_by_key(|record| (record.partition, record.offset));
        whole
    }

    pub fn delivered(&self) -> Vec<Whole> {
        self.read(&self.topic, PARTITIONS)
    }

    fn delivered_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.delivered().iter().map(Whole::printed_key).collect();
        keys.sort();
        keys
    }

    /// Records of the main topic.
    fn arrived(&self) -> i64 {
        let end = |partition| self.producer.client().fetch_watermarks(&self.topic, partition, PATIENCE);
        (0..PARTITIONS as i32).map(|partition| end(partition).expect("the topic has ends").1).sum()
    }

    fn resume_file(&self) -> PathBuf {
        self.scratch.0.join("state/dlq-replay.toml")
    }
}

#[track_caller]
fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} is no count in {object:#}"))
}

/// L3: whatever a letter is, it comes out as it went in, and goes back as it came.
pub fn l3_key_value_and_headers_are_byte_exact(office: &Office) {
    let now = now_ms();
    let value = frame("bus:7/é", "zone", now);
    let own: Headed =
        vec![("trace".into(), Some(vec![0, 255, 10])), ("trace".into(), None), ("empty".into(), Some(vec![]))];
    let mut headers = own.clone();
    headers.extend(office.notes(&[("fencepost.detail", "Broker: refused"), ("fencepost.partition", "4")]));
    headers.push(("last".into(), Some(b"7".to_vec())));
    office.put(&office.letters, 1, Some("bus:7/é".as_bytes()), Some(&value), &headers);
    office.flush();

    let (code, shown) = office.json(&["show", "--partition", "1", "--offset", "0"]);
    assert_eq!(code, 0, "{shown:#}");
    assert_eq!((&shown["reason"], &shown["detail"]), (&"refused".into(), &"Broker: refused".into()));
    assert_eq!((&shown["topic_partition"], &shown["attempts"]), (&4.into(), &2.into()));
    assert_eq!(shown["headers"][0]["value"]["hex"], "00ff0a");
    assert!(shown["headers"][1]["value"].is_null() && shown["headers"][2]["value"]["hex"] == "", "{shown:#}");
    assert_eq!((&shown["frame"]["device_id"], &shown["frame"]["state"]), (&"bus:7/é".into(), &"enter".into()));
    let text = office.output(&["show", "--partition", "1", "--offset", "0"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("reason          refused\n") && text.contains("\"trace\" = 0x00ff0a\n"), "{text}");
    assert_eq!(office.output(&["show", "--partition", "1", "--offset", "1"]).status.code(), Some(1));
    assert_eq!(office.output(&["show", "--partition", "3", "--offset", "0"]).status.code(), Some(2));

    let (code, replayed) = office.json(&["replay"]);
    assert_eq!((code, number(&replayed, "delivered")), (0, 1), "{replayed:#}");
    let delivered = office.delivered();
    assert_eq!(delivered.len(), 1);
    let mut want = headers;
    let (_, replays) = want.iter_mut().find(|(name, _)| name == "fencepost.replays").expect("it was put in");
    *replays = Some(b"1".to_vec());
    assert_eq!(delivered[0].headers, want);
    assert_eq!(delivered[0].key.as_deref(), Some("bus:7/é".as_bytes()));
    assert_eq!(delivered[0].value.as_deref(), Some(value.as_slice()));
    assert_eq!(delivered[0].partition, partition_of("bus:7/é".as_bytes(), PARTITIONS).0);
}

/// L5: stopped half way, run again, run a third time; what the topic has is suppressed, with and without a resume file.
pub fn l5_a_replay_resumes_and_suppresses_what_the_topic_has(office: &Office) {
    let keys = office.letters_of("bus", 3_000);
    // These arrived after all: in doubt when the router gave them up.
    for number in 0..50 {
        let device = format!("bus-{}", number * 7);
        let letter = office.read_one_of(&device);
        let partition = partition_of(device.as_bytes(), PARTITIONS).0;
        office.put(&office.topic, partition, letter.key.as_deref(), letter.value.as_deref(), &Headed::new());
    }
    // And some of others, before and after.
    for number in 0..500 {
        let device = format!("other-{number}");
        let value = frame(&device, "zone", now_ms());
        office.put(&office.topic, partition_of(device.as_bytes(), PARTITIONS).0, None, Some(&value), &Headed::new());
    }
    office.flush();

    let (code, dry) = office.json(&["replay", "--dry-run"]);
    assert_eq!((code, number(&dry, "would_deliver"), number(&dry, "deduplicated")), (0, 2_950, 50), "{dry:#}");
    assert_eq!(office.delivered().len(), 550, "a dry run publishes nothing");
    assert!(!office.resume_file().exists());

    let (code, first) = office.json(&["replay", "--max", "1000"]);
    assert_eq!((code, number(&first, "delivered")), (0, 1_000), "{first:#}");
    assert_eq!(first["ended"], "max");
    // Several batches, each with a scan of its own.
    let (code, second) = office.json(&["replay", "--batch", "300"]);
    assert_eq!((code, &second["ended"]), (0, &"all".into()), "{second:#}");
    assert_eq!(number(&second, "delivered"), 1_950, "{second:#}");
    assert!(number(&second, "read") < 3_000, "it goes on where it was: {second:#}");
    let (code, third) = office.json(&["replay"]);
    assert_eq!((code, number(&third, "delivered"), number(&third, "read")), (0, 0, 0), "{third:#}");
    // Without its file it reads all again, and still publishes nothing.
    std::fs::remove_file(office.resume_file()).expect("it was written");
    let (code, anew) = office.json(&["replay"]);
    assert_eq!((code, number(&anew, "delivered"), number(&anew, "deduplicated")), (0, 0, 3_000), "{anew:#}");

    let mut delivered = office.delivered_keys();
    delivered.retain(|key| !key.starts_with("other-"));
    assert_eq!(delivered, keys, "each trigger is in the topic exactly once");
    let text = office.output(&["replay"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains(": 0 records read, 0 letters match\n") && text.contains("all letters were read\n"), "{text}");
}

impl Office {
    fn read_one_of(&self, device: &str) -> Whole {
        thread_local! {
            static READ: std::cell::RefCell<BTreeMap<(String, Vec<u8>), Whole>> = const { std::cell::RefCell::new(BTreeMap::new()) };
        }
        let key = (self.letters.clone(), device.as_bytes().to_vec());
        READ.with_borrow_mut(|known| {
            if !known.contains_key(&key) {
                for letter in self.read(&self.letters, LETTER_PARTITIONS) {
                    known.insert((self.letters.clone(), letter.key.clone().unwrap_or_default()), letter);
                }
            }
            known[&key].clone()
        })
    }
}

/// Filters, and what is left alone: no trigger, replayed too often, of another topic, no letter.
pub fn filters_and_the_loop_guard(office: &Office) {
    let now = now_ms();
    let put = |device: &str, fence: &str, notes: &[(&str, &str)]| {
        let value = frame(device, fence, now);
        office.put(&office.letters, 0, Some(device.as_bytes()), Some(&value), &office.notes(notes));
    };
    let hour_ago = (now - 3_600_000).to_string();
    let old = [("fencepost.first_failure_ms", hour_ago.as_str()), ("fencepost.last_failure_ms", hour_ago.as_str())];
    put("a", "north", &[("fencepost.reason", "shed")]);
    put("b", "north", &[old[0], old[1]]);
    put("c", "south", &[("fencepost.replays", "2")]);
    put("d", "south", &[("fencepost.replays", "3")]);
    put("e", "south", &[("fencepost.topic", "another")]);
    put("f", "south", &[("fencepost.replays", "many")]);
    let malformed = office.notes(&[("fencepost.reason", "malformed"), ("fencepost.stage", "source")]);
    office.put(&office.letters, 0, Some(b"g"), Some(b"{no trigger"), &malformed);
    office.put(&office.letters, 0, None, None, &malformed);
    office.put(&office.letters, 2, Some(b"h"), Some(b"somebody's own"), &Headed::new());
    office.flush();

    let (code, all) = office.json(&["ls"]);
    assert_eq!((code, number(&all, "records"), number(&all, "letters")), (0, 9, 8), "{all:#}");
    assert_eq!(number(&all, "not_letters"), 1);
    assert_eq!(all["by_reason"]["refused"]["letters"], 5);
    assert_eq!(
        (&all["by_reason"]["shed"]["letters"], &all["by_reason"]["malformed"]["letters"]),
        (&1.into(), &2.into())
    );
    assert_eq!(all["by_partition"]["0"]["letters"], 8);
    assert_eq!(all["oldest_ms"], now - 3_600_000);
    assert_eq!(all["rows"].as_array().map(Vec::len), Some(8));
    let count = |words: &[&str]| number(&office.json(&[&["ls"], words].concat()).1, "letters");
    assert_eq!(count(&["--reason", "shed"]), 1);
    assert_eq!(count(&["--reason", "shed", "--reason", "malformed"]), 3);
    assert_eq!(count(&["--device", "a", "--device", "g"]), 2);
    assert_eq!(count(&["--fence", "north"]), 2);
    assert_eq!(count(&["--fence", "north", "--reason", "shed"]), 1);
    assert_eq!(count(&["--since", "30m"]), 7);
    assert_eq!(count(&["--until", "30m"]), 1);
    let (_, few) = office.json(&["ls", "--max", "2"]);
    assert_eq!((number(&few, "letters"), few["rows"].as_array().map(Vec::len)), (8, Some(2)));
    let text = String::from_utf8(office.output(&["ls"]).stdout).expect("text");
    assert!(text.contains(": 8 letters of 9 records\n") && text.contains("a/north/enter/"), "{text}");

    let (code, north) = office.json(&["replay", "--fence", "north", "--reason", "shed"]);
    assert_eq!((code, number(&north, "delivered"), number(&north, "matching")), (0, 1, 1), "{north:#}");
    // Another filter has positions of its own: nothing is passed over for the first one's sake.
    let (code, rest) = office.json(&["replay"]);
    assert_eq!(code, 1, "some could not be replayed: {rest:#}");
    for (name, want) in [
        ("delivered", 2),
        ("deduplicated", 1),
        ("malformed", 3),
        ("over_replays_max", 1),
        ("other_topic", 1),
        ("not_letters", 1),
        ("failed", 0),
    ] {
        assert_eq!(number(&rest, name), want, "{name}: {rest:#}");
    }
    let mut delivered = office.delivered();
    delivered.sort_by(|a, b| a.key.cmp(&b.key));
    let replays: Vec<_> =
        delivered.iter().map(|record| (record.key.as_deref(), record.header("fencepost.replays"))).collect();
    assert_eq!(replays, [(Some(&b"a"[..]), Some("1")), (Some(b"b"), Some("1")), (Some(b"c"), Some("3"))]);
    let (code, guarded) = office.json(&["replay", "--device", "d", "--replays-max", "4"]);
    assert_eq!((code, number(&guarded, "delivered")), (0, 1), "{guarded:#}");
}

/// Devices keep the partition they have in a topic that has grown since it was pinned.
pub fn a_pinned_count_maps_the_devices(office: &Office) {
    let keys = office.letters_of("bus", 60);
    let state = office.scratch.0.join("state");
    std::fs::create_dir_all(&state).expect("the scratch directory can be written");
    let pinned = format!("router_id = \"r1\"\nincarnation = 1\ntopic = \"{}\"\npartitions = 4\n", office.topic);
    std::fs::write(state.join("router.toml"), pinned).expect("the scratch directory can be written");
    let (code, replayed) = office.json(&["replay"]);
    assert_eq!((code, number(&replayed, "delivered")), (0, keys.len() as u64), "{replayed:#}");
    for record in office.delivered() {
        let device = record.key.as_deref().expect("a key");
        assert_eq!(record.partition, partition_of(device, 4).0, "{}", record.printed_key());
    }
    let wrong = office.output(&["replay", "--batch", "0"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let text = std::fs::read_to_string(office.config()).expect("it was written");
    std::fs::write(office.config(), text.replace("[topic]\n", "[topic]\npartitions = 7\n")).expect("it can be written");
    let more = office.output(&["replay"]);
    assert_eq!(more.status.code(), Some(2), "{more:?}");
    assert!(String::from_utf8_lossy(&more.stderr).contains("has 6 partitions, and 7 are pinned"), "{more:?}");
}

/// Killed half way, at once: between an ack and its saving. The next run publishes the rest and nothing twice.
pub fn a_kill_half_way_loses_and_doubles_nothing(office: &Office) {
    const LETTERS: usize = 40_000;
    let keys = office.letters_of("tram", LETTERS);
    let mut child = office.command(&["replay"]).stdout(Stdio::null()).spawn().expect("the binary was built");
    let began = Instant::now();
    while office.arrived() == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is published");
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it ended without publishing");
    }
    // `kill` is SIGKILL here.
    child.kill().expect("it runs");
    let status = child.wait().expect("it can be waited for");
    let half = office.arrived();
    println!("killed ({status}) with {half} of {LETTERS} published");
    assert!(!status.success() && half > 0 && half < LETTERS as i64, "it was to be killed half way: {half}");
    let (code, rest) = office.json(&["replay"]);
    assert_eq!((code, &rest["ended"]), (0, &"all".into()), "{rest:#}");
    assert_eq!(number(&rest, "failed"), 0);
    assert!(office.delivered_keys() == keys, "each trigger is in the topic exactly once: {rest:#}");
    let (code, third) = office.json(&["replay"]);
    assert_eq!((code, number(&third, "delivered")), (0, 0), "{third:#}");
}

/// A signal ends a replay behind its acks, with its positions saved.
pub fn a_signal_ends_a_replay_behind_its_acks(office: &Office) {
    const LETTERS: usize = 40_000;
    let keys = office.letters_of("ferry", LETTERS);
    let mut child = office.command(&["replay", "--json"]).stdout(Stdio::piped()).spawn().expect("the binary was built");
    let began = Instant::now();
    while office.arrived() == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is published");
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it ended without publishing");
    }
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("there is kill");
    assert!(asked.success());
    let output = child.wait_with_output().expect("it can be waited for");
    let stopped: Value = serde_json::from_slice(&output.stdout).expect("one object");
    println!("stopped with {} of {LETTERS} published", stopped["delivered"]);
    assert_eq!((output.status.code(), &stopped["ended"]), (Some(0), &"stopped".into()), "{stopped:#}");
    assert!(office.resume_file().exists());
    assert_eq!(office.delivered().len() as u64, number(&stopped, "delivered"), "what was acknowledged was counted");
    let (code, rest) = office.json(&["replay"]);
    assert_eq!(code, 0, "{rest:#}");
    assert_eq!(number(&stopped, "delivered") + number(&rest, "delivered"), LETTERS as u64);
    assert!(office.delivered_keys() == keys, "each trigger is in the topic exactly once: {rest:#}");
}

/// A letter that the topic refuses fails alone, holds nobody up, and is tried again; `limit` sets the longest record that
/// the topic takes.
pub fn a_letter_that_is_refused_fails_alone(office: &Office, limit: &dyn Fn(usize)) {
    limit(2_000);
    let keys = office.letters_of("bus", 300);
    let value = frame("long", "zone", now_ms());
    // Bytes that no codec makes shorter: what counts is what the broker gets.
    let noise = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 56) as u8
    };
    let mut state = 7;
    let bytes: Vec<u8> = (0..3_000).map(|_| noise(&mut state)).collect();
    let long = [office.notes(&[]), vec![("own".to_owned(), Some(bytes))]].concat();
    office.put(&office.letters, 0, Some(b"long"), Some(&value), &long);
    office.flush();
    office.letters_of("tram", 300);
    let (code, first) = office.json(&["replay"]);
    assert_eq!((code, number(&first, "failed"), number(&first, "delivered")), (1, 1, 600), "{first:#}");
    // It holds the position, so the letters behind it are read again, and found in the topic.
    let (code, second) = office.json(&["replay"]);
    assert_eq!((code, number(&second, "failed"), number(&second, "delivered")), (1, 1, 0), "{second:#}");
    limit(1_000_000);
    let (code, third) = office.json(&["replay"]);
    assert_eq!((code, number(&third, "failed"), number(&third, "delivered")), (0, 0, 1), "{third:#}");
    let delivered = office.delivered_keys();
    assert_eq!(delivered.len(), 601);
    assert!(keys.iter().all(|key| delivered.binary_search(key).is_ok()));
}

/// What is missing is said, with the exit code of its kind.
pub fn what_is_missing_is_said(office: &Office) {
    let said = |words: &[&str], code: i32, text: &str| {
        let output = office.output(words);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {err}");
        assert!(err.contains(text), "{words:?}: {err}");
    };
    said(&["ls", "--since", "yesterday"], 2, "--since: \"yesterday\" is no time; write it like");
    office.configure("[dead_letter]\ntopic = \"off\"\n");
    said(&["ls"], 2, "dead_letter.topic = \"off\": there is no topic to read");
    office.configure("[dead_letter]\ntopic = \"no-such-topic\"\n");
    said(&["replay"], 3, "the dead-letter topic no-such-topic is not on ");
    office.configure("[dead_letter]\nbootstrap = \"127.0.0.1:1\"\n");
    said(&["ls"], 3, "asking for its partitions");
    let without_state =
        std::fs::read_to_string(office.config()).expect("it was written").replace("[state]\ndir", "[router]\nid");
    std::fs::write(
        office.config(),
        without_state.replace(&format!("{}", office.scratch.0.join("state").display()), "r"),
    )
    .expect("it can be written");
    said(&["replay"], 2, "Give --resume-file FILE, or set state.dir");
}

//! Dead letters on a topic of the client library's mock cluster: byte-exact, by way of the disk when the broker is away,
//! and each judged for itself when one spoils a batch.

use crate::common_kafka::mock::Answer;
use crate::common_kafka::{Mock, PATIENCE, Scratch, alone, config, fresh_topic};
use fencepost::clock::{Clock, SystemClock};
use fencepost::letter::notes::read_headers;
use fencepost::letter::{Desk, DeskLimits, Header, Headers, Letter, LetterSink, Notes, Posted, Reason, Settled};
use fencepost::sink::kafka::letters::letter_properties;
use fencepost::sink::kafka::{HandleSettings, KafkaLetters};
use fencepost::spill::{RealDisk, Spill, SpillLimits};
use fencepost::topology::affinity;
use fencepost::units::{Nanos, PartitionId, UnixMs};
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Headers as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

fn sink(mock: &Mock, topic: &str, more: &[(&str, &str)]) -> KafkaLetters {
    let settings = config(&mock.bootstrap(), "triggers").kafka_settings().unwrap();
    let mut properties = letter_properties(&settings);
    properties.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let cpus = affinity::allowed().unwrap();
    KafkaLetters::new(HandleSettings { topic: topic.to_owned(), properties, cpus }).unwrap()
}

/// A record with everything it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    partition: u32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    time_ms: i64,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What the topic must have of a letter.
fn wanted(letter: &Letter<'_>, partitions: u32) -> Kept {
    let own = letter.headers.iter();
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let mut headers: Vec<_> = own.map(|header| (text(header.name), header.value.map(<[u8]>::to_vec))).collect();
    letter.notes.each_header(|name, value| headers.push((name.to_owned(), Some(value.to_vec()))));
    Kept {
        partition: letter.partition.0 % partitions,
        key: letter.key.map(<[u8]>::to_vec),
        value: letter.value.map(<[u8]>::to_vec),
        time_ms: letter.record_time.map_or(0, |time| time.0),
        headers,
    }
}

/// The first `count` records of a topic.
fn read(mock: &Mock, topic: &str, partitions: u32, count: usize) -> Vec<Kept> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap())
        .set("group.id", "letters")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "50")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition as i32, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    let (began, mut kept) = (Instant::now(), Vec::new());
    while kept.len() < count {
        assert!(began.elapsed() < PATIENCE, "{topic}: {} of {count} records", kept.len());
        let Some(record) = consumer.poll(Duration::from_millis(100)) else { continue };
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                println!("reading {topic}: {error}");
                continue;
            }
        };
        let headers = record.headers().map_or_else(Vec::new, |headers| {
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
        });
        kept.push(Kept {
            partition: record.partition() as u32,
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
            time_ms: record.timestamp().to_millis().unwrap(),
            headers,
        });
    }
    kept
}

fn letter<'a>(partition: u32, value: &'a [u8], printed: &'a str) -> Letter<'a> {
    Letter {
        partition: PartitionId(partition),
        key: Some(b"bus-7"),
        value: Some(value),
        headers: Headers::List(&[]),
        record_time: Some(UnixMs(1_700_000_000_123)),
        notes: Notes {
            reason: Reason::Refused,
            stage: "publish",
            topic: "triggers",
            partition: Some(partition),
            attempts: 1,
            first_failure: UnixMs(1_700_000_001_000),
            last_failure: UnixMs(1_700_000_002_000),
            key: printed,
            router: "r1",
            ..Notes::default()
        },
    }
}

/// Collects until each of so many letters was reported; what was said of each.
fn collect(sink: &mut KafkaLetters, count: usize) -> BTreeMap<u64, String> {
    let (began, mut said) = (Instant::now(), BTreeMap::new());
    while said.len() < count {
        assert!(began.elapsed() < PATIENCE, "{} of {count} reported: {said:?}", said.len());
        sink.collect(&mut |token, posted| {
            let text = match posted {
                Posted::Acked => "acked".to_owned(),
                Posted::Refused { code, text } => format!("refused {code} {text}"),
                Posted::Retry { text } => format!("retry {text}"),
            };
            assert_eq!(said.insert(token, text), None, "{token} is reported twice");
        });
        std::thread::sleep(Duration::from_millis(2));
    }
    said
}

#[test]
fn l3_a_dead_letter_is_read_back_byte_for_byte_with_its_notes_as_text() {
    let _alone = alone();
    let topic = fresh_topic("dlq");
    let mock = Mock::with_topic(1, &topic, 4);
    let mut sink = sink(&mock, &topic, &[]);
    let own = [
        Header { name: b"trace", value: Some(b"\xff\x00\x01") },
        Header { name: b"trace", value: None },
        Header { name: b"empty", value: Some(b"") },
    ];
    let plain = letter(3, b"\x00\xff not text", "bus-7/zone/enter/1700000000");
    let letters = [
        Letter { headers: Headers::List(&own), ..plain },
        // More partitions than the topic of dead letters has.
        Letter { partition: PartitionId(6), key: None, ..plain },
        Letter { partition: PartitionId(0), key: Some(b""), value: Some(b""), ..plain },
        Letter { partition: PartitionId(1), value: None, notes: Notes { detail: "broken", ..plain.notes }, ..plain },
    ];
    for (token, letter) in letters.iter().enumerate() {
        sink.post(token as u64 | 1 << 63, letter).unwrap();
    }
    assert_eq!(sink.outstanding(), 4);
    let said = collect(&mut sink, 4);
    assert!(said.values().all(|text| text == "acked"), "{said:?}");
    assert_eq!(sink.outstanding(), 0);
    let kept = read(&mock, &topic, 4, 4);
    for letter in &letters {
        let wanted = wanted(letter, 4);
        assert!(kept.contains(&wanted), "{wanted:?} is not in {kept:?}");
    }
    // The other way round: what a reader makes of it.
    let kept = kept.iter().find(|kept| kept.partition == 3).unwrap();
    let headers = kept.headers.iter().map(|(name, value)| Header { name: name.as_bytes(), value: value.as_deref() });
    let read = read_headers(headers);
    assert_eq!((read.notes, read.own, read.is_letter), (plain.notes, own.to_vec(), true));
}

#[test]
fn a_letter_the_client_will_not_take_is_refused_and_a_missing_topic_is_waited_for() {
    let _alone = alone();
    let topic = fresh_topic("dlq");
    let mock = Mock::new(1);
    let mut sink = sink(&mock, &topic, &[("topic.metadata.propagation.max.ms", "300"), ("message.timeout.ms", "3000")]);
    let large = vec![7; 17 << 20];
    sink.post(0, &letter(0, &large, "")).unwrap();
    sink.post(1, &letter(0, b"x", "")).unwrap();
    let said = collect(&mut sink, 2);
    assert!(said[&0].starts_with("refused 10 ") && said[&0].contains("too large"), "{said:?}");
    assert!(said[&1].starts_with("retry "), "{said:?}");
    println!("{said:?}");
    mock.create_topic(&topic, 2);
    let began = Instant::now();
    for token in 2.. {
        sink.post(token, &letter(1, b"later", "")).unwrap();
        let mut said = BTreeMap::new();
        while said.is_empty() {
            sink.collect(&mut |token, posted| {
                said.insert(token, posted == Posted::Acked);
            });
        }
        if said[&token] {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(read(&mock, &topic, 2, 1)[0].value.as_deref(), Some(&b"later"[..]));
}

#[test]
fn a_handle_that_failed_for_good_is_replaced_and_hands_back_what_it_held() {
    let _alone = alone();
    let topic = fresh_topic("dlq");
    let mock = Mock::with_topic(1, &topic, 1);
    let mut sink = sink(&mock, &topic, &[("linger.ms", "20000")]);
    for token in 0..20 {
        sink.post(token, &letter(0, b"x", "")).unwrap();
    }
    sink.handle().raise_fatal_error_for_test();
    let said = collect(&mut sink, 20);
    assert!(said.values().all(|text| text.starts_with("retry ")), "{said:?}");
    let began = Instant::now();
    while sink.post(99, &letter(0, b"again", "")).is_err() {
        assert!(began.elapsed() < PATIENCE, "no new handle");
        sink.collect(&mut |token, _| panic!("{token} is reported twice"));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(sink.errors(), 1);
}

/// A desk with a real disk, turned until `is_done`.
struct Rig {
    desk: Desk<KafkaLetters, RealDisk>,
    clock: SystemClock,
    reports: BTreeMap<u64, bool>,
    _dir: Scratch,
}

impl Rig {
    fn new(sink: KafkaLetters, partitions: u32, grace_ms: u64) -> Rig {
        let dir = Scratch::new("letters");
        let limits = SpillLimits {
            limit_bytes: 64 << 20,
            reserve_bytes: 1 << 20,
            partition_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            marks: 1_024,
            ..SpillLimits::new(partitions)
        };
        let (spill, recovery) = Spill::open(RealDisk, &dir.0, limits).unwrap();
        let desk_limits =
            DeskLimits { grace: Nanos::from_millis(grace_ms), letter_bytes: 64 << 10, ..DeskLimits::new(partitions) };
        let desk = Desk::new(sink, Some((spill, &recovery)), desk_limits);
        Rig { desk, clock: SystemClock::new(), reports: BTreeMap::new(), _dir: dir }
    }

    fn take(&mut self, id: u64, partition: u32) {
        let value = id.to_le_bytes();
        self.desk.take(id, &letter(partition, &value, "bus-7/z/enter/1"), self.clock.mono()).unwrap();
    }

    fn turn_until(&mut self, what: &str, is_done: impl Fn(&Rig) -> bool) {
        let began = Instant::now();
        while !is_done(self) {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}, {}", self.desk.counts(), self.desk.trouble());
            let reports = &mut self.reports;
            self.desk.turn(self.clock.mono(), &mut |token, settled| match settled {
                Settled::Durable { on_disk } => assert_eq!(reports.insert(token, on_disk), None, "{token} twice"),
                Settled::Refused { text } => panic!("{token}: {text}"),
            });
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn ids(kept: &[Kept]) -> Vec<u64> {
    kept.iter().map(|kept| u64::from_le_bytes(kept.value.as_ref().unwrap()[..].try_into().unwrap())).collect()
}

#[test]
fn a_broker_that_goes_down_and_comes_back_loses_no_letter() {
    let _alone = alone();
    let topic = fresh_topic("dlq");
    let mock = Mock::with_topic(1, &topic, 3);
    let mut rig = Rig::new(sink(&mock, &topic, &[]), 3, 3_000);
    (0..100).for_each(|id| rig.take(id, (id % 3) as u32));
    rig.turn_until("100 to the topic", |rig| rig.reports.len() == 100);
    assert!(rig.reports.values().all(|on_disk| !on_disk));
    mock.set_down(1);
    (100..300).for_each(|id| rig.take(id, (id % 3) as u32));
    rig.turn_until("200 to the disk", |rig| rig.reports.len() == 300);
    assert!(rig.reports.range(100..).all(|(_, on_disk)| *on_disk), "{:?}", rig.reports);
    assert_eq!(rig.desk.counts().on_disk, 200);
    (300..400).for_each(|id| rig.take(id, (id % 3) as u32));
    rig.turn_until("100 more to the disk", |rig| rig.reports.len() == 400);
    mock.set_up(1);
    rig.turn_until("the disk to be drained", |rig| rig.desk.is_idle());
    let counts = rig.desk.counts();
    println!("{counts:?}");
    assert_eq!((counts.to_disk, counts.drained, counts.refused, counts.lost), (300, 300, 0, 0), "{counts:?}");
    rig.take(400, 0);
    rig.turn_until("the last to the topic", |rig| rig.reports.len() == 401);
    assert!(!rig.reports[&400]);
    let kept = read(&mock, &topic, 3, 401);
    let all = ids(&kept);
    assert_eq!(all.iter().copied().collect::<BTreeSet<u64>>(), (0..401).collect(), "each is there");
    // What the client held when the broker went, and what lay on disk behind it, came in order.
    for partition in 0..3 {
        let line: Vec<u64> = ids(&kept)
            .into_iter()
            .zip(&kept)
            .filter(|(_, kept)| kept.partition == partition)
            .map(|(id, _)| id)
            .collect();
        assert!(line.iter().filter(|id| **id >= 300 && **id < 400).is_sorted(), "{line:?}");
    }
}

#[test]
fn a_refused_batch_is_sent_again_one_by_one() {
    let _alone = alone();
    let topic = fresh_topic("dlq");
    let mock = Mock::with_topic(1, &topic, 1);
    let mut rig = Rig::new(sink(&mock, &topic, &[("linger.ms", "200")]), 1, 60_000);
    rig.take(0, 0);
    rig.turn_until("the connection", |rig| rig.reports.len() == 1);
    // The batch; then the third of those sent alone.
    let good = Answer::RD_KAFKA_RESP_ERR_NO_ERROR;
    let bad = Answer::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    mock.answer_produce(&[bad, good, good, bad, good]);
    (1..11).for_each(|id| rig.take(id, 0));
    rig.turn_until("each to have its place", |rig| rig.reports.len() == 11 && rig.desk.is_idle());
    let counts = rig.desk.counts();
    println!("{counts:?}");
    assert_eq!((counts.topic_refused, counts.refused), (1, 0), "{counts:?}");
    // The one that was refused alone; from the disk, the topic took it.
    assert_eq!((counts.to_disk, counts.drained), (1, 1), "{counts:?}");
    let kept = read(&mock, &topic, 1, 11);
    assert_eq!(ids(&kept).into_iter().collect::<BTreeSet<_>>(), (0..11).collect());
}

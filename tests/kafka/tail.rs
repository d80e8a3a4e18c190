//! The tail of a topic on a real broker: transactions, topics made anew, what retention and compaction leave, permissions.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::raw::{BEGAN_MS, Raw, SOON, frame, known, offsets_of, plan, read_all, unknown};
use crate::common_kafka::{PATIENCE, alone, config, fresh_topic};
use crate::{in_tree, kafka, variable};
use fencepost::config::Config;
use fencepost::sink::kafka::rights::Writing;
use fencepost::sink::kafka::tail::{Began, TailError, TailPart, may_read};
use fencepost::sink::kafka::topic::TopicDesk;
use fencepost::topology::affinity;
use fencepost::units::PartitionId;
use rdkafka::producer::Producer;
use std::process::Command;
use std::time::{Duration, Instant};

/// A topic of this test alone, and the configuration of a router for it.
fn topic(bootstrap: &str, what: &str, partitions: u32, settings: &[(&str, &str)]) -> (String, Config) {
    let topic = fresh_topic(what);
    Admin::new(bootstrap).create_topic(&topic, partitions, settings);
    let config = config(bootstrap, &topic);
    (topic, config)
}

#[test]
fn control_records_and_aborted_transactions_are_passed_over_and_an_open_one_is_told_of() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let (topic, config) = topic(&bootstrap, "transactions", 1, &[]);
    let raw = Raw::with(&bootstrap, &[("transactional.id", &topic)]);
    raw.0.init_transactions(PATIENCE).unwrap();
    raw.0.begin_transaction().unwrap();
    raw.send_frames(&topic, 0, 0..500);
    raw.0.commit_transaction(PATIENCE).unwrap();
    raw.0.begin_transaction().unwrap();
    raw.send_frames(&topic, 0, 500..800);
    raw.flush();
    raw.0.abort_transaction(PATIENCE).unwrap();
    // The coordinator answers before the partition's replicas have the mark: the read below would end in front of it.
    let patience = Instant::now() + PATIENCE;
    while raw.0.client().fetch_watermarks(&topic, 0, PATIENCE).unwrap().1 < 802 {
        assert!(Instant::now() < patience, "the mark of the aborted transaction does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    // 500 records, a mark, 300 that were aborted, a mark: nothing of ours stands at the end.
    let mut from_200 = plan(&config, vec![known(0, 200)]);
    let began = Instant::now();
    let (read, all) = read_all(&from_200).unwrap();
    assert_eq!(offsets_of(&all, 0), (200..500).collect::<Vec<i64>>());
    assert_eq!((read.partitions[0].end, read.partitions[0].upto), (802, 802));
    assert_eq!(read.warnings, [""; 0]);
    assert!(began.elapsed() < SOON);
    let (read, all) = read_all(&plan(&config, vec![unknown(0)])).unwrap();
    assert_eq!((read.partitions[0].began, all.len()), (Began::Low, 500));

    // What stands behind a transaction that is open is not known to be there.
    raw.0.begin_transaction().unwrap();
    raw.send_frames(&topic, 0, 800..900);
    raw.flush();
    let plain = Raw::new(&bootstrap);
    plain.send_frames(&topic, 0, 900..1_000);
    plain.flush();
    from_200.deadline = Instant::now() + SOON;
    let (read, all) = read_all(&from_200).unwrap();
    assert_eq!(all.len(), 300);
    assert!(read.warnings[0].contains("[0]") && read.warnings[0].contains("transaction"), "{:?}", read.warnings);
    // An offset of ours behind it is no sign of another topic.
    let ours = TailPart { partition: PartitionId(0), from: Some(850), acked: Some(890) };
    let (read, all) = read_all(&plan(&config, vec![ours])).unwrap();
    assert_eq!((all.len(), read.warnings.len()), (0, 1), "{:?}", read.warnings);
    may_read(&from_200.properties, &topic, PartitionId(0), &from_200.cpus, SOON).unwrap();
    raw.0.abort_transaction(PATIENCE).unwrap();
}

#[test]
fn a_topic_that_was_deleted_and_made_anew_is_searched() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let (topic, config) = topic(&bootstrap, "anew", 2, &[]);
    let raw = Raw::new(&bootstrap);
    raw.send_frames(&topic, 0, 0..2_000);
    raw.send_frames(&topic, 1, 0..2_000);
    raw.flush();
    let known_then: Vec<TailPart> = [0, 1]
        .map(|partition| TailPart { partition: PartitionId(partition), from: Some(1_500), acked: Some(1_999) })
        .to_vec();
    let (read, all) = read_all(&plan(&config, known_then.clone())).unwrap();
    assert_eq!((all.len(), read.warnings.len()), (1_000, 0));

    let admin = Admin::new(&bootstrap);
    admin.delete_topic(&topic);
    // The deletion of the files may take a moment.
    std::thread::sleep(Duration::from_secs(2));
    admin.create_topic(&topic, 2, &[]);
    let raw = Raw::new(&bootstrap);
    raw.send_frames(&topic, 0, 0..1_700);
    raw.flush();
    let (read, all) = read_all(&plan(&config, known_then)).unwrap();
    assert_eq!(offsets_of(&all, 0), (0..1_700).collect::<Vec<i64>>());
    assert_eq!(offsets_of(&all, 1), [0; 0]);
    assert!(read.warnings[0].contains("[0, 1]") && read.warnings[0].contains("made anew"), "{:?}", read.warnings);
}

#[test]
fn what_retention_deleted_is_not_asked_for() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let (topic, config) = topic(&bootstrap, "deleted", 2, &[]);
    let raw = Raw::new(&bootstrap);
    raw.send_frames(&topic, 0, 0..2_000);
    raw.send_frames(&topic, 1, 0..100);
    raw.flush();
    let admin = Admin::new(&bootstrap);
    admin.delete_records(&topic, 0, 1_200);
    admin.delete_records(&topic, 1, 100);
    let acked = |partition, acked| TailPart { partition: PartitionId(partition), from: Some(10), acked: Some(acked) };
    let (read, all) = read_all(&plan(&config, vec![acked(0, 1_999), acked(1, 99)])).unwrap();
    assert_eq!(offsets_of(&all, 0), (1_200..2_000).collect::<Vec<i64>>());
    assert_eq!(read.partitions[0].began, Began::Low);
    assert_eq!((read.partitions[1].from, read.partitions[1].records), (100, 0));
    assert_eq!(read.warnings, [""; 0]);
}

#[test]
fn what_compaction_took_is_passed_over_at_the_end_too() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    // Segments of a second, cleaned at once, and tombstones that do not stay.
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "500"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "1000"),
        ("delete.retention.ms", "0"),
    ];
    let (topic, config) = topic(&bootstrap, "compacted", 1, &settings);
    let raw = Raw::new(&bootstrap);
    // The same key again and again: one record of them is left.
    raw.send_frames(&topic, 0, 0..3_000);
    raw.flush();
    let began = Instant::now();
    let (read, all) = loop {
        std::thread::sleep(Duration::from_secs(2));
        // A new segment is begun when something comes; the one before it can be cleaned then.
        raw.send(&topic, 0, format!("other-{}", began.elapsed().as_secs()).as_bytes(), &frame(0, 1, BEGAN_MS));
        raw.flush();
        let (read, all) = read_all(&plan(&config, vec![known(0, 100)])).unwrap();
        if all.len() < 1_000 {
            break (read, all);
        }
        assert!(began.elapsed() < PATIENCE, "the broker did not compact: {} records", all.len());
    };
    assert!(all.iter().all(|got| got.offset >= 100));
    assert_eq!(read.partitions[0].upto, read.partitions[0].end);
    assert_eq!(read.warnings, [""; 0]);
    let (read, searched) = read_all(&plan(&config, vec![unknown(0)])).unwrap();
    assert_eq!((read.partitions[0].from, searched), (0, all));
}

/// The user without rights, and what an ACL gives it.
struct Restricted {
    bootstrap: String,
    config: Config,
    topic: String,
    /// Further tables of its configuration.
    more: String,
}

impl Restricted {
    fn new(what: &str) -> Option<Restricted> {
        let (bootstrap, restricted) = (kafka()?, variable("KAFKA_ACL_BOOTSTRAP")?);
        let (topic, _) = topic(&bootstrap, what, 2, &[]);
        let mut config = config(&restricted, &topic);
        let properties = &mut config.kafka.properties;
        properties.set("security.protocol", "sasl_plaintext");
        properties.set("sasl.mechanism", "PLAIN");
        properties.set("sasl.username", "${KAFKA_ACL_USER}");
        properties.set("sasl.password", "${KAFKA_ACL_PASSWORD}");
        Some(Restricted { bootstrap, config, topic, more: String::new() })
    }

    fn allow(&self, operation: &str) {
        let user = format!("User:{}", variable("KAFKA_ACL_USER").expect("it is set with the address"));
        let answer = Command::new(in_tree("script/kafka"))
            .args(["tool", "acls", "--bootstrap-server", &self.bootstrap, "--add", "--allow-principal", &user])
            .args(["--operation", operation, "--topic", &self.topic])
            .output()
            .expect("the tool runs");
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    }

    fn read(&self) -> Result<usize, TailError> {
        read_all(&plan(&self.config, vec![known(0, 0), known(1, 0)])).map(|(_, all)| all.len())
    }

    fn may_read(&self) -> Result<(), TailError> {
        let plan = plan(&self.config, Vec::new());
        may_read(&plan.properties, &self.topic, PartitionId(1), &affinity::allowed().unwrap(), SOON)
    }

    fn may_write(&self) -> Writing {
        TopicDesk::new(&plan(&self.config, Vec::new()).properties, &self.topic).may_write(SOON)
    }

    /// An ACL reaches the broker a moment after it was made.
    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn forbidden(answer: Result<impl std::fmt::Debug, TailError>, operation: &str) {
    let error = answer.expect_err("it is not allowed");
    let text = error.to_string();
    println!("{text}");
    assert!(matches!(error, TailError::Unauthorized { .. }), "{text}");
    for want in [operation, "TOPIC_AUTHORIZATION_FAILED", "needs READ", "--operation Read"] {
        assert!(text.contains(want), "{want} is not in {text}");
    }
}

#[test]
fn without_read_it_is_refused_by_name_with_the_fix_and_with_it_no_group_is_needed() {
    let _alone = alone();
    let Some(restricted) = Restricted::new("acl") else { return };
    let raw = Raw::new(&restricted.bootstrap);
    raw.send_frames(&restricted.topic, 0, 0..100);
    raw.flush();
    forbidden(restricted.read(), "asking where it begins");
    forbidden(restricted.may_read(), "asking where it begins");
    // A producer's right lets it ask for the ends, and read nothing: an empty partition says so too.
    restricted.allow("Write");
    restricted.until("WRITE", || match restricted.may_read() {
        Err(TailError::Unauthorized { operation, .. }) => operation == "reading",
        other => panic!("{other:?}"),
    });
    forbidden(restricted.may_read(), "reading");
    forbidden(restricted.read(), "reading the tail");
    #[cfg(feature = "cli")]
    check(&restricted, 1, &["FAIL  reading", "needs READ"]);
    restricted.allow("Read");
    restricted.until("READ", || restricted.may_read().is_ok());
    assert_eq!(restricted.read(), Ok(100));
    #[cfg(feature = "cli")]
    check(&restricted, 0, &["ok    reading", "may be read", "ok    writing", "may be written"]);
}

/// An account that may read and not write passed, and failed with its first trigger.
#[cfg(feature = "cli")]
#[test]
fn check_names_an_account_that_may_not_write_to_the_topic_or_to_that_of_the_dead_letters() {
    let _alone = alone();
    let Some(mut restricted) = Restricted::new("acl-write") else { return };
    let user = format!("User:{}", variable("KAFKA_ACL_USER").expect("it is set with the address"));
    let denied = |topic: &str| {
        format!(
            "topic {topic}: {user} may not write to it, since WRITE is not granted: {{}}; allow it: kafka-acls --add \
             --allow-principal {user} --operation Write --topic {topic}"
        )
    };
    let no_trigger = denied(&restricted.topic).replace("{}", "no trigger is delivered until then");
    check(&restricted, 1, &["FAIL  topic", "FAIL  writing", &no_trigger]);
    restricted.allow("Read");
    restricted.until("READ", || restricted.may_read().is_ok());
    check(&restricted, 1, &["ok    reading", "FAIL  writing", &no_trigger]);
    restricted.allow("Write");
    restricted.until("WRITE", || restricted.may_write() == Writing::Granted);
    check(&restricted, 0, &["ok    writing", "may be written"]);

    // The topic of the dead letters is there by now, and of the same cluster.
    let letters = format!("{}.dlq", restricted.topic);
    Admin::new(&restricted.bootstrap).create_topic(&letters, 1, &[]);
    restricted.more = format!("[dead_letter]\ntopic = \"{letters}\"\n");
    let no_letter = denied(&letters).replace("{}", "what cannot be delivered is handed back");
    check(&restricted, 1, &["ok    writing", "FAIL  dead letters", &no_letter]);
    let topic = std::mem::replace(&mut restricted.topic, letters);
    restricted.allow("Describe");
    restricted.until("DESCRIBE", || restricted.may_write() == Writing::Denied);
    check_of(&restricted, &topic, 1, &["ok    writing", "has 1 partitions", &no_letter]);
    restricted.allow("Write");
    restricted.until("WRITE", || restricted.may_write() == Writing::Granted);
    check_of(&restricted, &topic, 0, &["ok    dead letters", &format!("topic {} may be written", restricted.topic)]);
}

/// Without an authorizer, or for a super user, everything is allowed, and the broker says so.
#[test]
fn a_broker_that_forbids_nothing_says_that_write_is_granted() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let (topic, config) = topic(&bootstrap, "granted", 1, &[]);
    let desk = TopicDesk::new(&plan(&config, Vec::new()).properties, &topic);
    assert_eq!(desk.may_write(SOON), Writing::Granted);
    // Nobody wrote a rule for a topic that is not there.
    let missing = TopicDesk::new(&plan(&config, Vec::new()).properties, &fresh_topic("missing"));
    assert!(matches!(missing.may_write(SOON), Writing::NotSaid(why) if why.contains("UNKNOWN_TOPIC")));
}

/// `fencepost check` as that user.
#[cfg(feature = "cli")]
fn check(restricted: &Restricted, code: i32, wanted: &[&str]) {
    check_of(restricted, &restricted.topic, code, wanted);
}

/// The same for another topic than the one that rights are given to.
#[cfg(feature = "cli")]
fn check_of(restricted: &Restricted, topic: &str, code: i32, wanted: &[&str]) {
    let scratch = crate::common_kafka::Scratch::new("check");
    let file = scratch.0.join("fencepost.toml");
    let text = format!(
        "[topic]\nname = \"{}\"\n[kafka]\nbootstrap = \"{}\"\n[kafka.properties]\n\"security.protocol\" = \
         \"sasl_plaintext\"\n\"sasl.mechanism\" = \"PLAIN\"\n\"sasl.username\" = \"${{KAFKA_ACL_USER}}\"\n\
         \"sasl.password\" = \"${{KAFKA_ACL_PASSWORD}}\"\n{}",
        topic,
        restricted.config.kafka.bootstrap.as_ref().expect("it was set"),
        restricted.more,
    );
    std::fs::write(&file, text).expect("a configuration can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_fencepost"))
        .args(["check", "-c"])
        .arg(&file)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for want in wanted {
        assert!(said.contains(want), "{want} is not in {said}");
    }
}

//! What a start refuses, remembers and places.

use crate::common_kafka::load::turns;
use crate::common_kafka::{Load, Mock, Scratch, alone, config, finish, fresh_topic};
use fencepost::config::Pin;
use fencepost::engine::{Router, StartError};
use fencepost::ingress::Refused;
use fencepost::topology::affinity;
use fencepost::trigger::{Reason, State, Trigger};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The error of a start that must fail.
fn refused(config: &fencepost::config::Config) -> StartError {
    match Router::start(config) {
        Err(error) => error,
        Ok((router, _)) => {
            let report = router.shutdown(Duration::ZERO);
            panic!("it started: {}", report.counts);
        }
    }
}

#[test]
fn o9_a_topic_with_fewer_partitions_than_pinned_is_refused_by_both_numbers() {
    let _alone = alone();
    let topic = fresh_topic("o9");
    let mock = Mock::with_topic(1, &topic, 4);
    let mut config = config(&mock.bootstrap(), &topic);
    config.topic.partitions = Some(12);
    let error = refused(&config);
    assert!(matches!(error, StartError::FewerPartitions { got: 4, pinned: 12, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("4 partitions") && text.contains("12") && text.contains("topic.partitions"), "{text}");
}

#[test]
fn o11_after_the_topic_grew_the_pin_of_the_state_directory_rules() {
    let _alone = alone();
    let topic = fresh_topic("o11");
    let state = Scratch::new("o11");
    let small = Mock::with_topic(1, &topic, 6);
    let mut config = config(&small.bootstrap(), &topic);
    config.state.dir = Some(state.0.clone());
    let (router, _) = Router::start(&config).unwrap();
    assert_eq!(router.partitions(), 6);
    // The mock does not tell a topic's settings, and has no topic of dead letters: that is warned of, and nothing else.
    let is_known = |warning: &String| warning.contains("max.message.bytes") || warning.contains("dead letters");
    assert!(router.warnings().iter().all(is_known), "{:?}", router.warnings());
    let load = Load::new(router.ingress().unwrap());
    finish(router, &mut [load], &small.bootstrap(), &topic, 6).assert_clean();

    // The mock cannot grow a topic: another cluster has it as it is afterwards.
    let grown = Mock::with_topic(1, &topic, 12);
    config.kafka.bootstrap = Some(grown.bootstrap());
    let (router, _) = Router::start(&config).unwrap();
    assert_eq!(router.partitions(), 6);
    let warnings = router.warnings().join("\n");
    assert!(warnings.contains("partition_count_drift"), "{warnings}");
    assert!(warnings.contains("12 partitions") && warnings.contains("6 are pinned"), "{warnings}");
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&turns(200, 2_000));
    let finished = finish(router, &mut [load], &grown.bootstrap(), &topic, 6);
    finished.assert_clean();
    assert_eq!(finished.counts.delivered, 2_000, "all of them in the first six partitions");

    config.topic.partitions = Some(12);
    let error = refused(&config);
    assert!(matches!(error, StartError::OtherPin { configured: 12, remembered: 6 }), "{error}");

    config.topic.partitions = None;
    let shrunk = Mock::with_topic(1, &topic, 4);
    config.kafka.bootstrap = Some(shrunk.bootstrap());
    let text = refused(&config).to_string();
    assert!(text.contains("4 partitions") && text.contains("6 are pinned by the state directory"), "{text}");
}

#[test]
fn m5_a_client_id_too_long_and_a_topic_with_a_nul_are_config_errors() {
    let mut long_id = config("localhost:9", "t");
    long_id.kafka.properties.set("client.id", "x".repeat(250));
    let error = refused(&long_id);
    assert!(error.is_about_config(), "{error}");
    let text = error.to_string();
    assert!(text.contains("client.id") && text.contains("250") && text.contains("249"), "{text}");

    let with_nul = config("localhost:9", "geo\0fence");
    let error = refused(&with_nul);
    assert!(error.is_about_config(), "{error}");
    assert!(error.to_string().contains("topic.name"), "{error}");
}

#[test]
fn a_state_directory_of_another_topic_is_a_config_error_and_stays_as_it_is() {
    let _alone = alone();
    let (topic, other) = (fresh_topic("mine"), fresh_topic("other"));
    let state = Scratch::new("other-topic");
    let mock = Mock::with_topic(1, &topic, 2);
    mock.create_topic(&other, 2);
    let mut config = config(&mock.bootstrap(), &topic);
    config.state.dir = Some(state.0.clone());
    let (router, _) = Router::start(&config).unwrap();
    assert!(router.shutdown(Duration::from_secs(30)).counts.add_up());
    config.topic.name = other.clone();
    let error = refused(&config);
    assert!(error.is_about_config(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("belongs to topic {topic}, not {other}")), "{text}");
    config.topic.name = topic;
    let (router, _) = Router::start(&config).expect("its own topic starts on it");
    assert!(router.shutdown(Duration::from_secs(30)).counts.add_up());
}

#[test]
fn a_cluster_that_does_not_answer_is_named() {
    let _alone = alone();
    // Nobody listens there.
    let mut config = config("127.0.0.1:9", "x");
    config.start.timeout = Duration::from_secs(1);
    let text = refused(&config).to_string();
    assert!(text.contains("127.0.0.1:9") && text.contains("kafka.bootstrap"), "{text}");
    assert!(text.contains("refused"), "the client's own words: {text}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn m4_tls_and_scram_in_a_build_without_them_are_named() {
    for (protocol, mechanism) in [("ssl", "SCRAM-SHA-512"), ("sasl_plaintext", "SCRAM-SHA-512")] {
        let mut config = config("127.0.0.1:9", "x");
        config.start.timeout = Duration::from_secs(1);
        config.kafka.properties.set("security.protocol", protocol);
        config.kafka.properties.set("sasl.mechanism", mechanism);
        config.kafka.properties.set("sasl.username", "user");
        config.kafka.properties.set("sasl.password", "hidden-word");
        let text = refused(&config).to_string();
        println!("{text}");
        let names_it = text.contains("OpenSSL") || text.contains("SCRAM") || text.contains("ssl");
        assert!(names_it && !text.contains("hidden-word"), "{text}");
    }
}

#[test]
fn l2_two_megabytes_of_attributes_are_refused_at_submit_by_both_numbers() {
    let _alone = alone();
    let topic = fresh_topic("l2");
    let mock = Mock::with_topic(1, &topic, 1);
    let (router, _) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let attributes = vec![7; 2 << 20];
    let all = turns(1, 2);
    let trigger = Trigger::new("d", "f", State::Enter, all[1].event_time_ms).with_attributes(&attributes);
    let refused = load.ingress.submit(&trigger).unwrap_err();
    assert_eq!(refused, Refused::Rejected(Reason::AttributesTooLong { len: 2 << 20 }));
    let text = refused.to_string();
    assert!(text.contains("2097152") && text.contains("1024"), "{text}");
    load.submit_all(&all);
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 1);
    finished.assert_clean();
    assert_eq!((finished.counts.delivered, finished.counts.rejected), (2, 1));
}

/// The name and the allowed CPUs of each thread of this process, by its number.
fn threads() -> HashMap<String, (String, String)> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name));
        // A thread may end while it is looked at.
        if let (Ok(name), Ok(status)) = (read("comm"), read("status")) {
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
            let number = entry.file_name().to_string_lossy().into_owned();
            all.insert(number, (name.trim().to_owned(), cpus.trim().to_owned()));
        }
    }
    all
}

/// Whether a list such as `0-3,8` names the CPU.
fn names(list: &str, cpu: usize) -> bool {
    list.split(',').filter(|part| !part.is_empty()).any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        (first.parse().unwrap()..=last.parse().unwrap()).contains(&cpu)
    })
}

#[test]
fn h4_every_thread_of_the_client_leaves_out_the_shards_cpu() {
    let _alone = alone();
    let allowed = affinity::allowed().unwrap();
    let Some(&pinned) = allowed.ids().get(1) else {
        println!("skipped: this process may use one CPU only, a shard cannot have one of its own");
        return;
    };
    let topic = fresh_topic("h4");
    let mock = Mock::with_topic(3, &topic, 6);
    let mut config = config(&mock.bootstrap(), &topic);
    config.engine.pin = Pin::Cpus(vec![pinned as u32]);
    let before = threads();
    let (router, _) = Router::start(&config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&turns(100, 1_000));
    load.settle(&router);
    // Clients that start made to ask about the topic may still be ending.
    let began = Instant::now();
    let (of_client, of_shard) = loop {
        let new: Vec<(String, String)> =
            threads().into_iter().filter(|(number, _)| !before.contains_key(number)).map(|(_, seen)| seen).collect();
        let mut of_client: Vec<_> = new.iter().filter(|(name, _)| name.starts_with("rdk:")).cloned().collect();
        of_client.sort();
        let of_shard: Vec<_> = new.iter().filter(|(name, _)| name == "fencepost-0").cloned().collect();
        if of_client.iter().all(|(_, cpus)| !names(cpus, pinned)) || began.elapsed() > Duration::from_secs(30) {
            break (of_client, of_shard);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    println!("shard pinned to {pinned}: {of_shard:?}; {of_client:?}");
    assert!(of_client.len() >= 4, "a main thread and one for each broker: {of_client:?}");
    for (name, cpus) in &of_client {
        assert!(!names(cpus, pinned), "{name} may run on {cpus}, the shard is on {pinned}");
    }
    assert_eq!(of_shard, [("fencepost-0".to_owned(), pinned.to_string())]);
    finish(router, &mut [load], &mock.bootstrap(), &topic, 6).assert_clean();
}

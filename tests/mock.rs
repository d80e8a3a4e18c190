//! The engine on librdkafka's mock cluster.
#![cfg(feature = "kafka")]

use fencepost::config::Config;
use fencepost::engine::Router;
use fencepost::trigger::{State, Trigger};
use rdkafka::mocking::MockCluster;
use std::time::{Duration, Instant};

fn now_ms() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64
}

#[test]
fn triggers_reach_the_mock_cluster_and_settle() {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic("triggers", 12, 1).unwrap();
    let mut config = Config::default();
    config.topic.name = "triggers".into();
    config.kafka.bootstrap = Some(mock.bootstrap_servers());
    let began = Instant::now();
    let (router, readiness) = Router::start(&config).unwrap();
    println!("started in {:?}, {readiness:?}, {:?}", began.elapsed(), router.warnings());
    let mut ingress = router.ingress().unwrap();
    let base = now_ms();
    let mut accepted = 0;
    let began = Instant::now();
    for i in 0..100_000i64 {
        let device = format!("veh-{}", i % 1000);
        while let Err(e) = ingress.submit(&Trigger::new(&device, "fence:1", State::Enter, base - (i / 1000) * 1000)) {
            println!("{e}");
            std::thread::sleep(Duration::from_millis(1));
        }
        accepted += 1;
        if i % 50 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    while ingress.settled().0 < accepted {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", router.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("settled in {:?}", began.elapsed());
    let report = router.shutdown(Duration::from_secs(5));
    println!("{}", report.counts);
    for (name, s) in report.stages.named() {
        println!(
            "{name} {} p50 {:?} p99 {:?} max {:?}",
            s.count(),
            s.quantile(0.5).as_duration(),
            s.quantile(0.99).as_duration(),
            s.max().as_duration()
        );
    }
    assert!(report.counts.add_up());
    assert_eq!(report.counts.delivered, accepted);
}

//! scratch
use fencepost::config::Config;
use fencepost::engine::{Assembly, Blueprint, Router};
use fencepost::clock::SystemClock;
use fencepost::sink::null::NullSink;
use fencepost::shard::idle::Strategy;
use fencepost::topology::Placement;
use fencepost::trigger::{State, Trigger};
use std::time::Duration;

#[test]
fn smoke() {
    let mut config = Config::default();
    config.topic.name = "t".into();
    let limits = config.limits().unwrap();
    let blueprint = Blueprint { limits, partitions: 12, router_id: "r".into(), incarnation: 1, record_time_is_event: false };
    println!("{}", blueprint.memory());
    let assembly = Assembly::new(&blueprint, SystemClock::new(), |_, _| Ok::<_, ()>(NullSink::new(0, 1 << 18))).unwrap();
    let router = Router::run(assembly, &Placement { shards: vec![], others: Default::default(), warning: None }, Strategy::Park).unwrap();
    let mut ingress = router.ingress().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut accepted = 0;
    let began = std::time::Instant::now();
    for i in 0..300_000 {
        let device = format!("veh-{}", i % 5000);
        match ingress.submit(&Trigger::new(&device, "fence:1", State::Enter, now - (i as i64 / 5000) * 1000)) {
            Ok(_) => accepted += 1,
            Err(e) => { if i % 1000 == 0 { println!("{e}"); } std::thread::sleep(Duration::from_micros(50)); }
        }
    }
    println!("{accepted} in {:?}", began.elapsed());
    while ingress.settled().0 < accepted { std::thread::sleep(Duration::from_millis(1)); }
    println!("settled in {:?}", began.elapsed());
    let report = router.shutdown(Duration::from_secs(5));
    println!("{}", report.counts);
    for (name, s) in report.stages.named() { println!("{name} {} p50 {:?} p99 {:?}", s.count(), s.quantile(0.5), s.quantile(0.99)); }
    assert!(report.counts.add_up());
}

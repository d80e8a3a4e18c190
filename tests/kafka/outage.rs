//! A broker that dies under load and comes back, on a cluster of this test's own.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::cluster::Cluster;
use crate::common_kafka::load::turns_of;
use crate::common_kafka::{Load, alone, config, finish, fresh_topic};
use crate::kafka;
use fencepost::engine::Router;
use std::time::{Duration, Instant};

#[test]
fn a_broker_killed_under_load_and_restarted_loses_repeats_and_reorders_nothing() {
    // A real Kafka is wanted, if not this one.
    let (Some(_), _alone) = (kafka(), alone()) else { return };
    let cluster = Cluster::start(&[]);
    let topic = fresh_topic("killed");
    Admin::new(&cluster.bootstrap).create_topic(&topic, 6, &[]);
    let (router, _) = Router::start(&config(&cluster.bootstrap, &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns_of("killed", 500, 60_000);
    let began = Instant::now();
    let mut killed_at = None;
    std::thread::scope(|scope| {
        let mut restarted = None;
        for (number, sent) in all.iter().enumerate() {
            if number == 15_000 {
                cluster.order("kill", &[1]);
                killed_at = Some(load.ingress.settled());
                let cluster = &cluster;
                restarted = Some(scope.spawn(move || {
                    std::thread::sleep(Duration::from_secs(2));
                    cluster.order("restart", &[1]);
                }));
            }
            // About 10,000 a second, so that the broker dies with triggers on their way.
            if number % 100 == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            load.submit(sent);
        }
        if let Some(restarted) = restarted {
            restarted.join().unwrap();
        }
    });
    load.settle(&router);
    println!(
        "killed with {killed_at:?} of 15,000 settled; all settled after {:?}, shed {}",
        began.elapsed(),
        load.shed
    );
    let finished = finish(router, &mut [load], &cluster.bootstrap, &topic, 6);
    finished.assert_clean();
    assert_eq!((finished.counts.delivered, finished.counts.failed), (60_000, 0));
    assert!(finished.counts.late > 0, "the outage was noticed");
}

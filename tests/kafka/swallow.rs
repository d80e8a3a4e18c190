//! Bytes that are swallowed between us and the broker: no answer, no reset, nothing. Our own deadline must notice.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::cluster::Cluster;
use crate::common_kafka::load::turns_of;
use crate::common_kafka::proxy::Proxy;
use crate::common_kafka::{Load, Scratch, alone, fresh_topic};
use crate::kafka;
use crate::scene::{RATE, assert_spilled, config_with_state, end, listen, under_load, wait_heard};
use fencepost::engine::Router;
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 6;

#[test]
fn s5_while_bytes_are_swallowed_our_own_deadline_opens_the_breakers_and_later_all_arrives() {
    let (Some(_), _alone) = (kafka(), alone()) else { return };
    // The case says 120; the suite has less patience.
    let swallowed = std::env::var("FENCEPOST_SWALLOW_S").map_or(20, |text| text.parse().expect("seconds"));
    let cluster = Cluster::start(&[]);
    let proxy = Proxy::before(&cluster.bootstrap);
    cluster.advertise(&proxy.address);
    let (topic, state) = (fresh_topic("swallowed"), Scratch::new("swallowed"));
    Admin::new(&proxy.address).create_topic(&topic, PARTITIONS, &[]);
    let config = config_with_state(&proxy.address, &topic, &state);
    listen();
    let (router, _) = Router::start(&config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns_of("swallowed", 600, (60 + swallowed as usize) * RATE as usize);
    under_load(&mut load, &all, || {
        std::thread::sleep(Duration::from_secs(2));
        let began = Instant::now();
        proxy.swallow(true);
        let (opened, _) = wait_heard("breaker open", |text| text.contains("breaker open"));
        let after = opened.saturating_duration_since(began);
        println!("the first breaker opened {after:?} after the first byte was swallowed");
        // It is `breaker.grace`, a second; the client's own time-outs are 5 s and more, the machine may be busy.
        assert!(after < Duration::from_secs(swallowed), "while they were still swallowed");
        std::thread::sleep(Duration::from_secs(swallowed).saturating_sub(began.elapsed()));
        assert!(router.counts().breakers_opened > 0);
        proxy.swallow(false);
    });
    let finished = end(router, load, &proxy.address, &topic, PARTITIONS);
    assert_spilled(&finished.counts);
}

//! Threads: many shards and ingresses do what one of each does; stopping, failing and the report at the end.

use crate::support::model::Draft;
use crate::support::rig::{assemble, bare, small_config};
use fencepost::clock::{Clock, SystemClock};
use fencepost::config::Config;
use fencepost::engine::Router;
use fencepost::ingress::{ClosedWhy, Ingress, Refused};
use fencepost::shard::idle::Strategy;
use fencepost::sim::random::Random;
use fencepost::sink::steered::Broker;
use fencepost::topology::{CpuSet, place};
use fencepost::trigger::Trigger;
use fencepost::verify::frame::Frame;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

fn start(config: &Config, partitions: u32) -> (Router, Vec<Broker>) {
    let (assembly, brokers) = assemble(config, partitions, &SystemClock::new());
    let placement = place(usize::from(config.engine.shards), &[], &CpuSet::default()).expect("nothing is pinned");
    (Router::run(assembly, &placement, Strategy::Park).expect("threads can be had"), brokers)
}

fn now_ms() -> i64 {
    SystemClock::new().now().wall.as_ms().0
}

/// Offers a trigger until there is room.
fn insist(ingress: &mut Ingress, trigger: &Trigger<'_>) {
    let began = Instant::now();
    loop {
        match ingress.submit(trigger) {
            Ok(_) => return,
            Err(Refused::Shed(_)) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
        assert!(began.elapsed() < LONG, "shed for two minutes");
    }
}

/// What a consumer sees of each device: its keys in order.
type Seen = BTreeMap<String, Vec<(String, u8, i64)>>;

fn seen(brokers: &[Broker]) -> Seen {
    let mut seen = Seen::new();
    for broker in brokers {
        for record in &broker.state().log {
            let frame = Frame::read(&record.value).expect("the log holds frames");
            let second = frame.event_time_ms.div_euclid(1_000);
            let key = (frame.fence_id.to_owned(), frame.state as u8, second);
            seen.entry(frame.device_id.to_owned()).or_default().push(key);
        }
    }
    seen
}

/// Routes each stream through an ingress and a thread of its own, with `shards` shards.
fn route(streams: &[Vec<Draft>], shards: u16) -> (Seen, u64) {
    let mut config = small_config();
    config.engine.shards = shards;
    config.dedup.ttl = Duration::from_secs(86_400);
    config.dedup.capacity = 65_536;
    let (router, brokers) = start(&config, 6);
    brokers.iter().for_each(|broker| broker.state().acks_by_itself = true);
    std::thread::scope(|scope| {
        for stream in streams {
            let mut ingress = router.ingress().expect("there are four");
            scope.spawn(move || {
                for draft in stream {
                    insist(&mut ingress, &bare(&draft.device, &draft.fence, draft.event_time_ms));
                }
                let began = Instant::now();
                while ingress.settled().0 < stream.len() as u64 {
                    assert!(began.elapsed() < LONG, "the watermark stands at {}", ingress.settled());
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(ingress.settled().0, stream.len() as u64);
                assert_eq!(ingress.take_failed(), None);
            });
        }
    });
    let report = router.shutdown(LONG);
    assert!(report.counts.add_up(), "{}", report.counts);
    assert_eq!((report.counts.unsettled(), report.counts.failed), (0, 0), "{}", report.counts);
    assert_eq!(report.lost_shards, [0_u16; 0]);
    assert_eq!(report.stages.settle.count(), report.counts.delivered);
    (seen(&brokers), report.counts.delivered)
}

/// Two shards and four ingress threads do what one shard and one ingress do: the same keys, each device's in order.
#[test]
fn two_shards_and_four_threads_do_what_one_of_each_does() {
    let mut random = Random::new(11);
    let base = now_ms();
    let streams: Vec<Vec<Draft>> = (0..4)
        .map(|stream| {
            let mut drafts: Vec<Draft> = Vec::new();
            for number in 0..5_000 {
                let draft = match drafts.len() {
                    len @ 1.. if random.below(5) == 0 => drafts[random.below(len as u32) as usize].clone(),
                    _ => Draft::new(
                        format!("device-{stream}-{}", random.below(40)),
                        format!("fence-{}", random.below(5)),
                        base - 1_000 * i64::from(number),
                    ),
                };
                drafts.push(draft);
            }
            drafts
        })
        .collect();
    let keys: HashSet<(&str, &str, i64)> = streams
        .iter()
        .flatten()
        .map(|draft| (draft.device.as_str(), draft.fence.as_str(), draft.event_time_ms.div_euclid(1_000)))
        .collect();
    let (many, many_delivered) = route(&streams, 2);
    let (one, one_delivered) = route(&[streams.concat()], 1);
    assert_eq!((many_delivered, one_delivered), (keys.len() as u64, keys.len() as u64));
    assert_eq!(many, one);
}

/// After `shutdown`, and from the moment it begins, `submit` says that the router stops; what was accepted is delivered.
#[test]
fn a_submit_after_shutdown_is_told_so() {
    let (router, brokers) = start(&small_config(), 3);
    brokers[0].state().acks_by_itself = true;
    let mut ingress = router.ingress().expect("there is one");
    for number in 0..500 {
        insist(&mut ingress, &bare("device", &format!("fence-{number}"), now_ms()));
    }
    let report = router.shutdown(LONG);
    assert_eq!((report.counts.delivered, report.counts.unsettled()), (500, 0), "{}", report.counts);
    let answer = ingress.submit(&bare("device", "late", now_ms()));
    assert_eq!(answer, Err(Refused::Closed(ClosedWhy::Stopping)));
    assert_eq!((ingress.settled().0, ingress.accepted()), (500, 500));
}

/// S1, this stage's part: a stop with 1,000 in flight and the broker away returns within its limit and a second, and the
/// report names every trigger that nothing durable has.
#[test]
fn s1_a_stop_with_the_broker_away_adds_up() {
    let mut config = small_config();
    config.inflight.partition = 1_000;
    let (router, brokers) = start(&config, 2);
    brokers[0].state().is_away = true;
    let mut ingress = router.ingress().expect("there is one");
    for number in 0..1_000 {
        insist(&mut ingress, &bare(&format!("device-{number}"), "fence", now_ms()));
    }
    let began = Instant::now();
    let report = router.shutdown(Duration::from_millis(100));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(report.counts.add_up(), "{}", report.counts);
    assert_eq!((report.counts.accepted, report.counts.unsettled()), (1_000, 1_000), "{}", report.counts);
    assert_eq!(report.lost_shards, [0_u16; 0]);
    assert_eq!(ingress.settled().0, 0);
}

/// A shard's thread panics: the host lives, submits are refused as failed, and the report names the shard.
#[test]
fn a_panic_of_a_shard_closes_the_router() {
    let mut config = small_config();
    config.engine.shards = 2;
    let (router, brokers) = start(&config, 4);
    let mut ingress = router.ingress().expect("there is one");
    insist(&mut ingress, &bare("device", "fence", now_ms()));
    assert!(router.is_healthy());
    brokers[1].state().panics = true;
    let began = Instant::now();
    while router.is_healthy() {
        assert!(began.elapsed() < LONG, "nobody noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
    let answer = ingress.submit(&bare("device", "late", now_ms()));
    assert_eq!(answer, Err(Refused::Closed(ClosedWhy::Failed)));
    brokers[0].state().acks_by_itself = true;
    let report = router.shutdown(Duration::from_secs(1));
    assert_eq!(report.lost_shards, [1]);
    assert_eq!(ingress.submit(&bare("device", "later", now_ms())), Err(Refused::Closed(ClosedWhy::Failed)));
}

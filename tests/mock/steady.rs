//! Without faults: everything arrives, however many shards and ingresses there are.

use crate::common_kafka::load::{Sent, turns};
use crate::common_kafka::{Load, Mock, alone, config, finish, fresh_topic};
use fencepost::engine::Router;
use fencepost::verify::frame::Frame;
use std::collections::HashMap;
use std::time::{Duration, Instant};

#[test]
fn triggers_reach_the_topic_settle_and_repeats_are_collapsed() {
    let _alone = alone();
    let topic = fresh_topic("steady");
    let mock = Mock::with_topic(3, &topic, 12);
    let config = config(&mock.bootstrap(), &topic);
    let (router, readiness) = Router::start(&config).unwrap();
    assert!(!readiness.is_cold);
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(500, 30_000);
    load.submit_all(&all);
    load.submit_all(&all[29_000..]);
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 12);
    finished.assert_clean();
    assert_eq!((finished.counts.delivered, finished.counts.deduplicated), (30_000, 1_000));
    for (name, stage) in finished.report.stages.named() {
        println!("{name}: p50 {:?} p99 {:?}", stage.quantile(0.5).as_duration(), stage.quantile(0.99).as_duration());
    }
}

/// A device's triggers in the order of the topic.
type PerDevice = HashMap<String, Vec<(String, i64)>>;

/// Routes everything with so many shards and ingresses; a device always uses the same ingress.
fn route(shards: u16, ingresses: usize, all: &[Sent]) -> PerDevice {
    let topic = fresh_topic("shape");
    let mock = Mock::with_topic(3, &topic, 12);
    let mut config = config(&mock.bootstrap(), &topic);
    config.engine.shards = shards;
    let (router, _) = Router::start(&config).unwrap();
    let mut loads = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..ingresses {
            let mut load = Load::new(router.ingress().unwrap());
            threads.push(scope.spawn(move || {
                let mine = |sent: &&Sent| sent.device.len() % ingresses == number;
                all.iter().filter(mine).for_each(|sent| load.submit(sent));
                load
            }));
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<Load>>()
    });
    assert!(loads.iter().all(|load| !load.accepted.is_empty()), "every ingress took part");
    let finished = finish(router, &mut loads, &mock.bootstrap(), &topic, 12);
    finished.assert_clean();
    assert_eq!(finished.counts.delivered, all.len() as u64);
    let mut per_device = PerDevice::new();
    for kept in &finished.kept {
        let frame = Frame::read(&kept.value).unwrap();
        let entry = (frame.fence_id.to_owned(), frame.event_time_ms);
        per_device.entry(frame.device_id.to_owned()).or_default().push(entry);
    }
    per_device
}

#[test]
fn two_shards_and_four_ingresses_give_what_one_of_each_gives() {
    let _alone = alone();
    let mut all = turns(400, 20_000);
    for sent in &mut all {
        // Ids of four lengths, by which the ingresses share them.
        let number: usize = sent.device.trim_start_matches("veh:").parse().unwrap();
        sent.device = format!("veh:{number:03}{}", "x".repeat(number % 4));
    }
    let (one, many) = (route(1, 1, &all), route(2, 4, &all));
    assert_eq!(one.len(), 400);
    assert_eq!(one, many);
}

#[test]
fn the_first_trigger_after_a_warm_start_is_acked_soon() {
    let _alone = alone();
    let topic = fresh_topic("warm");
    let mock = Mock::with_topic(3, &topic, 12);
    let (router, readiness) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let began = Instant::now();
    load.submit_all(&turns(1, 1));
    load.settle(&router);
    // Reported, not asserted tightly: the machine may be loaded. A cold client takes 350 to 1,000 ms.
    println!("warm-up {:?}, first ack after {:?}", readiness.warm_up.as_duration(), began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(30));
    finish(router, &mut [load], &mock.bootstrap(), &topic, 12).assert_clean();
}

/// The CPU time that a thread of this process has used, in clock ticks of 10 ms.
fn ticks_of(thread: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel lists the threads");
    let stat = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        (name.trim() == thread).then(|| std::fs::read_to_string(path.join("stat")).ok())?
    });
    let used = |stat: String| {
        // Behind the name in brackets: user time is the 12th field, system time the 13th.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ').skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    stat.filter_map(used).sum()
}

/// P7: idle with the strategy `park`, a shard takes under 5 % of a CPU, and the first trigger after it is delivered.
#[test]
fn p7_an_idle_shard_sleeps_and_wakes() {
    let _alone = alone();
    let topic = fresh_topic("idle");
    let mock = Mock::with_topic(1, &topic, 12);
    let (router, _) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(2, 2);
    load.submit_all(&all[..1]);
    load.settle(&router);
    std::thread::sleep(Duration::from_millis(200));
    let (before, began) = (ticks_of("fencepost-0"), Instant::now());
    std::thread::sleep(Duration::from_secs(6));
    let used_ms = 10 * (ticks_of("fencepost-0") - before);
    let share = used_ms as f64 / began.elapsed().as_millis() as f64;
    let woken = Instant::now();
    load.submit_all(&all[1..]);
    load.settle(&router);
    println!("idle: {:.2} % of a CPU; the first trigger after it settled in {:?}", 100.0 * share, woken.elapsed());
    assert!(share < 0.05, "{share}");
    finish(router, &mut [load], &mock.bootstrap(), &topic, 12).assert_clean();
}

//! The breaker in its shard, with the policy `refuse`: it blocks its partition and no other, what was accepted waits, and
//! one acknowledgement opens the way again, in order.

use super::support::rig::{Rig, small_config};
use fencepost::ingress::{Refused, ShedWhy};
use fencepost::sink::{Fault, Persisted};

const UNAUTHORIZED: i32 = 29;

fn submit_fresh(rig: &mut Rig, device: &str) -> Result<u64, Refused> {
    rig.clock.advance_ms(1);
    let fence = format!("fence-{}", rig.model.next_id());
    let draft = rig.draft(device, &fence);
    rig.submit(0, &draft).map(|accepted| accepted.seq.0)
}

/// A device of each of the three partitions.
fn devices(rig: &Rig) -> Vec<String> {
    (0..3).map(|partition| rig.devices_of(partition, "device", 1).remove(0)).collect()
}

/// Lets time pass in turns, while everything but partition 0 is acknowledged.
fn pass_ms(rig: &mut Rig, ms: u64) {
    for _ in 0..ms / 5 {
        rig.clock.advance_ms(5);
        for partition in [1, 2] {
            rig.broker().ack(partition, usize::MAX);
        }
        rig.turn();
    }
}

/// Inside the grace nothing is shed; after it the stalled partition is, and the others are not.
#[test]
fn a_partition_without_progress_for_the_grace_is_shed_and_no_other() {
    let mut rig = Rig::new(&small_config(), 3);
    let devices = devices(&rig);
    for device in &devices {
        submit_fresh(&mut rig, device).unwrap();
    }
    rig.turn();
    pass_ms(&mut rig, 900);
    submit_fresh(&mut rig, &devices[0]).expect("inside the grace");
    pass_ms(&mut rig, 200);
    assert_eq!(rig.counts().breakers_opened, 1);
    assert_eq!(submit_fresh(&mut rig, &devices[0]), Err(Refused::Shed(ShedWhy::PartitionBlocked)));
    for device in &devices[1..] {
        submit_fresh(&mut rig, device).expect("another partition");
    }
    rig.finish();
}

/// What is in flight is the probe: nothing more is sent while the breaker is open or half open, however long, and one
/// late acknowledgement closes it; what waited goes out behind, in order.
#[test]
fn l6_what_is_in_flight_is_the_probe_and_its_late_ack_closes() {
    let mut rig = Rig::new(&small_config(), 3);
    let devices = devices(&rig);
    let first = submit_fresh(&mut rig, &devices[0]).unwrap();
    rig.turn();
    pass_ms(&mut rig, 950);
    let second = submit_fresh(&mut rig, &devices[0]).unwrap();
    rig.turn();
    let lent = rig.broker().in_flight_of(0);
    pass_ms(&mut rig, 60_000);
    assert_eq!(rig.broker().in_flight_of(0), lent, "no second probe");
    assert_eq!(rig.counts().breakers_opened, 1, "reopening is not opening");
    rig.broker().ack(0, 1);
    rig.turn();
    submit_fresh(&mut rig, &devices[0]).expect("closed by the ack");
    rig.finish();
    assert!(first < second);
    assert_eq!(rig.log_ids()[..2], [0, 1]);
}

/// With nothing in flight, the head of the line is the one probe; while the partition refuses it, it comes back and is
/// tried again after the reset. Once it is let in, everything follows.
#[test]
fn l11_a_partition_that_refuses_is_probed_with_one_trigger_and_loses_nothing() {
    let mut config = small_config();
    config.breaker.failures = 3;
    let mut rig = Rig::new(&config, 3);
    let devices = devices(&rig);
    for _ in 0..50 {
        submit_fresh(&mut rig, &devices[0]).unwrap();
    }
    rig.turn();
    let mut probes = 0;
    for _ in 0..12_000 {
        let lent = rig.broker().in_flight_of(0);
        if lent > 0 {
            assert!(probes == 0 || lent == 1, "{lent} sent to a partition that refuses");
            probes += 1;
            rig.broker().refuse(0, 0, lent, Fault::Partition(UNAUTHORIZED), Persisted::No, false);
        }
        pass_ms(&mut rig, 5);
    }
    // A minute: three tries until it opens, then about one in five to six seconds.
    assert!((8..=16).contains(&probes), "{probes} tries in a minute");
    assert_eq!(submit_fresh(&mut rig, &devices[0]), Err(Refused::Shed(ShedWhy::PartitionBlocked)));
    assert_eq!((rig.counts().failed, rig.counts().would_reorder), (0, 0));
    for _ in 0..2_000 {
        rig.broker().ack(0, usize::MAX);
        pass_ms(&mut rig, 5);
    }
    assert_eq!(rig.counts().delivered, 50, "it resumes without being asked");
    rig.finish();
}

/// A breaker is open, and what was in flight comes to its end elsewhere: nothing is left to probe with. The next trigger is
/// let in to be the probe, and only that one.
#[test]
fn an_open_breaker_with_nothing_in_flight_lets_a_probe_in() {
    let mut rig = Rig::new(&small_config(), 3);
    let devices = devices(&rig);
    submit_fresh(&mut rig, &devices[0]).unwrap();
    rig.turn();
    pass_ms(&mut rig, 1_100);
    assert_eq!(submit_fresh(&mut rig, &devices[0]), Err(Refused::Shed(ShedWhy::PartitionBlocked)));
    // Refused for itself: that says nothing of the partition.
    assert_eq!(rig.broker().refuse(0, 0, 1, Fault::Frame(10), Persisted::No, false), 1);
    pass_ms(&mut rig, 4_000);
    assert_eq!(rig.take_failed(0).len(), 1);
    assert_eq!(submit_fresh(&mut rig, &devices[0]), Err(Refused::Shed(ShedWhy::PartitionBlocked)), "the reset");
    pass_ms(&mut rig, 1_100);
    submit_fresh(&mut rig, &devices[0]).expect("the probe");
    rig.turn();
    assert_eq!(rig.broker().in_flight_of(0), 1);
    assert_eq!(submit_fresh(&mut rig, &devices[0]), Err(Refused::Shed(ShedWhy::PartitionBlocked)), "one is enough");
    rig.broker().ack(0, 1);
    rig.turn();
    submit_fresh(&mut rig, &devices[0]).expect("closed");
    rig.finish();
}

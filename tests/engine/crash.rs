//! The router dies: what was settled is in the log, among the dead letters or on disk, what was not is sent again by its
//! caller, and nothing that landed is sent again.

use crate::support::rig::{Death, Rig, small_config};
use fencepost::shard::Policy;
use fencepost::sink::{Fault, Persisted};
use fencepost::spill::faulty::FaultyDisk;
use fencepost::units::{Nanos, PartitionId};

const LONG: Nanos = Nanos::from_millis(60_000);
const SHORT: Nanos = Nanos::from_millis(2_000);

/// D6: a key that was pending when the process was killed, and that the broker never had, is new after the restart.
#[test]
fn d6_what_was_pending_is_new_after_a_restart() {
    for death in [Death::Process, Death::Machine] {
        let mut rig = Rig::spilling(&small_config(), 1);
        rig.submit_fresh("device", 1);
        assert_eq!((rig.broker().in_flight(), rig.settled(0)), (1, 0));
        rig.restart(death, SHORT, |_, _| 0);
        assert_eq!(rig.callers[0].backlog, [0], "its caller has it still");
        rig.finish();
        assert_eq!((rig.log_ids(), rig.counts().deduplicated), (vec![0], 0), "{death:?}");
    }
}

/// D8: killed with triggers persisted and unsettled; the host is back after 60 s, longer than the ttl; the caller sends
/// again from its watermark: collapsed.
#[test]
fn d8_what_landed_unreported_is_collapsed_after_a_minute() {
    for death in [Death::Process, Death::Machine] {
        let mut rig = Rig::spilling(&small_config(), 2);
        for _ in 0..50 {
            for device in ["device-a", "device-b", "device-c"] {
                rig.submit_fresh(device, 1);
            }
            if rig.model.next_id() <= 120 {
                rig.broker().ack_all();
                rig.pass_ms(400);
            }
        }
        let settled = rig.settled(0);
        assert!((100..=130).contains(&settled), "{settled}");
        // Of each partition, all but two landed.
        let before = rig.broker().in_flight();
        rig.restart(death, LONG, |_, held| held.saturating_sub(2));
        assert_eq!(rig.log_ids().len() + 4, 150, "{before} were in flight");
        rig.finish();
        let mut ids = rig.log_ids();
        ids.sort_unstable();
        assert_eq!(ids, (0..150).collect::<Vec<_>>(), "each exactly once");
    }
}

/// W11: a crash between a shadow's acknowledgement and its mark. The topic's frames are known: it is not sent again.
#[test]
fn w11_a_shadow_that_landed_is_not_sent_again() {
    for death in [Death::Process, Death::Machine] {
        let mut rig = Rig::spilling(&small_config(), 1);
        rig.submit_fresh("device", 10);
        assert_eq!(rig.broker().in_flight(), 10);
        rig.pass_ms(1_100);
        assert_eq!((rig.settled(0), rig.counts().in_spill), (10, 10), "shadows settle");
        rig.submit_fresh("device", 10);
        rig.pass_ms(20);
        assert_eq!((rig.settled(0), rig.counts().in_spill), (20, 20));
        // Acknowledged, and the shard has heard it; the disk has not.
        rig.broker().ack(0, 4);
        rig.shards[0].turn();
        rig.read_logs();
        // Two more land, and nobody hears it.
        rig.restart(death, LONG, |_, _| 2);
        assert_eq!(rig.counts().recovered, 20, "{death:?}");
        rig.finish();
        assert_eq!(rig.log_ids(), (0..20).collect::<Vec<_>>(), "{death:?}");
        assert_eq!(rig.common.shard_pages[0].found_in_topic.get(), 6);
        assert_eq!((rig.counts().deduplicated, rig.counts().delivered), (6, 14));
    }
}

/// Shadows that were acknowledged out of turn are marked; after a restart the marked ones are neither sent again nor
/// missed: they are no loss.
#[test]
fn w11_marked_shadows_are_no_loss_after_a_restart() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.submit_fresh("held", 1);
    rig.submit_fresh("device", 9);
    rig.pass_ms(1_100);
    rig.submit_fresh("device", 5);
    rig.pass_ms(20);
    assert_eq!(rig.counts().in_spill, 15);
    // The first is refused for itself and nobody takes the dead letter: its record stays, those behind are done with.
    rig.letters.state().is_away = true;
    rig.disk.set_capacity(rig.disk.used());
    rig.broker().refuse(0, 0, 1, Fault::Frame(10), Persisted::No, false);
    rig.turn();
    rig.broker().ack(0, 6);
    rig.pass_ms(50);
    let marked = rig.keeper.as_mut().unwrap().spilling().unwrap().spill_mut().marked(PartitionId(0));
    assert!(marked >= 6, "{marked} marked");
    rig.disk.set_capacity(u64::MAX / 2);
    rig.restart(Death::Process, SHORT, |_, _| 0);
    assert_eq!(rig.counts().corrupt, 0, "{}", rig.counts());
    rig.letters.state().is_away = false;
    rig.finish();
    assert_eq!(rig.counts().corrupt, 0, "{}", rig.counts());
    assert_eq!(rig.model.buried() + rig.log_ids().len() as u64, 15);
}

/// A partition that had no leader when the topic was read waits for it: what its caller sends again before that meets what
/// landed in the last life, what was found on disk of it is looked up, and the others flow meanwhile.
#[test]
fn d8_a_partition_without_a_leader_at_start_is_read_before_anything_of_it_is_sent() {
    for policy in [Policy::Spill, Policy::Refuse] {
        let mut rig = Rig::with_policy(&small_config(), 2, policy, FaultyDisk::new(1));
        let devices = [0, 1].map(|partition| rig.devices_of(partition, "device", 1).remove(0));
        for device in &devices {
            rig.submit_fresh(device, 20);
        }
        // All of it lands, and the router dies before it is told.
        rig.leaderless = vec![1];
        rig.restart(Death::Process, SHORT, |_, held| held);
        assert_eq!(rig.log_ids().len(), 40);
        rig.broker().state().acks_by_itself = true;
        while !rig.send_again(0) {
            rig.pass_ms(5);
        }
        for device in &devices {
            rig.submit_fresh(device, 5);
        }
        rig.pass_ms(500);
        assert_eq!(rig.log_ids_of(0).len(), 25, "{policy:?}: the other partition flows, and nothing is in it twice");
        assert_eq!(rig.log_ids_of(1).len(), 20, "{policy:?}: nothing is sent to a partition that is not known");
        rig.thaw();
        assert!(rig.is_cold(), "its leader is still away");
        rig.leaderless.clear();
        rig.thaw();
        rig.pass_ms(500);
        assert_eq!(rig.log_ids_of(1).len(), 25, "{policy:?}: only what is new: {}", rig.counts());
        rig.finish();
    }
}

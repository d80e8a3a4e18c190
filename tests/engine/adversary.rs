//! What a hostile reader found in the diversion: each a way to lose, turn around or hold up triggers for good.

use crate::support::rig::{Rig, small_config, spill_limits};
use fencepost::breaker::Cause;
use fencepost::spill::SpillLimits;
use fencepost::spill::faulty::{FaultyDisk, Operation};
use fencepost::units::PartitionId;
use fencepost::wire;

const P0: PartitionId = PartitionId(0);

/// A commit that is made because its batch is full, and fails: what is ordered behind it is refused with it.
#[test]
fn what_follows_a_full_batch_that_failed_is_not_written_in_front_of_it() {
    let disk = FaultyDisk::new(1);
    let limits = SpillLimits { batch_bytes: 16 << 10, ..spill_limits(1) };
    let mut rig = Rig::with_disk(&small_config(), 1, limits, disk.clone());
    rig.shards[0].trip(P0, Cause::Lag);
    rig.pass_ms(10);
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        disk.set_likelihood(operation, 65_536);
    }
    for _ in 0..200 {
        let draft = rig.fresh("device");
        rig.accept(0, &draft);
    }
    rig.turn();
    disk.heal();
    rig.pass_ms(2_000);
    assert_eq!(rig.counts().spilled, 200, "{}", rig.counts());
    let mut ids = Vec::new();
    rig.each_frame_on_disk(|frame| ids.push(wire::decode(frame).unwrap().frame.partition_seq));
    assert!(ids.is_sorted(), "{ids:?}");
    (0..3).for_each(|_| rig.shards[0].good_read(P0));
    rig.finish();
}

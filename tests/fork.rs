//! A forked child: the router's threads live in the parent, so the child's submits are refused, and the parent's go on.
//! A binary of its own: the child must do nothing but submit and leave.

use fencepost::clock::SystemClock;
use fencepost::config::Config;
use fencepost::engine::{Assembly, Blueprint, Router};
use fencepost::ingress::{ClosedWhy, Refused};
use fencepost::shard::idle::Strategy;
use fencepost::sink::null::NullSink;
use fencepost::topology::{CpuSet, place};
use fencepost::trigger::{State, Trigger};
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn a_forked_child_is_told_so() {
    let blueprint = Blueprint {
        limits: Config::default().limits().expect("the defaults are sound"),
        partitions: 4,
        router_id: "router-t".to_owned(),
        incarnation: 1,
        record_time_is_event: false,
        policy: fencepost::shard::Policy::Refuse,
        has_disk: false,
        has_letters: false,
        hash_seed: None,
    };
    let assembly = match Assembly::new::<Infallible>(&blueprint, SystemClock::new(), |_, _| Ok(NullSink::new(0, 1_024)))
    {
        Ok(assembly) => assembly,
        Err(never) => match never {},
    };
    let placement = place(1, &[], &CpuSet::default()).expect("nothing is pinned");
    let router = Router::run(assembly, &placement, Strategy::Park).expect("a thread can be had");
    let mut ingress = router.ingress().expect("there is one");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_millis() as i64;
    assert!(ingress.submit(&Trigger::new("device", "before", State::Enter, now)).is_ok());

    // SAFETY: the child has one thread; it only submits, which takes no lock and allocates nothing, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let answer = ingress.submit(&Trigger::new("device", "child", State::Enter, now));
        let code = match answer {
            Err(Refused::Closed(ClosedWhy::Forked)) => 0,
            Ok(_) => 1,
            Err(_) => 2,
        };
        // SAFETY: leaves at once, without destructors: the router is the parent's.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: the child is ours and waited for once; the status is a place for an int.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert!(libc::WIFEXITED(status), "the child ended with status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "1: the child's submit was accepted; 2: refused for another reason");

    assert!(ingress.submit(&Trigger::new("device", "after", State::Enter, now)).is_ok());
    let report = router.shutdown(Duration::from_secs(60));
    assert_eq!((report.counts.accepted, report.counts.delivered), (2, 2), "{}", report.counts);
}

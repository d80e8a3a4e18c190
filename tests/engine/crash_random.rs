//! Random runs in which the router dies again and again, with its process or with the whole machine: after each death
//! everything settled is in the log, among the dead letters or on disk; at the end each accepted trigger has its fate, each
//! device its order, and a repeat is in the log only where a death or a lost handle explains it.
//!
//! `FENCEPOST_SEED` and `FENCEPOST_ROUNDS` as in `random`.

use crate::random::{refuse_something, seeds, turn_a_handle};
use crate::support::model::Draft;
use crate::support::rig::{Death, Rig, small_config, spill_limits};
use fencepost::ingress::Refused;
use fencepost::sim::random::Random;
use fencepost::spill::SpillLimits;
use fencepost::spill::faulty::{FaultyDisk, Operation};
use fencepost::trigger::{Priority, State};
use fencepost::units::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How a run is made.
struct Plan {
    shards: u16,
    partitions: u32,
    devices: u32,
    callers: usize,
    steps: u32,
    deaths: u32,
    /// Refusals of the broker and lost handles.
    has_faults: bool,
}

/// What the runs met.
#[derive(Debug, Default)]
struct Met {
    deaths: u64,
    recovered: u64,
    found_in_topic: u64,
    collapsed: u64,
    spilled: u64,
    drained: u64,
    dead_letters: u64,
    failed: u64,
    rebuilds: u64,
}

impl Met {
    /// Adds what a life counted.
    fn add(&mut self, rig: &Rig) {
        let counts = rig.counts();
        self.recovered += counts.recovered;
        self.collapsed += counts.deduplicated;
        self.spilled += counts.spilled;
        self.drained += counts.drained;
        self.dead_letters += counts.dead_lettered;
        self.failed += counts.failed;
        self.rebuilds += counts.producer_rebuilds;
        self.found_in_topic += rig.common.shard_pages.iter().map(|page| page.found_in_topic.get()).sum::<u64>();
    }
}

fn play(seed: u64, plan: &Plan, met: &mut Met) {
    let mut random = Random::new(seed);
    let mut config = small_config();
    config.engine.shards = plan.shards;
    config.engine.turn_batch = 1 + random.below(64) as u16;
    config.queue.capacity = 64 * usize::from(plan.shards);
    config.queue.ingresses = plan.callers;
    config.settle.window = 1_024;
    config.inflight.partition = 1 + random.below(24) as usize;
    config.inflight.total = (config.inflight.partition + random.below(40) as usize) * usize::from(plan.shards);
    config.inflight.waiting = (16 + random.below(80) as usize) * usize::from(plan.shards);
    config.dedup.capacity = 4_096 * usize::from(plan.shards);
    config.dedup.ttl = Duration::from_secs(60);
    config.breaker.grace = Duration::from_millis(u64::from(30 + random.below(300)));
    config.breaker.failures = 1 + random.below(8);
    config.breaker.reset = Duration::from_millis(u64::from(100 + random.below(300)));
    let disk = FaultyDisk::new(seed);
    // Now and then there is little room for marks, or none: what is done with is then found again.
    let marks = [0, 8, 4_096, 4_096][random.below(4) as usize];
    let limits = SpillLimits { marks, ..spill_limits(plan.partitions) };
    let mut rig = Rig::with_disk(&config, plan.partitions, limits, disk.clone());
    while rig.callers.len() < plan.callers {
        rig.add_caller();
    }
    let mut recent: Vec<(usize, Draft)> = Vec::new();
    let (mut is_lost, mut made) = (vec![false; rig.brokers.len()], 0_i64);
    // On average a run has as many deaths as planned.
    let to_death = plan.steps / plan.deaths;
    for _ in 0..plan.steps {
        if random.below(to_death) == 0 {
            met.add(&rig);
            let death = if random.below(2) == 0 { Death::Process } else { Death::Machine };
            let away = Nanos::from_millis([1, 1_000, 90_000][random.below(3) as usize]);
            // Half of the time nothing lands on the way out: then only what is durable counts.
            let lands = random.below(2) == 0;
            rig.restart(death, away, |_, held| if lands { random.below(held as u32 + 1) as usize } else { 0 });
            met.deaths += 1;
            is_lost.fill(false);
        }
        let broker = rig.brokers[random.below(rig.brokers.len() as u32) as usize].clone();
        match random.below(100) {
            0..40 => {
                for _ in 0..=random.below(12) {
                    let device = random.below(plan.devices);
                    let caller = device as usize % plan.callers;
                    let (caller, draft) = if random.below(4) == 0 && !recent.is_empty() {
                        recent[random.below(recent.len() as u32) as usize].clone()
                    } else {
                        made += 1;
                        let fresh = Draft {
                            device: format!("device-{device}"),
                            fence: format!("fence-{}", random.below(3)),
                            state: [State::Enter, State::Exit, State::Dwell][random.below(3) as usize],
                            event_time_ms: rig.clock.wall_ms() - 1_000 * made,
                            priority: [Priority::Low, Priority::Normal, Priority::High][random.below(3) as usize],
                        };
                        (caller, fresh)
                    };
                    // First what the last life left, in its order.
                    if !rig.send_again(caller) {
                        break;
                    }
                    match rig.submit(caller, &draft) {
                        Ok(_) => {}
                        Err(Refused::Shed(_)) => break,
                        Err(other) => panic!("{other}"),
                    }
                    recent.push((caller, draft));
                    if recent.len() > 40 {
                        recent.swap_remove(random.below(40) as usize);
                    }
                }
            }
            40..65 => rig.turn(),
            65..85 => {
                for partition in broker.partitions() {
                    if random.below(2) == 0 {
                        broker.ack(partition, random.below(10) as usize);
                    }
                }
            }
            85..90 => rig.clock.advance_ms(u64::from(random.below(40))),
            90 => {
                let _ = rig.take_all_failed();
            }
            91 => broker.state().queue_max = if random.below(2) == 0 { random.below(20) as usize } else { usize::MAX },
            92 => broker.state().is_away = random.below(3) == 0,
            93 => match random.below(4) {
                0 => rig.letters.state().is_away = true,
                1 => rig.letters.state().refuses = true,
                _ => {
                    let mut state = rig.letters.state();
                    (state.is_away, state.refuses) = (false, false);
                }
            },
            94 => match random.below(6) {
                0 => disk.fail_next(Operation::Sync, random.below(4)),
                1 => disk.fail_next(Operation::Write, random.below(4)),
                2 => disk.set_capacity(disk.used()),
                _ => {
                    disk.heal();
                    disk.set_capacity(u64::MAX / 2);
                }
            },
            95..98 if plan.has_faults => refuse_something(&broker, &mut random),
            98..100 if plan.has_faults => turn_a_handle(&rig, &mut is_lost, &mut random),
            _ => {}
        }
        rig.check();
    }
    disk.heal();
    disk.set_capacity(u64::MAX / 2);
    {
        let mut state = rig.letters.state();
        (state.is_away, state.refuses) = (false, false);
    }
    for (index, is_lost) in is_lost.into_iter().enumerate() {
        if is_lost {
            rig.brokers[index].state().report_max = usize::MAX;
            rig.turn();
            rig.brokers[index].replace_handle(|_, held| held / 2);
        }
    }
    rig.finish();
    met.add(&rig);
}

fn play_seeds(first: u64, count: u64, plan: &Plan) -> Met {
    let mut met = Met::default();
    for seed in seeds(first, count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| play(seed, plan, &mut met))) {
            eprintln!("replay with FENCEPOST_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    println!("{met:?}");
    met
}

/// One shard, every fault at once.
#[test]
fn random_crashes_lose_nothing_settled() {
    let plan = Plan { shards: 1, partitions: 3, devices: 7, callers: 2, steps: 1_500, deaths: 5, has_faults: true };
    let met = play_seeds(5_000, 16, &plan);
    if std::env::var_os("FENCEPOST_SEED").is_none() {
        assert!(met.deaths > 50 && met.recovered > 0 && met.found_in_topic > 0, "{met:?}");
        assert!(met.collapsed > 0 && met.drained > 0 && met.dead_letters > 0 && met.rebuilds > 0, "{met:?}");
    }
}

/// Two shards, and a broker that refuses nothing: nothing fails and nothing is a dead letter.
#[test]
fn random_crashes_on_two_shards_fail_nothing() {
    let plan = Plan { shards: 2, partitions: 5, devices: 20, callers: 2, steps: 1_500, deaths: 5, has_faults: false };
    let met = play_seeds(6_000, 8, &plan);
    assert_eq!((met.failed, met.dead_letters, met.rebuilds), (0, 0, 0), "{met:?}");
    assert!(met.deaths > 0);
}

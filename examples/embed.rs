//! An evaluator that embeds the router: `cargo run --example embed -- 127.0.0.1:9092`.
//!
//! It submits a few triggers, paces itself when told to, waits until all of them are settled, and stops.

use fencepost::{Config, Pressure, Refused, Router, State, Trigger};
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::default();
    config.kafka.bootstrap = Some(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9092".into()));
    config.topic.name = "geofence-triggers".into();
    config.topic.create = true;

    // Returns once the producers are warm: the first trigger is as fast as the millionth.
    let (router, _) = Router::start(&config)?;
    for warning in router.warnings() {
        eprintln!("warning: {warning}");
    }

    // One ingress per evaluator thread.
    let mut ingress = router.ingress().ok_or("no ingress left: raise queue.ingresses")?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let mut last = 0;
    for (vehicle, state) in [("veh-1", State::Enter), ("veh-2", State::Enter), ("veh-1", State::Exit)] {
        let trigger = Trigger::new(vehicle, "depot:north", state, now_ms);
        last = loop {
            match ingress.submit(&trigger) {
                Ok(accepted) => {
                    if accepted.pressure == Pressure::SlowDown {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    break accepted.seq.0;
                }
                // Still ours: try again a moment later, or let it go and know it.
                Err(Refused::Shed(_)) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        };
    }

    // Settled is durable: a source commits its own position up to here and no further.
    while ingress.settled().0 < last && router.is_healthy() {
        while let Some(failed) = ingress.take_failed() {
            eprintln!("trigger {} was not delivered: {}", failed.seq, failed.reason);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(ingress);
    let report = router.shutdown(Duration::from_secs(10));
    println!("{}", report.counts);
    Ok(())
}

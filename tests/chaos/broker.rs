//! What is done to the broker, on a thread of its own: a fault may begin before a kill and end after it, or begin after
//! it. One fault at a time; while one lasts, another is passed over.

use super::plan::Fault;
use crate::common_kafka::cluster::Cluster;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};

pub struct Faults {
    cluster: Arc<Cluster>,
    lasting: Option<JoinHandle<()>>,
    pub freezes: u32,
    pub kills: u32,
    pub restarts: u32,
}

impl Faults {
    pub fn new(cluster: Arc<Cluster>) -> Faults {
        Faults { cluster, lasting: None, freezes: 0, kills: 0, restarts: 0 }
    }

    /// Begins it, unless another one lasts. Whether it did.
    pub fn begin(&mut self, fault: Fault) -> bool {
        if self.lasting.as_ref().is_some_and(|lasting| !lasting.is_finished()) {
            return false;
        }
        self.end();
        match fault {
            Fault::Freeze { .. } => self.freezes += 1,
            Fault::Kill { .. } => self.kills += 1,
            Fault::Restart { .. } => self.restarts += 1,
        }
        let cluster = Arc::clone(&self.cluster);
        let inflict = move || match fault {
            Fault::Freeze { after, lasting } => {
                sleep(after);
                cluster.order("freeze", &[1]);
                sleep(lasting);
                cluster.order("thaw", &[1]);
            }
            Fault::Kill { after, down } => {
                sleep(after);
                cluster.order("kill", &[1]);
                sleep(down);
                cluster.order("restart", &[1]);
            }
            Fault::Restart { after } => {
                sleep(after);
                cluster.order("restart", &[1]);
            }
        };
        self.lasting = Some(std::thread::spawn(inflict));
        true
    }

    /// Waits until the broker is as healthy as before.
    pub fn end(&mut self) {
        if let Some(lasting) = self.lasting.take() {
            lasting.join().expect("the broker takes its orders");
        }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        // The thread holds the cluster: one that outlived a failed test would leave the broker behind.
        if let Some(lasting) = self.lasting.take() {
            // Its panic has been printed.
            let _ = lasting.join();
        }
    }
}

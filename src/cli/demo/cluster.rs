//! The cluster of the demo: three brokers inside this process, played by the client library's mock, and the outage.
//!
//! The outage is a freeze: the brokers take requests and answer none of them, neither the producer's nor the consumer's,
//! until it is over. Dropped connections would look more dramatic and prove less: this mock does not know the sequence
//! numbers of an idempotent producer, so a batch that is sent again after a lost answer is in its log twice, which no
//! real broker allows. For the same reason a freeze stays well below the producer's socket time-out of 5 s.

use crate::cli::CliError;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use std::time::Duration;

/// Brokers of the cluster.
pub const BROKERS: i32 = 3;
/// Partitions of the topic.
pub const PARTITIONS: u32 = 12;
/// The topic.
pub const TOPIC: &str = "geofence-triggers";

/// The mock's name for all of its brokers.
const ALL: i32 = -1;

/// A running cluster. It ends when dropped.
pub struct Cluster(MockCluster<'static, DefaultProducerContext>);

impl Cluster {
    /// Brokers that listen on ports of this machine, and an empty topic.
    ///
    /// # Errors
    /// When there are no ports or threads for them.
    pub fn start() -> Result<Cluster, CliError> {
        let refused = |error| CliError::Unavailable(format!("the in-process brokers did not start: {error}"));
        let mock = MockCluster::new(BROKERS).map_err(refused)?;
        mock.create_topic(TOPIC, PARTITIONS as i32, 1).map_err(refused)?;
        Ok(Cluster(mock))
    }

    /// Where clients connect.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.0.bootstrap_servers()
    }

    /// From now on no broker answers, for so long.
    ///
    /// # Errors
    /// When the mock refuses.
    pub fn freeze(&self, span: Duration) -> Result<(), CliError> {
        self.delay_answers(span)
    }

    /// The brokers are as before. A connection that holds answers back is not woken: it goes on when the first of them has
    /// been held for the whole freeze, and then gives all of them.
    ///
    /// # Errors
    /// When the mock refuses.
    pub fn thaw(&self) -> Result<(), CliError> {
        self.delay_answers(Duration::ZERO)
    }

    fn delay_answers(&self, delay: Duration) -> Result<(), CliError> {
        let refused = |error| CliError::Unavailable(format!("the in-process brokers did not take the outage: {error}"));
        self.0.broker_round_trip_time(ALL, delay).map_err(refused)
    }
}

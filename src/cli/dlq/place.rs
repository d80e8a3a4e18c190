//! Where the dead letters and the triggers are: the two topics of a configuration, and how their clusters are reached.

use super::reader::TopicReader;
use crate::cli::CliError;
use crate::config::{ClientProperty, Config};
use crate::engine::disk::LETTER_DIR;
use crate::sink::kafka::is_connection_property;
use crate::spill::{self, RealDisk};
use rdkafka::config::ClientConfig;
use std::path::Path;

/// The dead-letter topic of a configuration.
pub(super) struct Place {
    pub(super) config: Config,
    pub(super) topic: String,
    connection: ClientConfig,
}

impl Place {
    /// Says how many letters lie on disk and not in the topic yet: of a router that runs, as far as its last commit.
    pub(super) fn tell_of_disk(&self) {
        let Some(dir) = self.config.state.dir.as_ref().map(|dir| dir.join(LETTER_DIR)).filter(|dir| dir.is_dir())
        else {
            return;
        };
        match spill::verify(&mut RealDisk, &dir, |_| true) {
            Ok((found, _)) if found.records > 0 => tell!(
                "{} letters more lie on disk, and go to the topic when a router runs and the topic takes them: fencepost dlq \
                 ls --dir {}",
                found.records,
                dir.display()
            ),
            Ok(_) => {}
            Err(error) => tell!("the letters on disk cannot be counted: {error}"),
        }
    }

    /// # Errors
    /// The configuration is wrong, or has no dead-letter topic.
    pub(super) fn of(path: &Path) -> Result<Place, CliError> {
        let config = Config::from_file(path)?;
        config.limits()?;
        let Some(settings) = config.dead_letter_settings()? else {
            return Err(CliError::Usage(
                "dead_letter.topic = \"off\": there is no topic to read; name it, or give --dir for letters on disk"
                    .into(),
            ));
        };
        let connection = connection(&settings.bootstrap, &settings.properties);
        Ok(Place { config, topic: settings.topic, connection })
    }

    /// A reader of the dead letters, and how many partitions they have.
    ///
    /// # Errors
    /// No answer, or no such topic.
    pub(super) fn letters(&self) -> Result<(TopicReader, u32), CliError> {
        let reader = TopicReader::new(&self.connection, &self.topic)?;
        match reader.partitions()? {
            Some(partitions) => Ok((reader, partitions)),
            None => Err(CliError::Unavailable(format!(
                "the dead-letter topic {} is not on {}: nothing was dead-lettered yet, or dead_letter.topic is another",
                self.topic,
                self.connection.get("bootstrap.servers").unwrap_or_default()
            ))),
        }
    }
}

/// What a consumer needs of the client properties: how the cluster is reached, and nothing of a producer's.
pub(super) fn connection(bootstrap: &str, properties: &[ClientProperty]) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", bootstrap);
    for property in properties {
        if is_connection_property(&property.name) {
            client.set(&property.name, property.value.expose());
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_are_read_with_all_that_reaches_their_cluster_and_nothing_of_a_producer() {
        let text = "kafka.bootstrap = \"a:1\"\n[kafka.properties]\n\"security.protocol\" = \"sasl_ssl\"\n\
                    \"enable.sasl.oauthbearer.unsecure.jwt\" = true\n\"https.ca.location\" = \"/ca.pem\"\n\
                    \"linger.ms\" = 7\n";
        let config = Config::from_toml_str(text).expect("it holds");
        let settings = config.dead_letter_settings().expect("it holds").expect("there is a topic");
        let client = connection(&settings.bootstrap, &settings.properties);
        assert_eq!(client.get("bootstrap.servers"), Some("a:1"));
        assert_eq!(client.get("security.protocol"), Some("sasl_ssl"));
        assert_eq!(client.get("enable.sasl.oauthbearer.unsecure.jwt"), Some("true"));
        assert_eq!(client.get("https.ca.location"), Some("/ca.pem"));
        assert_eq!(client.get("linger.ms"), None);
    }
}

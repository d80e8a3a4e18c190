//! TLS and SASL/SCRAM: delivered over both, and what is wrong is named without a secret.
#![cfg(feature = "tls")]

use crate::common_kafka::admin::Admin;
use crate::common_kafka::load::turns_of;
use crate::common_kafka::{Load, Scratch, alone, config, finish, fresh_topic};
use crate::{kafka, variable};
use fencepost::config::Config;
use fencepost::engine::Router;
use std::time::Duration;

struct Secured {
    plain: String,
    sasl: String,
    ssl: String,
    ca: String,
    user: String,
    password: String,
}

impl Secured {
    fn from_env() -> Option<Secured> {
        Some(Secured {
            plain: kafka()?,
            sasl: variable("KAFKA_TLS_BOOTSTRAP")?,
            ssl: variable("KAFKA_SSL_BOOTSTRAP")?,
            ca: variable("KAFKA_TLS_CA")?,
            user: variable("KAFKA_TLS_USER")?,
            password: variable("KAFKA_TLS_PASSWORD")?,
        })
    }

    fn topic(&self) -> String {
        let topic = fresh_topic("secured");
        Admin::new(&self.plain).create_topic(&topic, 6, &[]);
        topic
    }

    fn scram(&self, topic: &str, mechanism: &str, password: &str) -> Config {
        let mut config = config(&self.sasl, topic);
        let properties = &mut config.kafka.properties;
        properties.set("security.protocol", "sasl_ssl");
        properties.set("ssl.ca.location", self.ca.as_str());
        properties.set("sasl.mechanism", mechanism);
        properties.set("sasl.username", self.user.as_str());
        properties.set("sasl.password", password);
        config
    }

    fn deliver(&self, config: &Config) {
        let topic = &config.topic.name;
        let (router, readiness) = Router::start(config).unwrap();
        assert!(!readiness.is_cold);
        let mut load = Load::new(router.ingress().unwrap());
        load.submit_all(&turns_of("secured", 100, 5_000));
        // Read over the plain listener: the records are what they would be there.
        let finished = finish(router, &mut [load], &self.plain, topic, 6);
        finished.assert_clean();
        assert_eq!(finished.counts.delivered, 5_000);
    }

    fn refusal(&self, mut config: Config) -> String {
        config.start.timeout = Duration::from_secs(8);
        let error = Router::start(&config).err().expect("it must not start");
        let (text, debug) = (error.to_string(), format!("{error:?} {config:?}"));
        println!("{text}");
        for secret in [self.password.as_str(), "wrong-and-hidden"] {
            assert!(!text.contains(secret) && !debug.contains(secret), "a password is printed");
        }
        text
    }
}

#[test]
fn scram_over_tls_delivers_with_a_password_from_the_environment_or_a_file() {
    let (Some(secured), _alone) = (Secured::from_env(), alone()) else { return };
    secured.deliver(&secured.scram(&secured.topic(), "SCRAM-SHA-512", "${KAFKA_TLS_PASSWORD}"));
    let scratch = Scratch::new("secret");
    let file = scratch.0.join("password");
    std::fs::write(&file, &secured.password).unwrap();
    secured.deliver(&secured.scram(&secured.topic(), "SCRAM-SHA-256", &format!("file:{}", file.display())));
}

#[test]
fn tls_alone_delivers() {
    let (Some(secured), _alone) = (Secured::from_env(), alone()) else { return };
    let mut config = config(&secured.ssl, &secured.topic());
    config.kafka.properties.set("security.protocol", "ssl");
    config.kafka.properties.set("ssl.ca.location", secured.ca.as_str());
    secured.deliver(&config);
}

#[test]
fn m4_a_wrong_path_password_or_variable_is_named_and_no_secret_is() {
    let (Some(secured), _alone) = (Secured::from_env(), alone()) else { return };
    let topic = secured.topic();
    let right = "${KAFKA_TLS_PASSWORD}";

    let mut no_such_file = secured.scram(&topic, "SCRAM-SHA-512", right);
    no_such_file.kafka.properties.set("ssl.ca.location", "/nowhere/ca.pem");
    let text = secured.refusal(no_such_file);
    assert!(text.contains("ssl.ca.location") && text.contains("/nowhere/ca.pem"), "{text}");

    let text = secured.refusal(secured.scram(&topic, "SCRAM-SHA-512", "wrong-and-hidden"));
    assert!(text.to_lowercase().contains("authentication"), "{text}");

    let mut untrusted = config(&secured.ssl, &topic);
    untrusted.kafka.properties.set("security.protocol", "ssl");
    let text = secured.refusal(untrusted);
    assert!(text.to_lowercase().contains("certificate"), "{text}");

    let text = secured.refusal(secured.scram(&topic, "SCRAM-SHA-512", "${FENCEPOST_NO_SUCH_VARIABLE}"));
    assert!(text.contains("FENCEPOST_NO_SUCH_VARIABLE"), "{text}");
    let text = secured.refusal(secured.scram(&topic, "SCRAM-SHA-512", "file:/nowhere/password"));
    assert!(text.contains("/nowhere/password"), "{text}");
}

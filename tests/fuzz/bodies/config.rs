//! The text of a config. Any text is a config or an error, never a panic; each problem is one short line that names its
//! key, and none shows the value of a client property, which may be a secret. What is accepted gives limits, from which
//! the parts can be sized, or an error of the same kind; and shown, it is read as the same.

use fencepost::Config;
use fencepost::config::{ConfigError, DivertPolicy, Problem, Properties};
use toml::{Table, Value};

/// Messages are for a person's screen.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// See the module.
pub fn check(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let config = match Config::from_toml_str(text) {
        Ok(config) => config,
        Err(error) => return names_its_keys(&error, text),
    };
    assert!(toml::from_str::<Table>(text).is_ok(), "what is no TOML is no config");
    match config.limits() {
        Err(error) => names_its_keys(&error, text),
        Ok(limits) => {
            assert!(limits.memory().total() > 0 && !limits.memory().to_string().is_empty());
            for partitions in [1, 24, 100_000] {
                if let Err(error) = config.check_partitions(partitions) {
                    names_its_keys(&error, text);
                    continue;
                }
                // Without a directory there is no disk, and its sizes are not looked at.
                if config.state.dir.is_some() {
                    limits.dead_letters(partitions).check().expect("what the rules let pass, the letters' disk takes");
                    if config.divert_policy() == DivertPolicy::Spill {
                        limits.spill(partitions).check().expect("what the rules let pass, the spill takes");
                    }
                }
            }
        }
    }
    // In place of a property's value stands `***` where it may be a secret.
    if [&config.kafka.properties, &config.dead_letter.properties].iter().all(|all| **all == Properties::default()) {
        let shown = toml::to_string(&config).expect("a config can be shown");
        let again = Config::from_toml_str(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
        assert_eq!(again, config);
    }
}

fn names_its_keys(error: &ConfigError, text: &str) {
    let shown = error.to_string();
    assert!(error.problems().count() > 0 && !shown.is_empty());
    assert_eq!(shown.lines().count(), error.problems().count(), "one line a problem:\n{shown}");
    for problem in error.problems() {
        let line = problem.to_string();
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.len() <= MESSAGE_BYTES_MAX, "{} bytes: {line}", line.len());
        let key = match problem {
            // There is no key yet.
            Problem::NotToml { why } => {
                assert!(!why.is_empty());
                continue;
            }
            Problem::UnknownKey { key, .. } | Problem::WrongType { key, .. } | Problem::NotAllowed { key, .. } => key,
            Problem::Conflict { got, .. } => got,
            Problem::Missing { key, .. } => *key,
            Problem::RefusedProperty { key, .. }
            | Problem::UnknownProperty { key, .. }
            | Problem::PropertyValue { key, .. }
            | Problem::Unresolved { key, .. } => key,
            other => panic!("{other} does not come from a text"),
        };
        assert!(line.contains(key), "{key:?} is not in {line:?}");
    }
    for secret in secrets(text) {
        assert!(!shown.contains(&secret), "a value that may be a secret is shown: {shown}");
    }
}

/// The texts of client properties, as far as they stand nowhere else in the text or in a message by chance.
fn secrets(text: &str) -> Vec<String> {
    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::String(text) => into.push(text.clone()),
            Value::Table(table) => table.values().for_each(|value| collect(value, into)),
            Value::Array(all) => all.iter().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
    let Ok(document) = toml::from_str::<Table>(text) else { return Vec::new() };
    let mut all = Vec::new();
    for table in ["kafka", "dead_letter"] {
        let properties = document.get(table).and_then(|table| table.get("properties"));
        properties.into_iter().for_each(|value| collect(value, &mut all));
    }
    // Below that, a value may well be a word of the message.
    all.retain(|secret| secret.len() >= 12 && text.matches(secret.as_str()).count() == 1);
    all
}

//! From the text of a file to a [`Config`]: every table, key, type and bound is checked against the table of keys
//! first, all problems are collected with their lines, and only a clean text is given to serde.

use super::error::{ConfigError, Problem};
use super::keys::{KEYS, TABLES, find};
use super::kind::{Kind, type_of};
use super::nearest::nearest;
use super::{Config, properties};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What was found, with the place in the text.
struct Findings<'t> {
    text: &'t str,
    found: Vec<(Option<usize>, Problem)>,
}

impl Findings<'_> {
    fn add(&mut self, at: usize, problem: Problem) {
        let line = line_of(self.text, at);
        self.found.push((Some(line), problem));
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

pub(super) fn read(text: &str) -> Result<Config, ConfigError> {
    let document = DeTable::parse(text).map_err(|error| not_toml(text, &error))?;
    let mut findings = Findings { text, found: Vec::new() };
    for (name, value) in document.get_ref().iter() {
        let table: &str = name.get_ref();
        if !TABLES.iter().any(|(known, _)| *known == table) {
            let known = TABLES.iter().map(|(known, _)| *known).chain(KEYS.iter().map(|key| key.name));
            findings
                .add(name.span().start, Problem::UnknownKey { key: shorten(table), nearest: nearest(table, known) });
            continue;
        }
        match value.get_ref() {
            DeValue::Table(keys) => read_table(table, keys, &mut findings),
            other => findings.add(
                name.span().start,
                Problem::WrongType {
                    key: table.to_owned(),
                    got: type_of(other),
                    allowed: "a table".to_owned(),
                    fix: format!("write [{table}] with its keys below"),
                },
            ),
        }
    }
    if !findings.found.is_empty() {
        findings.found.sort_by_key(|(line, _)| *line);
        return Err(ConfigError::new(findings.found));
    }
    // What serde refuses now, the table of keys should have; a test holds the two together.
    let config: Config = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
    // Names that exclude each other have no line of their own.
    ConfigError::unless_clean(config.property_problems())?;
    Ok(config)
}

/// The parser's message and line, without its excerpt of the text, which may hold a secret.
fn not_toml(text: &str, error: &toml::de::Error) -> ConfigError {
    let line = error.span().map(|span| line_of(text, span.start));
    ConfigError::new(vec![(line, Problem::NotToml { why: error.message().to_owned() })])
}

/// A name from the text for a message: someone may have pasted a page there.
fn shorten(name: &str) -> String {
    const SHOWN: usize = 80;
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", name[..end].escape_debug()),
        None => name.escape_debug().to_string(),
    }
}

fn read_table(table: &str, keys: &DeTable<'_>, findings: &mut Findings<'_>) {
    for (name, value) in keys.iter() {
        let full = format!("{table}.{}", name.get_ref());
        let at = name.span().start;
        let Some(key) = find(&full) else {
            let nearest = nearest(&full, KEYS.iter().map(|key| key.name));
            findings.add(at, Problem::UnknownKey { key: shorten(&full), nearest });
            continue;
        };
        match key.kind.read(value.get_ref()) {
            Ok(read) => {
                if let Some(problem) = key.check(&read) {
                    findings.add(at, problem);
                }
                if let (Kind::Properties, DeValue::Table(inner)) = (&key.kind, value.get_ref()) {
                    read_properties(key.name, "", inner, findings);
                }
            }
            Err(got) => findings.add(at, key.wrong_type(got)),
        }
    }
}

/// Names and types of the client properties; a dotted name without quotes comes as tables in tables.
fn read_properties(key: &'static str, prefix: &str, inner: &DeTable<'_>, findings: &mut Findings<'_>) {
    for (name, value) in inner.iter() {
        let full = format!("{prefix}{}", name.get_ref());
        let at = name.span().start;
        if let DeValue::Table(deeper) = value.get_ref() {
            read_properties(key, &format!("{full}."), deeper, findings);
            continue;
        }
        if let Some(problem) = properties::check_name(key, &full) {
            let problem = match problem {
                Problem::UnknownProperty { table, key, nearest } => {
                    Problem::UnknownProperty { table, key: shorten(&key), nearest }
                }
                other => other,
            };
            findings.add(at, problem);
            continue;
        }
        match scalar(value) {
            Some(text) => findings.found.extend(
                properties::check_literal(key, &full, &text).map(|problem| (Some(line_of(findings.text, at)), problem)),
            ),
            None => findings.add(
                at,
                Problem::WrongType {
                    key: format!("{key}: `{full}`"),
                    got: type_of(value.get_ref()),
                    allowed: "text, a number, true or false".to_owned(),
                    fix: "write it as the client library takes it, with commas inside the text".to_owned(),
                },
            ),
        }
    }
}

/// A property's value as the client library reads it.
fn scalar(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            // Beyond 64 bits it is in no property's range.
            Some(
                i64::from_str_radix(number.as_str(), number.radix())
                    .map_or("out of range".to_owned(), |n| n.to_string()),
            )
        }
        DeValue::Float(number) => {
            Some(number.as_str().parse().map_or("not a number".to_owned(), |n: f64| n.to_string()))
        }
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

//! The reference of the configuration, `docs/config.md`, made from the tables that the checks use. A test compares the
//! file with it, so the two cannot drift apart.

use super::Config;
use super::keys::{KEYS, TABLES};
use super::kind::Value;
use super::properties::{ALLOWED, CLIENT_ID_BYTES, DEFAULTS, REFUSED};
use super::rules::RULES;
use std::fmt::Write;

/// A cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The text of `docs/config.md`.
#[must_use]
pub fn reference() -> String {
    let mut out = String::new();
    write(&mut out).expect("writing to a String does not fail");
    out
}

fn write(out: &mut String) -> std::fmt::Result {
    let defaults = Config::default();
    out.push_str(
        "# Configuration\n\n\
         One TOML file. Every table and every key is optional. An unknown key, a wrong type, a value out of bounds \
         and keys that do not go together are refused at start, all at once, each with its line, what came, what is \
         allowed and the fix.\n\n\
         A span of time is a whole number and a unit: `ns`, `us`, `ms`, `s`, `m`, `h` or `d`, as in `\"25ms\"`. A size is \
         a whole number of bytes, or text with `KiB`, `MiB`, `GiB` or `TiB`, as in `\"64MiB\"`.\n\n\
         This file is made from the code and compared with it by a test; `FENCEPOST_BLESS=1 cargo test --test config` \
         writes it anew. Ready-made profiles lie in `tuning/`.\n",
    );
    for (table, what) in TABLES {
        write!(out, "\n## `[{table}]`\n\n{what}\n\n")?;
        out.push_str("| key | type | default | allowed | what it does | the rule comes from |\n");
        out.push_str("|---|---|---|---|---|---|\n");
        for key in KEYS.iter().filter(|key| key.name.split_once('.').is_some_and(|(of, _)| of == *table)) {
            let default = match (key.get)(&defaults) {
                Value::Unset | Value::Properties => key.unset.to_owned(),
                value => format!("`{}`", value.print()),
            };
            writeln!(
                out,
                "| `{}` | {} | {} | {} | {} | {} |",
                key.name,
                key.kind.type_name(),
                cell(&default),
                cell(&key.kind.allowed()),
                cell(key.what),
                cell(key.rule)
            )?;
        }
    }
    out.push_str("\n## Rules between keys\n\n| rule | why |\n|---|---|\n");
    for rule in RULES {
        writeln!(out, "| {} | {} |", cell(rule.what), cell(rule.why))?;
    }
    write!(
        out,
        "\n## `[kafka.properties]`\n\n\
         What the client library may be told, here and in `[dead_letter.properties]`, by the client's own names; quotes around a name may be left out \
         (`linger.ms = 5`). A value is text, a number, or true or false. In a value, `${{NAME}}` is replaced by that \
         environment variable (`$${{` stands for a plain `${{`), and `file:PATH` by that file's content without the \
         newline at its end. A variable or file that is missing or empty is an error which names the property. \
         Values marked as hidden, and all that come from outside, are shown nowhere.\n\n\
         `client.id` has at most {} bytes, since brokers build names from it.\n\n\
         | property | for | default | allowed | shown |\n|---|---|---|---|---|\n",
        CLIENT_ID_BYTES.end()
    )?;
    for property in ALLOWED {
        let default = match (DEFAULTS.iter().find(|(name, _)| *name == property.name), property.same_as) {
            (Some((_, value)), _) => format!("`{value}`"),
            (None, Some(other)) => format!("same as `{other}`"),
            (None, None) => "the client's".to_owned(),
        };
        writeln!(
            out,
            "| `{}` | {} | {default} | {} | {} |",
            property.name,
            property.group.to_lowercase(),
            cell(&property.allowed()),
            if property.open { "yes" } else { "hidden" }
        )?;
    }
    out.push_str(
        "\n### Refused properties\n\n\
         What order, delivery and memory rest on is the router's own.\n\n| properties | why, and what steers it |\n|---|---|\n",
    );
    // Properties of one reason share a row, in the order of their first.
    let mut said: Vec<&str> = Vec::new();
    for (_, why) in REFUSED {
        if said.contains(why) {
            continue;
        }
        said.push(why);
        let names: Vec<String> =
            REFUSED.iter().filter(|(_, other)| other == why).map(|(name, _)| format!("`{name}`")).collect();
        writeln!(out, "| {} | {} |", names.join(", "), cell(why))?;
    }
    Ok(())
}

//! The tables of the field, measured here: what the key of a record decides, where a consumer keeps its state, what an exact
//! window costs beside a Bloom filter. `script/field` runs it and puts the published figures beside; `script/bench peers`
//! takes its input and its checks from here. Each measurement checks its answers; a wrong one ends the program.
//!
//! `cargo run --release --example field -- COMMAND [--NAME VALUE]...`, with the commands and names of [`USAGE`].

mod dedup;
mod input;
mod keys;
mod raw;
mod state;
mod topic;

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;

const USAGE: &str = "\
field input   --rows 200000 --seed 1                  rows of a fleet as NDJSON, to standard output; with --again FILE,
                                                      those of a recording over and over, 10 % of them exact repeats
field raw     --bootstrap B --topic T --input FILE    the client alone with these rows, frames made beforehand
field topic   --bootstrap B --topic T                 makes a topic (--partitions 12)
field check   --bootstrap B --topic T --input FILE    a topic against the rows it was made from, as JSON
field keys    --bootstrap B --triggers 500000 --rate 50000 --rounds 3
field state   --redis HOST:PORT --triggers 200000 --rounds 3
field dedup   --rounds 3 --keys 100000,1000000,4000000";

type Failed = Box<dyn Error + Send + Sync>;

/// `--name value`, each name once.
struct Words(HashMap<String, String>);

impl Words {
    fn read(words: impl Iterator<Item = String>) -> Result<Words, Failed> {
        let mut words = words;
        let mut read = HashMap::new();
        while let Some(name) = words.next() {
            let Some(name) = name.strip_prefix("--") else {
                return Err(format!("{name} is no option\n{USAGE}").into());
            };
            let value = words.next().ok_or_else(|| format!("--{name} has no value\n{USAGE}"))?;
            read.insert(name.to_owned(), value);
        }
        Ok(Words(read))
    }

    fn text(&self, name: &str) -> Result<&str, Failed> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing\n{USAGE}").into())
    }

    fn number(&self, name: &str, otherwise: u64) -> Result<u64, Failed> {
        let Some(text) = self.0.get(name) else { return Ok(otherwise) };
        text.parse().map_err(|error| format!("--{name} {text}: {error}").into())
    }
}

fn main() -> Result<(), Failed> {
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or(USAGE)?;
    let words = Words::read(words)?;
    let rounds = words.number("rounds", 3)?.max(1);
    match command.as_str() {
        "input" => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            let count = words.number("rows", 200_000)?;
            match words.text("again") {
                Ok(recording) => input::write_again(&std::fs::read_to_string(recording)?, count, &mut out)?,
                Err(_) => input::write(count, words.number("seed", 1)?, &mut out)?,
            }
            out.flush()?;
        }
        "topic" => {
            let partitions = words.number("partitions", 12)? as u32;
            topic::create(words.text("bootstrap")?, words.text("topic")?, partitions)?;
        }
        "raw" => {
            let (rows, partitions) = (std::fs::read(words.text("input")?)?, words.number("partitions", 12)? as u32);
            let sent = raw::send(words.text("bootstrap")?, words.text("topic")?, partitions, &rows)?;
            println!("{sent} records are acknowledged");
        }
        "check" => {
            let rows = std::fs::read(words.text("input")?)?;
            let found = topic::check(words.text("bootstrap")?, words.text("topic")?, &rows)?;
            println!("{}", found.as_json());
        }
        "keys" => {
            let plan = keys::Plan {
                bootstrap: words.text("bootstrap")?.to_owned(),
                triggers: words.number("triggers", 500_000)? as usize,
                rate: words.number("rate", 50_000)?,
                seed: words.number("seed", 1)?,
                ..keys::Plan::default()
            };
            print!("{}", keys::table(&plan, rounds)?);
        }
        "state" => {
            let triggers = words.number("triggers", 200_000)? as usize;
            print!("{}", state::table(words.0.get("redis").map(String::as_str), triggers, rounds)?);
        }
        "dedup" => {
            let sizes = words.0.get("keys").map_or("100000,1000000,4000000", String::as_str);
            let sizes: Result<Vec<usize>, _> = sizes.split(',').map(str::parse).collect();
            print!("{}", dedup::table(&sizes?, rounds));
        }
        other => return Err(format!("there is no command {other}\n{USAGE}").into()),
    }
    Ok(())
}

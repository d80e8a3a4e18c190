//! A flame graph: where the CPU time of this process went, sampled by `perf` while something was measured. As good as can be
//! had: without perf, or without the right to use it, there is none, and the page says why.

use super::svg::{Anchor, Svg};
use crate::cli::CliError;
use crate::cli::bench::context::Context;
use crate::cli::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples a second: few enough not to be measured themselves.
const RATE: &str = "99";
/// How stacks are walked: by the unwind tables, since nobody keeps frame pointers; so many bytes of each stack are kept.
const WALK: &str = "dwarf,8192";
/// What perf needs to open its counters.
const SETTLE: Duration = Duration::from_millis(500);
const WIDTH: f64 = 880.0;
const ROW: f64 = 17.0;
/// Narrower boxes are left out.
const WIDTH_MIN: f64 = 0.6;
const CHARACTER: f64 = 6.2;
const DEPTH_MAX: usize = 60;

/// Stacks, the outermost call first, and how often each was met; or why there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::cli::bench) struct Flame {
    pub(super) stacks: BTreeMap<Vec<String>, u64>,
    pub(super) why_not: Option<String>,
}

/// perf at work on this process.
pub(in crate::cli::bench) struct Profiler {
    scratch: Scratch,
    running: Result<Child, String>,
}

impl Profiler {
    pub(in crate::cli::bench) fn start(context: &Context) -> Result<Profiler, CliError> {
        let scratch = context.scratch()?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-F", RATE, "--call-graph", WALK, "-e", "cpu-clock:u", "-p"]);
        command.arg(std::process::id().to_string()).arg("-o").arg(scratch.path().join("perf.data"));
        let running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = running.map_err(|error| format!("perf did not start: {error}; install it (linux-perf)"));
        std::thread::sleep(SETTLE);
        Ok(Profiler { scratch, running })
    }

    /// What it saw.
    pub(in crate::cli::bench) fn finish(self) -> Result<Flame, CliError> {
        let data = self.scratch.path().join("perf.data");
        let found = self.running.and_then(stop).and_then(|()| stacks_of(data));
        Ok(match found {
            Ok(stacks) => Flame { stacks, why_not: None },
            Err(why) => {
                tell!("no flame graph: {why}");
                Flame { stacks: BTreeMap::new(), why_not: Some(why) }
            }
        })
    }
}

fn stop(mut child: Child) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("perf did not end: {error}");
    if child.try_wait().map_err(failed)?.is_some() {
        return Err("perf ended at once; kernel.perf_event_paranoid must allow it (2 or less)".into());
    }
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::INT).map_err(|error| failed(error.into()))?;
    }
    child.wait().map(drop).map_err(failed)
}

fn stacks_of(data: PathBuf) -> Result<BTreeMap<Vec<String>, u64>, String> {
    tell!("reading what perf has seen …");
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"]).arg(data);
    let output = command.stderr(Stdio::null()).output().map_err(|error| format!("perf script: {error}"))?;
    let stacks = fold(&String::from_utf8_lossy(&output.stdout));
    if stacks.is_empty() { Err("perf has seen no samples".into()) } else { Ok(stacks) }
}

/// Blocks of `perf script -F comm,ip,sym`: the thread's name, then a line for each call, the innermost first.
fn fold(script: &str) -> BTreeMap<Vec<String>, u64> {
    let mut stacks = BTreeMap::new();
    for block in script.split("\n\n") {
        let mut lines = block.lines().filter(|line| !line.trim().is_empty());
        let Some(thread) = lines.next() else { continue };
        let symbol = |line: &str| {
            let (_, symbol) = line.trim().split_once(' ')?;
            Some(plain(symbol.trim()))
        };
        let mut stack: Vec<String> = lines.filter_map(symbol).collect();
        stack.push(thread.trim().trim_end_matches(':').to_string());
        stack.reverse();
        *stacks.entry(stack).or_default() += 1;
    }
    stacks
}

/// Without the hash that the compiler puts behind names.
fn plain(symbol: &str) -> String {
    match symbol.rfind("::h") {
        Some(at) if symbol.len() == at + 19 && symbol[at + 3..].bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            symbol[..at].to_string()
        }
        _ => symbol.to_string(),
    }
}

/// The graph as SVG: the outermost calls at the bottom, a box as wide as its share of the samples.
pub(super) fn draw(flame: &Flame) -> String {
    let all: u64 = flame.stacks.values().sum();
    let stacks: Vec<(&[String], u64)> = flame.stacks.iter().map(|(stack, count)| (stack.as_slice(), *count)).collect();
    let depth = stacks.iter().map(|stack| stack.0.len()).max().unwrap_or(0).min(DEPTH_MAX);
    let mut svg = Svg::new(WIDTH, depth as f64 * ROW + 4.0, "Flame graph of the CPU time");
    draw_row(&mut svg, &stacks, 0, 0.0, WIDTH / all.max(1) as f64, all, depth);
    svg.finish()
}

/// Stacks that agree up to `level`, in their order: what follows is next to each other.
fn draw_row(svg: &mut Svg, stacks: &[(&[String], u64)], level: usize, left: f64, each: f64, all: u64, depth: usize) {
    let (mut at, mut begin) = (left, 0);
    while begin < stacks.len() && level < depth {
        let Some(name) = stacks[begin].0.get(level) else {
            at += stacks[begin].1 as f64 * each;
            begin += 1;
            continue;
        };
        let same = stacks[begin..].iter().take_while(|stack| stack.0.get(level) == Some(name)).count();
        let group = &stacks[begin..begin + same];
        let count: u64 = group.iter().map(|stack| stack.1).sum();
        let width = count as f64 * each;
        if width >= WIDTH_MIN {
            let top = (depth - level - 1) as f64 * ROW + 2.0;
            let share = count as f64 * 100.0 / all.max(1) as f64;
            let warmth = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 4;
            let tip = format!("{name}: {count} samples, {share:.1} %");
            svg.rect(&format!("frame f{warmth}"), (at, top), ((width - 0.5).max(0.3), ROW - 1.0), &tip);
            let characters = ((width - 6.0) / CHARACTER).max(0.0) as usize;
            if characters >= 4 {
                let short = short(name, characters);
                svg.text("frame-name", (at + 3.0, top + 12.0), Anchor::Start, &short);
            }
            draw_row(svg, group, level + 1, at, each, all, depth);
        }
        at += width;
        begin += same;
    }
}

/// The name in so many characters: without generics where that is too long, then by its last parts, then cut.
fn short(name: &str, characters: usize) -> String {
    let fits = |name: &str| name.chars().count() <= characters;
    if fits(name) {
        return name.into();
    }
    let (mut bare, mut depth) = (String::new(), 0);
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            other if depth == 0 => bare.push(other),
            _ => {}
        }
    }
    let mut rest = if bare.trim_matches(':').is_empty() { name } else { bare.trim_matches(':') };
    while let Some((_, behind)) = rest.split_once("::").filter(|_| !fits(rest)) {
        rest = behind;
    }
    if fits(rest) { rest.into() } else { rest.chars().take(characters - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
fencepost-0 
\t    55d0c8 fencepost::shard::turn::Shard<S,C>::turn::h0123456789abcdef
\t    55d0c0 fencepost::engine::run::shard_thread

fencepost-0 
\t    55d0c9 fencepost::shard::turn::Shard<S,C>::turn::h0123456789abcdef
\t    55d0c0 fencepost::engine::run::shard_thread

rdk:broker1 
\t    7f0000 [unknown]
";

    #[test]
    fn a_long_name_is_told_by_its_end() {
        let name = "fencepost::shard::turn::Shard<S,C>::turn";
        for (characters, text) in
            [(60, name), (37, "fencepost::shard::turn::Shard::turn"), (12, "Shard::turn"), (4, "turn")]
        {
            assert_eq!(short(name, characters), text);
        }
        assert_eq!(short("rd_kafka_broker_serve", 9), "rd_kafka…");
        assert_eq!(short("<core::a as core::b>", 10), "b>");
    }

    #[test]
    fn samples_are_folded_by_their_stacks() {
        let stacks = fold(SCRIPT);
        let turn = ["fencepost-0", "fencepost::engine::run::shard_thread", "fencepost::shard::turn::Shard<S,C>::turn"];
        assert_eq!(stacks.get(turn.map(String::from).as_slice()), Some(&2), "{stacks:?}");
        assert_eq!(stacks.len(), 2);
        let svg = draw(&Flame { stacks, why_not: None });
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(svg.contains("Shard&lt;S,C&gt;") && svg.contains("2 samples, 66.7 %"), "{svg}");
        assert!(draw(&Flame::default()).contains("</svg>"));
    }
}

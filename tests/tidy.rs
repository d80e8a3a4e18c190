//! The house's order as a test: who may use whom, where `unsafe` and the clock may be, how long a file is, what no file
//! says. Each table below states the rule and, where there are any, its exceptions with their reason; an exception that is
//! no longer needed is an error too, so the tables stay true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms a room may use besides itself. Downwards only: ground, data, mechanisms, assembly, faces. Rooms that are
/// planned and not built yet have their place already.
const MAY_USE: &[(&str, &str)] = &[
    // ground
    ("units", ""),
    ("clock", "units"),
    // Planted defects: nothing in a product.
    ("canary", ""),
    ("prefetch", ""),
    // What threads meet by; loom's under a model check.
    ("sync", ""),
    // data
    ("trigger", "units"),
    ("hlc", "units"),
    ("partition", "units"),
    ("wire", "trigger hlc units"),
    // It checks what a person writes against what the spill can be made with.
    ("config", "trigger units spill"),
    // mechanisms: they never see one another, nor `metrics`
    ("ring", "prefetch trigger units sync"),
    ("dedup", "canary prefetch trigger units"),
    ("slab", "prefetch units"),
    ("metrics", "units"),
    ("topology", ""),
    ("state", "units config hlc"),
    // What stands in a stream of triggers: text to trigger, and how far it is settled.
    ("source", "trigger units wire"),
    ("breaker", "units"),
    ("spill", "canary units"),
    // A sink is lent frames, which are the slab's; the real one is made from settings, on threads with a mask.
    ("sink", "slab units clock config topology letter"),
    // Dead letters fall back to a spill of their own: the one mechanism that stands on another.
    ("letter", "units spill"),
    // assembly: the shard is where the mechanisms meet
    // How a shard and the disk thread work together: the spill and the dead letters, behind pipes.
    ("divert", "units slab spill letter metrics wire sync"),
    (
        "shard",
        "canary clock prefetch units trigger hlc wire partition ring dedup slab metrics sink breaker spill divert letter sync",
    ),
    ("ingress", "clock units trigger hlc wire partition ring metrics topology shard letter divert sync"),
    (
        "engine",
        "clock units config trigger hlc partition wire ring dedup slab metrics topology state breaker spill sink shard \
         ingress divert letter sync",
    ),
    // Which letters the topic holds already, decided without I/O.
    ("replay", "trigger"),
    // faces: they use the engine, and the words it answers in
    // `where` and `check` ask the broker, and the state directory, without a router; `bench` drives the sink without an
    // engine, with frames of its own in a slab, and asks a dedup window without a shard.
    (
        "cli",
        "engine ingress config trigger units partition source state sink metrics clock ring shard sim verify replay http \
         topology wire slab hlc spill letter dedup",
    ),
    ("http", "engine config metrics units"),
    ("ffi", "engine ingress config trigger units ring shard"),
    // proof: it never uses the room it checks
    (
        "sim",
        "trigger units clock config engine hlc shard divert letter metrics sink spill state wire breaker ingress verify",
    ),
    ("verify", "trigger units"),
    // programs beside the main one, which use the library as anybody does
    ("bin", ""),
];

/// Where `unsafe` may be written.
const UNSAFE: &[(&str, &str)] = &[
    ("src/prefetch.rs", "instructions that have no other name"),
    ("src/slab/", "frames that others read while the slab is in use"),
    ("src/sink/mod.rs", "a sink promises when it is done reading: the trait is unsafe to implement"),
    ("src/sink/null.rs", "so its implementations say why they keep that promise"),
    ("src/sink/steered.rs", "and this one reads what it was lent"),
    ("src/sink/kafka/", "the client library is C"),
    ("src/topology/affinity.rs", "the scheduler's calls are C"),
    ("src/topology/fork.rs", "so is the one that tells of a fork"),
    ("src/sync/rtrb.rs", "in model checks alone: loom's cells are not `Sync`, and loom watches them"),
];

/// Who reads the system's clocks. All else is handed the time, or a `Clock`.
const CLOCKS: &[(&str, &str)] = &[
    ("src/clock.rs", "this is the clock"),
    ("src/engine/", "deadlines of start and stop, outside any turn; the incarnation's number"),
    ("src/sink/kafka/", "deadlines of calls that wait for the client library, before and beside the turns"),
];
/// Faces are outside the core; a command may look at the clock of the wall.
const CLOCKS_FREE: &[&str] = &["src/cli/", "src/http/", "src/ffi/", "src/main.rs", "src/bin/"];

/// Lines of a file without its tests.
const LINES_MAX: usize = 600;
const LONGER: &[(&str, usize, &str)] = &[
    ("src/config/properties.rs", 750, "one table: every property of the client library that may be set"),
    ("src/sim/fleet.rs", 900, "one state machine: how a vehicle moves"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder of the package that have this ending, by their path in it.
fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                let text = fs::read_to_string(&path).expect("sources are text");
                let name = path.strip_prefix(root()).expect("it is below the root").to_string_lossy().into_owned();
                found.insert(name, text);
            }
        }
    }
    found
}

fn sources() -> BTreeMap<String, String> {
    let found = files("src", "rs");
    assert!(found.len() > 40, "the sources are where they should be: {} found", found.len());
    found
}

/// Whether a whole file is for tests: its parent declares it so.
fn is_test_file(name: &str, sources: &BTreeMap<String, String>) -> bool {
    let path = Path::new(name);
    let (Some(stem), Some(folder)) = (path.file_stem(), path.parent()) else { return false };
    let parents = [folder.join("mod.rs"), folder.with_extension("rs"), folder.join("lib.rs")];
    parents.iter().filter_map(|parent| sources.get(parent.to_string_lossy().as_ref())).any(|parent| {
        let declared = format!("mod {};", stem.to_string_lossy());
        let mut before = "";
        parent.lines().any(|line| {
            let is_it = line.ends_with(&declared) && before == "#[cfg(test)]";
            before = line;
            is_it
        })
    })
}

/// The file up to its tests, with comments and the contents of strings taken out: what the rules are about.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in without_tests(text) {
        let mut is_text = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if is_text => {
                    characters.next();
                }
                '"' => is_text = !is_text,
                '/' if !is_text && characters.peek() == Some(&'/') => break,
                _ if is_text => {}
                other => code.push(other),
            }
        }
        code.push('\n');
    }
    code
}

/// The lines before a file's own tests, which stand last. Tests in a file of their own are named where modules are.
fn without_tests(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    let behind = text.lines().skip(1).map(Some).chain([None]);
    let begins =
        |line: &str, next: Option<&str>| line == "#[cfg(test)]" && next.is_some_and(|next| next.ends_with('{'));
    lines.zip(behind).take_while(move |(line, next)| !begins(line, *next)).map(|(line, _)| line)
}

/// Each word of the code.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

/// The room a file is in: `src/shard/turn.rs` and `src/ingress.rs` are in `shard` and `ingress`.
fn room(name: &str) -> &str {
    let inside = name.strip_prefix("src/").unwrap_or(name);
    let first = inside.split('/').next().unwrap_or(inside);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The rooms that the code names by `crate::room` or by `use crate::{room…}`.
fn rooms_used(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let part = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or(list),
            None => rest.split([';', ' ', '(', ')', '<', '>', ',', '\n']).next().unwrap_or(rest),
        };
        for one in part.split(',') {
            used.extend(one.trim().split("::").next().map(str::to_owned));
        }
    }
    used.remove("");
    used
}

#[test]
fn rooms_use_what_is_below_them() {
    let sources = sources();
    let table: BTreeMap<&str, BTreeSet<&str>> =
        MAY_USE.iter().map(|(room, allowed)| (*room, allowed.split_whitespace().collect())).collect();
    let mut wrong = Vec::new();
    for (name, text) in &sources {
        let room = room(name);
        if room == "lib" || room == "main" || is_test_file(name, &sources) {
            continue;
        }
        let Some(allowed) = table.get(room) else {
            wrong.push(format!("{name}: the room {room} is not in the table"));
            continue;
        };
        for used in rooms_used(&code(text)) {
            if used != room && !allowed.contains(used.as_str()) {
                wrong.push(format!("{name}: {room} may not use {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table is no rule if it allows a circle below the faces.
#[test]
fn the_table_has_no_circle() {
    let mut below: BTreeMap<&str, BTreeSet<&str>> =
        MAY_USE.iter().map(|(room, allowed)| (*room, allowed.split_whitespace().collect())).collect();
    while !below.is_empty() {
        let free: Vec<&str> = below
            .iter()
            .filter(|(_, uses)| uses.iter().all(|used| !below.contains_key(used)))
            .map(|(room, _)| *room)
            .collect();
        assert!(!free.is_empty(), "these use one another: {below:?}");
        free.into_iter().for_each(|room| {
            below.remove(room);
        });
    }
}

/// Fails for each file outside the table in which `is_there` finds it, and for each entry of the table it is not in.
fn only_in(table: &[(&str, &str)], free: &[&str], what: &str, is_there: impl Fn(&str) -> bool) {
    let sources = sources();
    let mut met = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, text) in &sources {
        if is_test_file(name, &sources) || free.iter().any(|place| name.starts_with(place)) || !is_there(&code(text)) {
            continue;
        }
        match table.iter().find(|(place, _)| name.starts_with(place)) {
            Some((place, _)) => {
                met.insert(*place);
            }
            None => wrong.push(format!("{name}: {what} is allowed only in {table:?}")),
        }
    }
    wrong.extend(
        table
            .iter()
            .filter(|(place, _)| !met.contains(place))
            .map(|(place, _)| format!("{place} needs no {what} any more")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_is_where_it_is_argued() {
    only_in(UNSAFE, &["src/ffi/"], "unsafe", |code| words(code).any(|word| word == "unsafe"));
}

#[test]
fn the_system_clocks_have_one_reader() {
    only_in(CLOCKS, CLOCKS_FREE, "a system clock", |code| {
        code.contains("Instant::now") || code.contains("SystemTime::now") || code.contains("clock_gettime")
    });
}

/// There is no async runtime, and no face is known below the faces.
#[test]
fn nothing_waits_asynchronously() {
    only_in(&[], &[], "async", |code| words(code).any(|word| word == "async" || word == "await" || word == "tokio"));
}

#[test]
fn files_are_short_enough_to_read() {
    let sources = sources();
    let mut wrong = Vec::new();
    for (name, text) in &sources {
        let lines = without_tests(text).count();
        let most = LONGER.iter().find(|(longer, ..)| longer == name).map_or(LINES_MAX, |(_, most, _)| *most);
        if lines > most && !is_test_file(name, &sources) {
            wrong.push(format!("{name} has {lines} lines, allowed {most}"));
        }
    }
    for (name, ..) in LONGER {
        let is_longer = sources.get(*name).is_some_and(|text| without_tests(text).count() > LINES_MAX);
        if !is_longer {
            wrong.push(format!("{name} is no longer than others any more"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_file_says_what_it_is() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        for (name, text) in files(folder, "rs") {
            if !text.starts_with("//! ") {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "no header in {wrong:?}");
}

/// What no file says, written so that this one does not say it either.
#[test]
fn nothing_is_left_to_do_and_no_path_is_of_one_machine() {
    let never = [
        ("todo", "!("),
        ("unimplemented", "!("),
        ("dbg", "!("),
        ("#[ign", "ore"),
        ("/ho", "me/"),
        ("/ro", "ot/"),
        ("/wo", "rk/"),
        ("/Us", "ers/"),
    ]
    .map(|(first, second)| format!("{first}{second}"));
    let mut wrong = Vec::new();
    for (folder, ending) in [
        ("src", "rs"),
        ("src", "proto"),
        ("tests", "rs"),
        ("benches", "rs"),
        ("examples", "rs"),
        ("docs", "md"),
        ("tuning", "toml"),
        ("tuning", "md"),
    ] {
        for (name, text) in files(folder, ending) {
            for (number, line) in text.lines().enumerate() {
                if let Some(found) = never.iter().find(|phrase| line.contains(*phrase)) {
                    wrong.push(format!("{name}:{}: {found}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The commands and files that the README names are there.
#[test]
fn the_readme_names_what_exists() {
    let Ok(readme) = fs::read_to_string(root().join("README.md")) else { panic!("there is no README.md") };
    let mut wrong = Vec::new();
    // Links to files of the package.
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if !link.contains("://") && !root().join(link.split('#').next().unwrap_or(link)).exists() {
            wrong.push(format!("a link to {link}"));
        }
    }
    let main = fs::read_to_string(root().join("src/cli/mod.rs")).expect("the command line has a table of contents");
    let commands: BTreeSet<String> = main
        .split("enum Command {")
        .nth(1)
        .and_then(|rest| rest.split("\n}").next())
        .expect("its commands are an enum")
        .lines()
        .filter_map(|line| line.trim().split('(').next())
        .filter(|name| name.starts_with(char::is_uppercase))
        .map(str::to_lowercase)
        .collect();
    let mut in_shell = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            in_shell = line == "```sh";
            continue;
        }
        if !in_shell {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let command = match words[..] {
            ["fencepost", command, ..] => Some(command),
            ["cargo", "run", ..] => {
                words.iter().position(|word| *word == "--").and_then(|at| words.get(at + 1)).copied()
            }
            _ => None,
        };
        if let Some(command) = command
            && !commands.contains(command)
        {
            wrong.push(format!("fencepost {command}"));
        }
        if words.first().is_some_and(|word| word.starts_with("script/") && !root().join(word).exists()) {
            wrong.push(words[0].to_owned());
        }
    }
    assert!(!commands.is_empty() && wrong.is_empty(), "named and not there: {wrong:?}; commands: {commands:?}");
}

/// The rules themselves: what they must find, and what they must not.
#[test]
fn the_rules_see_code_and_nothing_else() {
    let text = "//! unsafe\nuse crate::dedup::Window; // unsafe\nlet text = \"unsafe \\\" crate::ring\";\nuse crate::{slab, units::Seq};\n#[cfg(test)]\nmod tests;\nuse crate::hlc::Hlc;\n#[cfg(test)]\nmod tests {\n unsafe }\n";
    let code = code(text);
    assert!(!words(&code).any(|word| word == "unsafe"), "{code}");
    let want: BTreeSet<String> = ["dedup", "slab", "units", "hlc"].map(str::to_owned).into();
    assert_eq!(rooms_used(&code), want);
    assert!(words("let x = unsafe { y };").any(|word| word == "unsafe"));
    assert!(!words("#![forbid(unsafe_code)]").any(|word| word == "unsafe"));
    assert_eq!((room("src/shard/turn.rs"), room("src/ingress.rs")), ("shard", "ingress"));
    let sources = sources();
    assert!(is_test_file("src/dedup/tests.rs", &sources) && !is_test_file("src/dedup/window.rs", &sources));
}

/// What the architecture page says of failures is shown by tests that are there.
#[test]
fn the_table_of_failures_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page is text");
    let table = page.split("## What happens when each part fails").nth(1).expect("the section is there");
    let table = table.split("\n## ").next().unwrap_or(table);
    let all: Vec<String> = ["src", "tests"].iter().flat_map(|folder| files(folder, "rs").into_values()).collect();
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        for name in shown.split(", ").map(|name| name.trim_matches('`')) {
            named += 1;
            let declared = format!("fn {name}(");
            assert!(all.iter().any(|text| text.contains(&declared)), "no test is named {name}: {row}");
        }
    }
    assert!(named > 30, "{named} tests are named");
}

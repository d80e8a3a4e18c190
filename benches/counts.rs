//! How many instructions does each piece of work take? The same on every run, whatever else the machine does.
//!
//! The bodies are those that criterion times (`benches/support/bodies`). Each is made and run once, and its second run is
//! counted by callgrind, without what surrounds it; then its answer is checked. Sizes and seeds are fixed, so a count
//! changes with the code and with the compiler alone.
//!
//! `script/bench --check` counts and compares with `benches/baseline.tsv`. Run without `--bench` (as `cargo test --benches`
//! does) it only checks the answers; with `--names` it prints what is counted and how many operations a run has. Counting
//! needs valgrind, and gungraun's runner on the path: the script sees to both.

mod support;

use support::{BODIES, Entry, Size};

/// The bodies that are counted, in the order in which they are numbered.
fn counted() -> impl Iterator<Item = &'static Entry> {
    BODIES.iter().filter(|entry| entry.is_counted)
}

/// What valgrind runs.
mod instructions {
    use super::support::{Body, Size};
    use gungraun::Callgrind;
    use gungraun::prelude::*;

    fn ready(nth: usize) -> Box<dyn Body> {
        let entry = super::counted().nth(nth).expect("it is one of the numbers below");
        let mut body = entry.make(Size::Full);
        body.prepare();
        body.run();
        body.prepare();
        body
    }

    fn check(mut body: Box<dyn Body>) {
        body.check();
    }

    #[library_benchmark]
    #[benches::nr(iter = 0..crate::counted().count(), setup = ready, teardown = check)]
    fn body(mut body: Box<dyn Body>) -> Box<dyn Body> {
        body.run();
        body
    }

    library_benchmark_group!(name = all, benchmarks = [body]);
    main!(
        config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
        library_benchmark_groups = all
    );

    /// Hands over to the runner, or is run by it.
    pub fn count() {
        main();
    }
}

fn main() {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if has("--names") {
        counted().for_each(|entry| println!("{}\t{}", entry.name, entry.operations(Size::Full)));
    } else if has("--gungraun-run") || (has("--bench") && !has("--test")) {
        instructions::count();
    } else {
        for entry in BODIES {
            let mut body = entry.make(Size::Small);
            for _ in 0..2 {
                body.prepare();
                body.run();
            }
            body.check();
        }
        println!("counts: {} bodies, each run twice and checked", BODIES.len());
    }
}

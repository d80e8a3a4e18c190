//! `fencepost-sim`: plays simulated runs of the router from their seeds, many faults at a time, and says whether every
//! promise held. docs/hacking.md, "The simulator".

use fencepost::canary::{CANARIES, Canary};
use fencepost::sim::plan::Plan;
use fencepost::sim::run;
use fencepost::sim::verdict::{Met, Verdict};
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HELP: &str = "\
fencepost-sim plays runs of the router in simulated time: the shards, the dedup window, the breakers, the spill and the
dead letters are the product's own; the clock, the brokers, the disk and the callers are fakes that lie, crash and repeat
themselves as a seed says. After each step every promise is checked from outside; then all faults end, and everything
must settle.

Usage: fencepost-sim [--seed N | --seeds A..B | --seconds S [--seeds A..]] [--steps N] [--jobs N] [--canary NAME] [--tell] [--quiet]

  --seed N       Plays one seed and prints its options.
  --seeds A..B   Plays the seeds from A up to, not including, B; 0..1000 without it.
  --seconds S    Plays seeds until so many seconds are over: from A of --seeds A.. on, or from one that the clock gives.
  --steps N      Steps of each run; 2000 without it.
  --jobs N       Threads; as many as there are CPUs without it.
  --canary NAME  Plants a defect first, in a build with the feature `canary`: a wrong name lists them.
  --tell         Prints each step and each event of the shortest history that fails.
  --quiet        Prints no progress.

The first run that fails is printed with its seed, its options, what does not hold, and the shortest history that still
fails, found within 60 seconds.

Exit codes: 0 everything held; 1 something did not; 2 usage.";

/// How long the shrinking of a history may take.
const SHRINK_LIMIT: Duration = Duration::from_secs(60);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(2);

struct Options {
    seeds: Range<u64>,
    is_one: bool,
    limit: Option<Duration>,
    steps: u32,
    jobs: usize,
    is_quiet: bool,
    is_told: bool,
    canary: Option<Canary>,
}

fn options() -> Result<Option<Options>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        seeds: 0..1_000,
        is_one: false,
        limit: None,
        steps: 2_000,
        jobs,
        is_quiet: false,
        is_told: false,
        canary: None,
    };
    let mut has_seeds = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "-h" | "--help" => return Ok(None),
            "--quiet" => {
                options.is_quiet = true;
                continue;
            }
            "--tell" => {
                options.is_told = true;
                continue;
            }
            _ => {}
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} = {value:?} is no number"));
        match name.as_str() {
            "--seed" => {
                let seed = number()?;
                (options.seeds, options.is_one, has_seeds) = (seed..seed + 1, true, true);
            }
            "--seeds" => {
                let parts = value.split_once("..");
                let (from, to) = parts.ok_or_else(|| format!("--seeds = {value:?} is not of the form A..B"))?;
                let from = from.parse().map_err(|_| format!("--seeds = {value:?}: {from:?} is no number"))?;
                let to = match to {
                    "" => u64::MAX,
                    to => to.parse().map_err(|_| format!("--seeds = {value:?}: {to:?} is no number"))?,
                };
                if to <= from {
                    return Err(format!("--seeds = {value:?} holds no seed"));
                }
                (options.seeds, has_seeds) = (from..to, true);
            }
            "--seconds" => options.limit = Some(Duration::from_secs(number()?)),
            "--steps" => options.steps = u32::try_from(number()?).map_err(|_| "--steps is too large".to_owned())?,
            "--canary" => {
                let known = CANARIES.iter().find(|(_, name)| *name == value);
                let (canary, _) = known.ok_or_else(|| {
                    let names: Vec<&str> = CANARIES.iter().map(|(_, name)| *name).collect();
                    format!("--canary = {value:?}; there are {}", names.join(", "))
                })?;
                options.canary = Some(*canary);
            }
            "--jobs" if value != "0" => options.jobs = number()? as usize,
            "--jobs" => return Err("--jobs = 0: at least one thread plays".to_owned()),
            _ => return Err(format!("{name} is no option; --help lists them")),
        }
    }
    if options.limit.is_some() && !has_seeds {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        options.seeds = now.as_nanos() as u64 >> 16..u64::MAX;
    }
    Ok(Some(options))
}

/// What all runs met.
#[derive(Default)]
struct Sum {
    runs: u64,
    met: Met,
}

impl Sum {
    fn add(&mut self, met: Met) {
        self.runs += 1;
        let sum = &mut self.met;
        for (into, from) in [
            (&mut sum.accepted, met.accepted),
            (&mut sum.landed, met.landed),
            (&mut sum.collapsed, met.collapsed),
            (&mut sum.spilled, met.spilled),
            (&mut sum.dead_letters, met.dead_letters),
            (&mut sum.given_back, met.given_back),
            (&mut sum.shed, met.shed),
            (&mut sum.starts, met.starts),
            (&mut sum.rebuilds, met.rebuilds),
            (&mut sum.opened, met.opened),
        ] {
            *into += from;
        }
        sum.simulated = sum.simulated + met.simulated;
    }

    fn print(&self, took: Duration) {
        let Met { simulated, .. } = self.met;
        let hours = simulated.0 as f64 / 3.6e12;
        let met = self.met;
        println!("{:>12}  runs, in {:.1} s", self.runs, took.as_secs_f64());
        println!("{hours:>12.1}  simulated hours, {:.1} a minute", hours / took.as_secs_f64() * 60.0);
        for (number, what) in [
            (met.accepted, "triggers accepted"),
            (met.landed, "records in the topic"),
            (met.collapsed, "repeats collapsed"),
            (met.spilled, "triggers over the disk"),
            (met.dead_letters, "dead letters"),
            (met.given_back, "given back"),
            (met.shed, "submits shed"),
            (met.opened, "breakers opened"),
            (met.rebuilds, "handles replaced"),
            (met.starts, "starts after a death or a stop"),
        ] {
            println!("{number:>12}  {what}");
        }
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("fencepost-sim: {why}");
            return ExitCode::from(2);
        }
    };
    run::hear_panics();
    if let Some(canary) = options.canary
        && !plant(canary)
    {
        eprintln!("fencepost-sim: this build carries no canaries; build it with --features canary");
        return ExitCode::from(2);
    }
    if options.is_one {
        let plan = Plan::draw(options.seeds.start, options.steps);
        println!("seed {}\n{plan}\n", plan.seed);
    }
    let began = Instant::now();
    let (next, stop) = (AtomicU64::new(options.seeds.start), AtomicBool::new(false));
    let (sum, failed) = (Mutex::new(Sum::default()), Mutex::new(None::<(Plan, Verdict)>));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                let is_over = || options.limit.is_some_and(|limit| began.elapsed() >= limit);
                while !stop.load(Ordering::Relaxed) && !is_over() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.seeds.end {
                        break;
                    }
                    let plan = Plan::draw(seed, options.steps);
                    let verdict = run::run(&plan, &run::steps(&plan));
                    sum.lock().expect("no thread panics with it").add(verdict.met);
                    if verdict.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                        let mut first = failed.lock().expect("no thread panics with it");
                        first.get_or_insert((plan, verdict));
                    }
                }
                stop.store(options.jobs == 1, Ordering::Relaxed);
            });
        }
        let mut said = Instant::now();
        while !options.is_quiet && std::io::stderr().is_terminal() {
            std::thread::sleep(Duration::from_millis(50));
            let runs = next.load(Ordering::Relaxed) - options.seeds.start;
            if stop.load(Ordering::Relaxed) || runs > options.seeds.end - options.seeds.start {
                break;
            }
            if said.elapsed() >= PROGRESS {
                said = Instant::now();
                eprint!("\r{runs} runs, {:.0} s ", began.elapsed().as_secs_f64());
                std::io::stderr().flush().ok();
            }
            if options.limit.is_some_and(|limit| began.elapsed() >= limit) {
                break;
            }
        }
    });
    let took = began.elapsed();
    let sum = sum.into_inner().expect("no thread panics with it");
    match failed.into_inner().expect("no thread panics with it") {
        None => {
            sum.print(took);
            println!("every promise held");
            ExitCode::SUCCESS
        }
        Some((plan, verdict)) => {
            report(&plan, verdict, options.steps, options.is_told);
            ExitCode::FAILURE
        }
    }
}

/// Switches a planted defect on. False: there are none in this build.
fn plant(canary: Canary) -> bool {
    #[cfg(feature = "canary")]
    fencepost::canary::plant(Some(canary));
    let _ = canary;
    cfg!(feature = "canary")
}

/// The seed, the options, what does not hold, and the shortest history.
fn report(plan: &Plan, verdict: Verdict, steps: u32, is_told: bool) {
    let violation = verdict.violation.expect("it failed");
    println!("seed {}\n{plan}\n\n{violation}\n", plan.seed);
    let began = Instant::now();
    let shrunk = run::shrink(plan, violation, || began.elapsed() >= SHRINK_LIMIT);
    println!(
        "the shortest history that fails so, {} of {steps} steps, after {} runs:",
        shrunk.steps.len(),
        shrunk.runs
    );
    for step in &shrunk.steps {
        println!("  {:>6}  {}", step.number, step.action(plan));
    }
    println!("\n{}\n\nreplay: fencepost-sim --seed {} --steps {steps}", shrunk.violation, plan.seed);
    if is_told {
        println!("\nits steps and events, with the time in ms:");
        run::tell(plan, &shrunk.steps).iter().for_each(|line| println!("{line}"));
    }
}

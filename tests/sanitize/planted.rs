//! One planted defect of each kind that `script/sanitize` looks for, in Rust and in C, and a clean run that has none.
//!
//! The script builds this with each sanitizer, as it builds the tests, and runs it first: a sanitizer that does not see
//! what is planted here, or cries over the clean run, proves nothing about the rest. The last line of a clean run says so.
//! Miri, which interprets, is spared the C and most of the rounds.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

unsafe extern "C" {
    fn planted_race_in_c();
    fn planted_use_after_free_in_c() -> i32;
    fn planted_uninitialised_in_c() -> i32;
    fn planted_leak_in_c();
    fn clean_in_c() -> i32;
}

const ROUNDS: usize = if cfg!(miri) { 200 } else { 20_000 };
/// How often the clean run does what takes new threads.
const FEW: usize = if cfg!(miri) { 3 } else { 200 };

struct Unguarded(UnsafeCell<u64>);

// SAFETY: there is none. It is the planted race.
unsafe impl Sync for Unguarded {}

#[inline(never)]
fn planted_race() {
    let shared = Unguarded(UnsafeCell::new(0));
    let shared = &shared;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // SAFETY: there is none. Both threads write.
                    unsafe { *black_box(shared.0.get()) += 1 };
                }
            });
        }
    });
}

#[inline(never)]
fn planted_race_across_c() {
    thread::scope(|scope| {
        for _ in 0..2 {
            // SAFETY: there is none. Both threads write.
            scope.spawn(|| (0..ROUNDS).for_each(|_| unsafe { planted_race_in_c() }));
        }
    });
}

#[inline(never)]
fn planted_use_after_free() -> u8 {
    let layout = Layout::new::<[u8; 64]>();
    // SAFETY: there is none. It is read after it is freed.
    unsafe {
        let place = alloc(layout);
        place.write_bytes(7, 64);
        dealloc(black_box(place), layout);
        black_box(place).add(5).read_volatile()
    }
}

#[inline(never)]
fn planted_uninitialised() -> i32 {
    let layout = Layout::new::<[u8; 64]>();
    // SAFETY: there is none. It is read before it is written.
    unsafe {
        let place = alloc(layout);
        // Memcheck reports where an address, or a branch, hangs on it. A branch may be compiled to none.
        let at = usize::from(black_box(place).add(5).read_volatile());
        let answer = black_box(&[1; 256]).as_ptr().add(at).read_volatile();
        dealloc(place, layout);
        answer
    }
}

/// What no pointer is left to. The stack below is overwritten, so that none is found there by chance.
#[inline(never)]
fn planted_leak() {
    #[inline(never)]
    fn lose() {
        black_box(Box::leak(Box::new([7_u8; 4_096])));
    }
    lose();
    black_box([0_u8; 16_384]);
}

/// What the tests do all the time, contended, without a fault: locks, condition variables, channels, shared counts, parking.
#[inline(never)]
fn clean() {
    struct Shared {
        sum: Mutex<Vec<u64>>,
        changed: Condvar,
    }
    let shared = Arc::new(Shared { sum: Mutex::new(vec![0; 4]), changed: Condvar::new() });
    let (sender, receiver) = channel();
    let waiter = {
        let shared = shared.clone();
        thread::spawn(move || {
            let mut sum = shared.sum.lock().expect("no holder panics");
            while sum[0] < 2 * ROUNDS as u64 {
                sum = shared.changed.wait(sum).expect("no holder panics");
            }
            sum.push(1);
        })
    };
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (shared, sender) = (shared.clone(), sender.clone());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let mut sum = shared.sum.lock().expect("no holder panics");
                    sum[0] += 1;
                    sum[3] = round as u64;
                    drop(sum);
                    shared.changed.notify_all();
                    if round % 100 == 0 {
                        sender.send(Box::new(round)).expect("the receiver waits");
                    }
                }
                thread::park();
            })
        })
        .collect();
    drop(sender);
    let mut got = 0;
    while got < 2 * ROUNDS / 100 {
        got += usize::from(*receiver.recv().expect("the workers send") < ROUNDS);
    }
    for worker in workers {
        worker.thread().unpark();
        worker.join().expect("no worker panics");
    }
    waiter.join().expect("the waiter does not panic");
    assert_eq!(shared.sum.lock().expect("no holder panics")[0], 2 * ROUNDS as u64);
    let (guarded, condvar) = (Mutex::new(0_u64), Condvar::new());
    let once = OnceLock::new();
    let mut scoped = [0_u64; 2];
    thread::scope(|scope| {
        for part in &mut scoped {
            let (guarded, condvar, once) = (&guarded, &condvar, &once);
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut held = guarded.lock().expect("no holder panics");
                    *held += 1;
                    condvar.notify_one();
                    drop(condvar.wait_timeout(held, Duration::from_micros(50)).expect("no holder panics"));
                    *part += once.get_or_init(|| vec![1_u64; 8]).iter().sum::<u64>();
                }
            });
        }
    });
    assert_eq!((scoped, *guarded.lock().expect("no holder panics")), ([800; 2], 200));
    let held = Arc::new(Mutex::new(vec![0_u8; 64]));
    for _ in 0..FEW {
        let other = held.clone();
        let toucher = thread::spawn(move || other.lock().expect("no holder panics")[3] += 1);
        held.lock().expect("no holder panics")[3] ^= 1;
        toucher.join().expect("it does not panic");
    }
    // The last owner frees what the others wrote.
    for _ in 0..FEW {
        let last = Arc::new(UnsafeCell::new([0_u64; 8]));
        let owners: Vec<_> = (0..3)
            .map(|at| {
                struct Own(Arc<UnsafeCell<[u64; 8]>>, usize);
                // SAFETY: each owner writes a word of its own.
                unsafe impl Send for Own {}
                let own = Own(last.clone(), at);
                thread::spawn(move || {
                    let own = own;
                    // SAFETY: see above.
                    unsafe { own.0.get().cast::<u64>().add(own.1).write(1) };
                    drop(own);
                })
            })
            .collect();
        drop(last);
        owners.into_iter().for_each(|owner| owner.join().expect("it does not panic"));
    }
    // SAFETY: it takes nothing and keeps nothing.
    assert_eq!(if cfg!(miri) { 7 } else { unsafe { clean_in_c() } }, 7);
}

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    match what.as_str() {
        "clean" => clean(),
        "race" => planted_race(),
        "race-in-c" => planted_race_across_c(),
        "use-after-free" => println!("{}", planted_use_after_free()),
        // SAFETY: there is none in these. They are what is looked for.
        "use-after-free-in-c" => println!("{}", unsafe { planted_use_after_free_in_c() }),
        "uninitialised" => println!("{}", planted_uninitialised()),
        "uninitialised-in-c" => println!("{}", unsafe { planted_uninitialised_in_c() }),
        "leak" => planted_leak(),
        "leak-in-c" => unsafe { planted_leak_in_c() },
        _ => {
            eprintln!("planted: there is no {what:?}");
            std::process::exit(2);
        }
    }
    println!("planted: {what} ran to its end");
}

//! Seeds of the simulation, many at a time or one by itself; see sim/README.md.
//!
//! `MILLSTREAM_SIM_SEEDS=A..B` chooses the seeds, `MILLSTREAM_SIM_SEED=N` one whose trace is shown.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millstream_sim::{Flaw, Mutation, Planted, Run, run};

/// What a plain `cargo test` runs; `tests/nightly` runs five times as many.
const SEEDS: Range<u64> = 0..2_000;
/// Each mistake of the model must be found within so many seeds.
const SEEDS_PER_FLAW: u64 = 400;
/// So many failures are shown.
const SHOWN_MAX: usize = 3;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("MILLSTREAM_SIM_SEEDS") else { return SEEDS };
    let range = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    range.unwrap_or_else(|| panic!("MILLSTREAM_SIM_SEEDS={text}: write FIRST..END"))
}

/// Does `work` on all cores.
fn on_all_cores(work: impl Fn() + Sync) {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(&work)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("it passes panics on"));
    });
}

/// Runs `seeds` on all cores; gives the failures of the first that fail.
fn failures(seeds: Range<u64>) -> Vec<String> {
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
    on_all_cores(|| {
        while failed.lock().expect("no panic").len() < SHOWN_MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Some(failure) = run(seed, Planted::Nothing).failure() {
                failed.lock().expect("no panic").insert(seed, failure);
            }
        }
    });
    failed.into_inner().expect("no panic").into_values().take(SHOWN_MAX).collect()
}

/// Prints which of `seeds` finds each of `planted`, and what it says; gives those that none finds.
fn unfound(planted: &[Planted], seeds: Range<u64>) -> Vec<Planted> {
    let (next, unfound) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    on_all_cores(|| {
        while let Some(planted) = planted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut runs = seeds.clone().map(|seed| run(seed, *planted));
            let is_well = |seed| run(seed, Planted::Nothing).violation.is_none();
            match runs.find(|run| run.violation.is_some() && is_well(run.seed)) {
                Some(Run { seed, violation, .. }) => {
                    let violation = violation.unwrap_or_default();
                    let shown: String = violation.chars().take(160).collect();
                    println!("{planted:?} is found by seed {seed}: {shown}");
                }
                None => unfound.lock().expect("no panic").push(*planted),
            }
        }
    });
    unfound.into_inner().expect("no panic")
}

#[test]
fn no_schedule_loses_doubles_or_damages_anything() {
    let failed = failures(seeds());
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n\n"));
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in 0..100 {
        let again = || run(seed, Planted::Nothing).trace;
        let (one, two) = (again(), again());
        if one.hash() != two.hash() {
            let difference = one.first_difference(&two).expect("their hashes differ");
            panic!("seed {seed} took two ways, from {difference}");
        }
    }
}

#[test]
fn mistakes_of_the_model_are_found() {
    let unfound = unfound(&Flaw::ALL.map(Planted::World), 0..SEEDS_PER_FLAW);
    assert!(unfound.is_empty(), "no seed below {SEEDS_PER_FLAW} finds {unfound:?}");
}

#[test]
fn mistakes_of_the_driver_are_found() {
    let unfound = unfound(&Mutation::ALL.map(Planted::Driver), SEEDS);
    assert!(unfound.is_empty(), "no seed of {SEEDS:?} finds {unfound:?}");
}

#[test]
fn a_failure_names_its_seed_and_how_to_see_it_again() {
    let planted = Planted::World(Flaw::AcknowledgesEarly);
    let mut runs = (0..SEEDS_PER_FLAW).map(|seed| run(seed, planted));
    let failed: Run = runs.find(|run| run.violation.is_some()).expect("some seed finds it");
    let text = failed.failure().expect("it failed");
    let seed = failed.seed;
    assert!(text.contains(&format!("seed {seed}:")), "{text}");
    assert!(text.contains(&format!("MILLSTREAM_SIM_SEED={seed} cargo test")), "{text}");
    assert!(text.contains("VIOLATION"), "{text}");
}

/// Shows the whole trace of one seed, where one is asked for.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("MILLSTREAM_SIM_SEED") else { return };
    let run = run(seed.parse().expect("MILLSTREAM_SIM_SEED is a number"), Planted::Nothing);
    println!("{}", run.trace.lines().join("\n"));
    assert!(run.violation.is_none(), "{}", run.failure().unwrap_or_default());
}

//! Seeds of the simulation, many at a time or one by itself; see sim/README.md.
//!
//! `MILLSTREAM_SIM_SEEDS=A..B` chooses the seeds, `MILLSTREAM_SIM_SEED=N` one whose trace is shown.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_sim::{Flaw, Run, run};

/// What a plain `cargo test` runs; ten thousand take one core some minutes without optimisation.
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

/// Runs `seeds` on all cores; gives the failures of the first that fail.
fn failures(seeds: Range<u64>) -> Vec<String> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut failed = BTreeMap::new();
        while failed.len() < SHOWN_MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Some(failure) = run(seed, None).failure() {
                failed.insert(seed, failure);
            }
        }
        failed
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let failed: BTreeMap<u64, String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("it passes panics on")).collect()
    });
    failed.into_values().take(SHOWN_MAX).collect()
}

#[test]
fn no_schedule_loses_doubles_or_damages_anything() {
    let failed = failures(seeds());
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n\n"));
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in 0..100 {
        let (one, two) = (run(seed, None).trace, run(seed, None).trace);
        if one.hash() != two.hash() {
            let difference = one.first_difference(&two).expect("their hashes differ");
            panic!("seed {seed} took two ways, from {difference}");
        }
    }
}

#[test]
fn mistakes_of_the_model_are_found() {
    for flaw in Flaw::ALL {
        let found = (0..SEEDS_PER_FLAW).find(|seed| run(*seed, Some(flaw)).violation.is_some());
        assert!(found.is_some(), "{flaw:?}: no seed below {SEEDS_PER_FLAW} finds it");
        println!("{flaw:?} is found by seed {}", found.unwrap_or_default());
    }
}

#[test]
fn a_failure_names_its_seed_and_how_to_see_it_again() {
    let mut runs = (0..SEEDS_PER_FLAW).map(|seed| run(seed, Some(Flaw::AcknowledgesEarly)));
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
    let run = run(seed.parse().expect("MILLSTREAM_SIM_SEED is a number"), None);
    println!("{}", run.trace.lines().join("\n"));
    assert!(run.violation.is_none(), "{}", run.failure().unwrap_or_default());
}

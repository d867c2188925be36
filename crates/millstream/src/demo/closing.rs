//! What the demo says at its end: how fast, what is written where, and what to try next.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use millstream_engine::driver::Finished;

use crate::histogram::Histogram;
use crate::human;

/// What one flow did, from start to end.
pub struct FlowResult {
    /// The flow's name.
    pub flow: String,
    /// What it did.
    pub finished: Finished,
    /// How long it ran.
    pub took: Duration,
    /// A latency per micro-batch.
    pub latencies: Histogram,
}

/// The closing words. `program` is how the user called this program.
pub fn text(directory: &Path, program: &str, results: &[FlowResult]) -> String {
    let mut text = String::from("\n");
    push_table(&mut text, results);
    push_files(&mut text, directory);
    push_next(&mut text, directory, program);
    text
}

fn push_table(text: &mut String, results: &[FlowResult]) {
    let _ = writeln!(
        text,
        "{:12} {:>10} {:>8} {:>7} {:>13}   {:>8} {:>8} {:>8} {:>8}",
        "", "rows in", "rows/s", "alerts", "micro-batches", "p50", "p90", "p99", "max"
    );
    for result in results {
        let Finished { micro_batches, rows_in, rows_out } = result.finished;
        let rate = rows_in as f64 / result.took.as_secs_f64().max(f64::MIN_POSITIVE);
        let shares = [0.5, 0.9, 0.99, 1.0];
        let [p50, p90, p99, max] = shares.map(|share| {
            let quantile = result.latencies.quantile(share);
            quantile.map_or_else(|| "-".into(), human::duration)
        });
        let _ = writeln!(
            text,
            "{:12} {:>10} {:>8} {:>7} {:>13}   {p50:>8} {p90:>8} {p99:>8} {max:>8}",
            result.flow,
            human::count(rows_in),
            human::short(rate),
            human::count(rows_out),
            human::count(micro_batches),
        );
    }
    text.push_str(
        "Latency is from the arrival of a micro-batch's oldest row until its alerts are in the \
         file\nand on disk.\n\n",
    );
}

fn push_files(text: &mut String, directory: &Path) {
    let _ = writeln!(text, "Written to {}", directory.display());
    for (name, about) in [
        ("leaks", "alerts about personal data, JSON lines"),
        ("too_hot", "alerts about temperatures"),
    ] {
        let (files, size) = contents(&directory.join(name));
        let amount = format!("{}, {}", human::counted(files, "file"), human::bytes(size));
        let _ = writeln!(text, "  {name:24} {about} ({amount})");
    }
    for (name, about) in [
        ("*.sql", "the pipeline files"),
        ("checkpoints/", "where each flow continues, in Spark's own layout: metadata"),
        ("", "(the query's id), offsets/N (what micro-batch N reads), commits/N"),
        ("", "(its alerts are out), sources/ (where the source began)"),
    ] {
        let _ = writeln!(text, "  {name:24} {about}");
    }
}

fn push_next(text: &mut String, directory: &Path, program: &str) {
    let directory = directory.display();
    let _ = writeln!(
        text,
        "\nTry next\n  {program} validate {directory}/pii.sql\n      what the SQL means: schemas and \
         plans\n  {program} run {directory}/pii.sql --for 10s\n      the same flow again: it continues where it stopped, first with what became due since\n  {program} checkpoint show \
         {directory}/checkpoints/pii\n      what there is to continue from\n  {program} demo --webhook URL\n      the \
         same, with a request to URL for each leak"
    );
}

/// How many files a directory has, and their size in bytes, leaving out hidden ones.
fn contents(directory: &Path) -> (u64, u64) {
    let Ok(entries) = directory.read_dir() else { return (0, 0) };
    let visible = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        !name.to_string_lossy().starts_with(['.', '_'])
    });
    let sizes = visible.filter_map(|entry| entry.metadata().ok()).filter(|file| file.is_file());
    sizes.fold((0, 0), |(files, bytes), file| (files + 1, bytes + file.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_has_latencies_places_and_next_steps() {
        let mut latencies = Histogram::default();
        latencies.record(Duration::from_micros(2_100));
        let finished = Finished { micro_batches: 4_000, rows_in: 400_000, rows_out: 37 };
        let took = Duration::from_secs(20);
        let result = FlowResult { flow: "pii".into(), finished, took, latencies };
        let text = text(Path::new("/there"), "millstream", &[result]);
        let words = ["p50", "p99", "400,000", "20.0k", "37", "4,000", "2.1 ms", "Try next"];
        for word in words {
            assert!(text.contains(word), "no {word} in\n{text}");
        }
        assert_eq!(text.matches("  millstream ").count(), 4, "four commands in\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

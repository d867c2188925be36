//! Checkpoints that a crash, a bad disk, another program or a person has damaged.
//!
//! Whatever is found, one of two things is right: a clear error, with every byte left as it was,
//! or a recovery after which the output is complete and nothing is doubled. Which of the two is
//! promised on the pages `docs/operations.md` (Damaged logs) and `docs/reference/checkpoint.md`
//! (Damage), and each case here expects that one.

use std::fs;

use crate::files_and_static::{put, sorted_lines};
use crate::millstream::{Finished, Pipeline, table};

const AVAILABLE: [&str; 2] = ["--trigger", "availableNow"];

/// A pipeline from JSON files to JSON files with three micro-batches done, 0 to 2.
fn after_three() -> Pipeline {
    let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW copy AS INSERT INTO target SELECT n FROM STREAM source;\n",
        table("source", "(n BIGINT)", "json", &source),
        table("target", "", "json", &[("path", "output")]),
    ));
    for n in 0..3 {
        put(&pipeline, &format!("input/{n}.json"), &format!("{{\"n\":{n}}}\n"));
    }
    pipeline.run_available();
    assert_eq!(pipeline.checkpoint().ids("commits"), [0, 1, 2]);
    put(&pipeline, "input/3.json", "{\"n\":3}\n");
    pipeline
}

fn write(pipeline: &Pipeline, name: &str, content: &str) {
    fs::write(pipeline.checkpoint().path(name), content).expect("the checkpoint is ours");
}

fn read(pipeline: &Pipeline, name: &str) -> String {
    fs::read_to_string(pipeline.checkpoint().path(name)).expect("it was written")
}

fn remove(pipeline: &Pipeline, name: &str) {
    fs::remove_file(pipeline.checkpoint().path(name)).expect("it was written");
}

fn assert_output_complete(pipeline: &Pipeline) {
    let expected: Vec<_> = (0..4).map(|n| format!("{{\"n\":{n}}}")).collect();
    assert_eq!(sorted_lines(&pipeline.path("output")), expected, "every row exactly once");
}

/// The run must stop with an error that has `words`, and leave the checkpoint as it is.
fn assert_refused(pipeline: &Pipeline, words: &[&str]) {
    let before = pipeline.checkpoint().bytes();
    let finished = pipeline.run(&AVAILABLE).without_internals().expect_exit(1);
    assert_eq!(pipeline.checkpoint().bytes(), before, "a refusal changes nothing");
    finished.says(words);
}

/// The run must go on, and every row must be in the output once.
fn assert_recovers(pipeline: &Pipeline) -> Finished {
    let finished = pipeline.run(&AVAILABLE).expect_success();
    assert_output_complete(pipeline);
    finished
}

/// The contents of the files of entry `id` that recoveries have moved aside.
fn moved_aside(pipeline: &Pipeline, log: &str, id: u64) -> Vec<String> {
    let entries = fs::read_dir(pipeline.checkpoint().path(log)).expect("the log is there");
    let files = entries.map(|entry| entry.expect("the log can be listed"));
    let of_id = format!(".{id}.torn-");
    let aside = files.filter(|file| file.file_name().to_string_lossy().starts_with(&of_id));
    aside.map(|file| fs::read_to_string(file.path()).expect("it is text")).collect()
}

#[test]
fn an_undamaged_checkpoint_goes_on() {
    assert_recovers(&after_three());
}

#[test]
fn a_torn_or_empty_last_offset_entry() {
    for keep in [0, 1, 3, 40] {
        // Torn by a crash: the micro-batch was published, as that comes before, and the sink says
        // how far the query came with it.
        let pipeline = after_three();
        remove(&pipeline, "commits/2");
        let whole = read(&pipeline, "offsets/2");
        write(&pipeline, "offsets/2", &whole[..keep]);
        assert_recovers(&pipeline);
        assert_eq!(moved_aside(&pipeline, "offsets", 2), [&whole[..keep]], "nothing is deleted");

        // The sink's record is gone, too, and nothing says what was published.
        let pipeline = after_three();
        remove(&pipeline, "commits/2");
        write(&pipeline, "offsets/2", &whole[..keep]);
        let record = pipeline.path("output/_millstream/commits");
        fs::remove_dir_all(&record).expect("it was published");
        let finished = pipeline.run(&AVAILABLE).without_internals().expect_exit(1);
        finished.says(&["output/_millstream/commits", "its last record is missing"]);

        // Torn by a power cut, which took the intent and left the commit entry: the sink says how
        // far the query came with it.
        let pipeline = after_three();
        let commit = read(&pipeline, "commits/2");
        write(&pipeline, "offsets/2", &whole[..keep]);
        assert_recovers(&pipeline);
        assert_eq!(moved_aside(&pipeline, "offsets", 2), [&whole[..keep]], "nothing is deleted");
        assert_eq!(moved_aside(&pipeline, "commits", 2), [commit], "nothing is deleted");

        // The sink's record is gone, too: its end must not be guessed.
        let pipeline = after_three();
        write(&pipeline, "offsets/2", &whole[..keep]);
        fs::remove_dir_all(pipeline.path("output/_millstream/commits")).expect("it was published");
        let finished = pipeline.run(&AVAILABLE).without_internals().expect_exit(1);
        finished.says(&["output/_millstream/commits", "its last record is missing"]);
    }
}

#[test]
fn a_torn_or_empty_last_commit_entry() {
    for content in ["", "v", "v1\n{\"nextBatch"] {
        let pipeline = after_three();
        write(&pipeline, "commits/2", content);
        // The sink says that it has published the micro-batch, so that it does not run again.
        assert_recovers(&pipeline);
        assert_eq!(moved_aside(&pipeline, "commits", 2), [content], "nothing is deleted");
        assert_eq!(pipeline.checkpoint().ids("commits"), [0, 1, 2, 3]);
    }
}

#[test]
fn an_entry_of_a_newer_version() {
    for log in ["offsets", "commits"] {
        let pipeline = after_three();
        let name = format!("{log}/2");
        let newer = read(&pipeline, &name).replacen("v1", "v9", 1);
        write(&pipeline, &name, &newer);
        assert_refused(&pipeline, &[&name, "v9"]);
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let pipeline = after_three();
    let foreign = ["offsets/notes.txt", "offsets/3.bak", "offsets/03", "commits/3.tmp", "README"];
    // What a crash left of an entry that was being written, and a checksum whose entry is gone:
    // with a wrong checksum beside it, Spark would refuse the entry that is written now.
    let left_over = ["offsets/.3.0b9e8c1e-6a43-4d6f-9d3c-2f9f0f6b7a11.tmp", "commits/.3.crc"];
    for name in foreign.iter().chain(&left_over) {
        write(&pipeline, name, "not a log entry");
    }
    assert_recovers(&pipeline);
    for name in foreign {
        assert_eq!(read(&pipeline, name), "not a log entry", "{name} was overwritten");
    }
    for name in left_over {
        assert!(!pipeline.checkpoint().path(name).exists(), "{name} is still there");
    }
}

#[test]
fn metadata_that_is_missing_or_damaged() {
    let pipeline = after_three();
    remove(&pipeline, "metadata");
    assert_refused(&pipeline, &["metadata", "checkpoint"]);
    for content in ["", "{\"id\":", "{}", "[]"] {
        write(&pipeline, "metadata", content);
        assert_refused(&pipeline, &["metadata"]);
    }
}

#[test]
fn an_offset_entry_that_is_missing() {
    // Nothing rests on micro-batch 1: it is committed, and so is the next one.
    let pipeline = after_three();
    remove(&pipeline, "offsets/1");
    assert_recovers(&pipeline);

    // Micro-batch 2 is not known to be published. It starts where the last committed entry that is
    // there ends, as in the sparse logs of Spark's asynchronous progress tracking, so nothing is
    // lost; and nothing is doubled, because the sink knows that it has published it.
    let pipeline = after_three();
    remove(&pipeline, "commits/2");
    remove(&pipeline, "offsets/1");
    assert_recovers(&pipeline);

    // With no committed entry there, micro-batch 2 has no start.
    let pipeline = after_three();
    remove(&pipeline, "commits/2");
    for id in 0..2 {
        remove(&pipeline, &format!("offsets/{id}"));
    }
    assert_refused(&pipeline, &["offsets/2"]);

    let pipeline = after_three();
    for id in 0..3 {
        remove(&pipeline, &format!("offsets/{id}"));
    }
    assert_refused(&pipeline, &["offsets"]);
}

#[test]
fn a_commit_without_its_intent() {
    let pipeline = after_three();
    remove(&pipeline, "offsets/2");
    assert_refused(&pipeline, &["commits/2", "offsets ends at 1"]);
}

#[test]
fn a_crash_before_the_commit_entry_doubles_nothing() {
    let pipeline = after_three();
    let intent = read(&pipeline, "offsets/2");
    remove(&pipeline, "commits/2");
    assert_recovers(&pipeline);
    assert_eq!(read(&pipeline, "offsets/2"), intent, "the logged range is the one that ran");
    assert_eq!(pipeline.checkpoint().ids("commits"), [0, 1, 2, 3]);
}

#[test]
fn a_checkpoint_of_another_query() {
    let pipeline = after_three();
    let entry = read(&pipeline, "offsets/2");
    write(&pipeline, "offsets/2", &format!("{entry}\n{{\"logOffset\":0}}"));
    assert_refused(&pipeline, &["2 sources", "1"]);

    // A source's offset that is not this source's.
    let pipeline = after_three();
    let (rest, _) = entry.rsplit_once('\n').expect("it has lines");
    write(&pipeline, "offsets/2", &format!("{rest}\n{{\"topic\":{{\"0\":17}}}}"));
    assert_refused(&pipeline, &["offset", "topic"]);
}

#[test]
fn a_checkpoint_with_state_is_refused() {
    let pipeline = after_three();
    let state = pipeline.checkpoint().path("state/0/0");
    fs::create_dir_all(&state).expect("the checkpoint is ours");
    fs::write(state.join("1.delta"), "").expect("the checkpoint is ours");
    assert_refused(&pipeline, &["state"]);
}

//! What a restart decides, by what the logs and the sinks have.

mod several;

use millstream_store::commit_log;

use super::*;

fn entry(id: u64) -> (BatchId, offset_log::Entry) {
    let offsets = vec![offset(id * 10)];
    let entry =
        offset_log::Entry { batch_watermark_ms: 0, batch_timestamp_ms: 7, conf: vec![], offsets };
    (BatchId(id), entry)
}

fn offset(at: u64) -> Option<SourceOffset> {
    Some(SourceOffset::new(at.to_string()))
}

/// A sink's answer: micro-batch `id`, up to the offset `end` if it knows that.
fn published(id: u64, end: Option<u64>) -> Option<Published> {
    let end_offsets = end.map(|end| EndOffsets { ends: vec![offset(end)], batch_time_ms: 9 });
    Some(Published { batch_id: BatchId(id), end_offsets })
}

/// Intents up to `last`, commits up to `commit`.
fn recovered(last: u64, commit: Option<u64>) -> Recovered {
    let first_open = commit.map_or(0, |commit| commit + 1);
    Recovered {
        previous_intent: last.checked_sub(1).map(entry),
        last_intent: Some(entry(last)),
        last_commit: commit.map(|id| (BatchId(id), commit_log::Entry::default())),
        unfinished: (first_open..=last).map(entry).collect(),
        finished_intent: commit.map(entry),
    }
}

#[test]
fn a_new_query_starts_at_zero() {
    let resume = decide(Recovered::default(), &[None], 1).unwrap();
    assert_eq!((resume.next_id, resume.replays), (BatchId(0), vec![]));
    assert!(!resume.conf.is_empty(), "Spark's settings are written from the start");
}

/// As many entries as up to that number would be made otherwise.
#[test]
fn a_record_of_a_number_that_no_query_reaches_is_refused() {
    for id in [u64::MAX, 1 << 60] {
        for end in [None, Some(50)] {
            let refused = decide(recovered(4, Some(4)), &[published(id, end)], 1).unwrap_err();
            assert_eq!(refused, ResumeError::OutOfReach { batch_id: BatchId(id) });
        }
    }
}

#[test]
fn after_a_commit_the_next_micro_batch_follows() {
    let resume = decide(recovered(4, Some(4)), &[None], 1).unwrap();
    assert_eq!((resume.next_id, resume.replays), (BatchId(5), vec![]));
    assert_eq!(resume.positions, vec![offset(40)]);
}

#[test]
fn intents_without_commit_run_again_over_the_same_ranges() {
    let replays = decide(recovered(5, Some(3)), &[None], 1).unwrap().replays;
    let ranges = replays.into_iter().map(|replay| (replay.id.0, replay.starts, replay.ends));
    let expected =
        vec![(4, vec![offset(30)], vec![offset(40)]), (5, vec![offset(40)], vec![offset(50)])];
    assert_eq!(ranges.collect::<Vec<_>>(), expected);
}

#[test]
fn the_first_micro_batch_runs_again_from_the_initial_offset() {
    let replays = decide(recovered(0, None), &[None], 1).unwrap().replays;
    assert_eq!((replays[0].starts.clone(), replays[0].batch_time_ms), (vec![None], 7));
}

#[test]
fn what_the_sink_has_published_is_not_run_again() {
    let resume = decide(recovered(5, Some(3)), &[published(4, None)], 1).unwrap();
    assert_eq!(resume.commit_only, vec![BatchId(4)]);
    assert_eq!(resume.replays.len(), 1);
    assert_eq!(resume.replays[0].starts, vec![offset(40)]);
    let behind = decide(recovered(5, Some(3)), &[published(3, None)], 1).unwrap();
    assert_eq!(behind.replays.len(), 2);
}

#[test]
fn logs_behind_the_sink_are_repaired() {
    let resume = decide(recovered(5, Some(4)), &[published(8, Some(77))], 1).unwrap();
    assert_eq!((resume.commit_only, resume.replays), (vec![BatchId(5)], vec![]));
    let repaired = resume.repair.iter().map(|(id, entry)| (id.0, entry.offsets.clone()));
    let end = vec![offset(77)];
    let expected = vec![(6, end.clone()), (7, end.clone()), (8, end.clone())];
    assert_eq!(repaired.collect::<Vec<_>>(), expected);
    assert_eq!(resume.repair[0].1.batch_timestamp_ms, 9);
    assert_eq!((resume.next_id, resume.positions), (BatchId(9), end));
}

#[test]
fn empty_logs_are_repaired_from_the_beginning_as_far_as_they_are_kept() {
    let resume = decide(Recovered::default(), &[published(2, Some(20))], 1).unwrap();
    assert_eq!(resume.repair.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [0, 1, 2]);
    let resume = decide(Recovered::default(), &[published(5_000, Some(20))], 1).unwrap();
    assert_eq!(resume.repair.len() as u64, RETAINED_ENTRIES_MIN);
    assert_eq!(resume.repair.last().map(|(id, _)| id.0), Some(5_000));
}

#[test]
fn a_record_below_the_commits_changes_nothing() {
    let resume = decide(recovered(5, Some(4)), &[published(2, Some(20))], 1).unwrap();
    assert_eq!(resume, decide(recovered(5, Some(4)), &[None], 1).unwrap());
}

#[test]
fn a_record_that_agrees_with_the_log_completes_it() {
    let resume = decide(recovered(5, Some(4)), &[published(5, Some(50))], 1).unwrap();
    assert_eq!((resume.commit_only, resume.replays), (vec![BatchId(5)], vec![]));
    assert_eq!((resume.next_id, resume.repair), (BatchId(6), vec![]));
}

#[test]
fn a_record_that_contradicts_the_log_is_refused() {
    let refused = decide(recovered(5, Some(4)), &[published(5, Some(49))], 1).unwrap_err();
    assert_eq!(refused.kind(), Kind::Data);
    let text = refused.to_string();
    assert!(text.contains("ends at 50") && text.contains("up to 49"), "{text}");
    let refused = decide(recovered(5, Some(4)), &[published(7, Some(70))], 2).unwrap_err();
    assert!(matches!(refused, ResumeError::SourcesChanged { .. }));
    let refused = decide(Recovered::default(), &[published(7, Some(70))], 2).unwrap_err();
    assert!(matches!(refused, ResumeError::RecordOfOthers { in_record: 1, .. }));
}

#[test]
fn a_sink_ahead_of_the_logs_has_to_say_how_far() {
    let refused = decide(recovered(5, Some(4)), &[published(6, None)], 1).unwrap_err();
    assert_eq!(refused.kind(), Kind::Data);
    assert!(refused.to_string().contains("micro-batch 6"), "{refused}");
    assert!(refused.to_string().contains("ends with 5"), "{refused}");
    let refused = decide(Recovered::default(), &[published(0, None)], 1).unwrap_err();
    assert!(refused.to_string().contains("has none"), "{refused}");
    let beside = [published(6, None), published(6, Some(60))];
    assert!(decide(recovered(5, Some(4)), &beside, 1).is_ok(), "another one says it");
}

#[test]
fn a_sink_that_does_not_say_how_far_needs_the_entry_of_what_it_has() {
    // The entry of micro-batch 5 was damaged and moved aside; 6 would begin where 4 ended.
    let mut recovered = recovered(7, Some(4));
    recovered.unfinished.remove(0);
    let refused = decide(recovered.clone(), &[published(5, None)], 1).unwrap_err();
    assert!(refused.to_string().contains("has no entry for it"), "{refused}");
    for sink in [None, published(4, None), published(6, None), published(5, Some(50))] {
        assert!(decide(recovered.clone(), &[sink], 1).is_ok());
    }
}

#[test]
fn another_number_of_sources_is_refused() {
    let refused = decide(recovered(0, None), &[None], 2).unwrap_err();
    assert_eq!(refused, ResumeError::SourcesChanged { in_checkpoint: 1, in_query: 2 });
}

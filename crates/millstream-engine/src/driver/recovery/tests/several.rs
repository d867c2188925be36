//! Decisions for queries with two sinks and three, at different places.

use super::super::*;
use super::{entry, offset, published, recovered};

/// A sink that has published `id` and stands at ten times its number.
fn at(id: u64) -> Option<Published> {
    published(id, Some(id * 10))
}

/// Number, start, end and sinks of each replay.
type Run = (u64, Option<u64>, u64, Vec<usize>);

fn runs(resume: &Resume) -> Vec<Run> {
    let place = |offset: &Option<SourceOffset>| {
        offset.as_ref().map(|offset| offset.as_str().parse::<u64>().unwrap())
    };
    let run = |replay: &Replay| {
        let (start, end) = (place(&replay.starts[0]), place(&replay.ends[0]).unwrap());
        (replay.id.0, start, end, replay.sinks.clone())
    };
    resume.replays.iter().map(run).collect()
}

fn repaired(resume: &Resume) -> Vec<(u64, Option<SourceOffset>)> {
    resume.repair.iter().map(|(id, entry)| (id.0, entry.offsets[0].clone())).collect()
}

fn decided(recovered: Recovered, published: &[Option<Published>]) -> Resume {
    decide(recovered, published, 1).unwrap()
}

#[test]
fn a_new_query_and_a_finished_one_repeat_nothing() {
    let new = decided(Recovered::default(), &[None, None]);
    assert_eq!((new.next_id, runs(&new), repaired(&new)), (BatchId(0), vec![], vec![]));
    for sinks in [[at(4), at(4)], [at(4), None], [at(2), at(4)], [at(1), at(0)]] {
        let resume = decided(recovered(4, Some(4)), &sinks);
        assert_eq!((resume.next_id, resume.positions.clone()), (BatchId(5), vec![offset(40)]));
        assert_eq!((runs(&resume), resume.commit_only, resume.repair), (vec![], vec![], vec![]));
    }
}

#[test]
fn an_intent_runs_again_only_for_the_sinks_that_lack_it() {
    let resume = decided(recovered(6, Some(3)), &[at(5), at(4), at(6)]);
    assert_eq!(resume.commit_only, [BatchId(4)]);
    assert_eq!(runs(&resume), [(5, Some(40), 50, vec![1]), (6, Some(50), 60, vec![0, 1])]);
    assert_eq!((resume.next_id, resume.repair), (BatchId(7), vec![]));
}

#[test]
fn a_sink_that_cannot_answer_gets_all_that_is_not_committed() {
    let resume = decided(recovered(5, Some(3)), &[at(5), None]);
    assert_eq!(runs(&resume), [(4, Some(30), 40, vec![1]), (5, Some(40), 50, vec![1])]);
    let resume = decided(recovered(4, Some(4)), &[None, at(9)]);
    assert_eq!(runs(&resume), [(9, Some(40), 90, vec![0])], "and what was never logged");
}

#[test]
fn the_sink_behind_catches_up_with_the_foremost_before_the_logs_are_repaired() {
    let resume = decided(recovered(4, Some(4)), &[at(9), at(6)]);
    assert_eq!(runs(&resume), [(9, Some(60), 90, vec![1])]);
    assert_eq!(resume.replays[0].batch_time_ms, 9, "the time of the foremost sink's micro-batch");
    let end = offset(90);
    let expected: Vec<_> = (5..=9).map(|id| (id, end.clone())).collect();
    assert_eq!((repaired(&resume), resume.positions), (expected, vec![end]));
    assert_eq!(resume.next_id, BatchId(10));
}

#[test]
fn a_sink_below_the_logs_catches_up_from_where_they_end() {
    // Nothing between its record and the last commit had rows for it.
    let resume = decided(recovered(4, Some(4)), &[at(1), at(9)]);
    assert_eq!(runs(&resume), [(9, Some(40), 90, vec![0])]);
}

#[test]
fn sinks_at_the_same_place_share_a_run_and_others_have_their_own() {
    let resume = decided(recovered(4, Some(4)), &[at(4), at(9), None, at(7)]);
    assert_eq!(runs(&resume), [(9, Some(40), 90, vec![0, 2]), (9, Some(70), 90, vec![3])]);
}

#[test]
fn what_is_logged_runs_again_before_a_sink_catches_up() {
    let resume = decided(recovered(6, Some(4)), &[at(9), at(5)]);
    assert_eq!(resume.commit_only, [BatchId(5)]);
    assert_eq!(runs(&resume), [(6, Some(50), 60, vec![1]), (9, Some(60), 90, vec![1])]);
    assert_eq!(resume.repair.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [7, 8, 9]);
}

#[test]
fn with_empty_logs_a_sink_without_a_record_gets_all_from_the_beginning() {
    let resume = decided(Recovered::default(), &[at(2), None]);
    assert_eq!(runs(&resume), [(2, None, 20, vec![1])]);
    assert_eq!(resume.repair.len(), 3);
}

#[test]
fn sinks_that_agree_have_the_logs_repaired_at_once() {
    let resume = decided(recovered(4, Some(4)), &[at(9), at(9)]);
    assert_eq!((runs(&resume), resume.repair.len()), (vec![], 5));
}

#[test]
fn a_crash_while_a_sink_catches_up_finds_the_same_decision_again() {
    let before = [at(9), at(6), at(4)];
    let decision = decided(recovered(4, Some(4)), &before);
    assert_eq!(decision, decided(recovered(4, Some(4)), &before));
    // One of the two has come through.
    let half = decided(recovered(4, Some(4)), &[at(9), at(9), at(4)]);
    assert_eq!(runs(&half), [(9, Some(40), 90, vec![2])]);
    assert_eq!(half.repair, decision.repair);
    // Both have.
    let whole = decided(recovered(4, Some(4)), &[at(9), at(9), at(9)]);
    assert_eq!((runs(&whole), whole.repair), (vec![], decision.repair));
}

/// Logs that end in a repaired entry without its commit entry: a crash while they were repaired
/// from a sink that stands at 90.
fn half_repaired(last: u64) -> Recovered {
    let mut logs = recovered(last, Some(last - 1));
    let repaired =
        (BatchId(last), offset_log::Entry { offsets: vec![offset(90)], ..entry(last).1 });
    logs.unfinished = vec![repaired.clone()];
    logs.last_intent = Some(repaired);
    logs
}

#[test]
fn a_crash_while_the_logs_are_repaired_gives_no_row_twice() {
    // Sink 1 had rows up to 6 and caught up with none, which leaves no record. The entry of 6 says
    // 90 nevertheless, which is no contradiction.
    for last in [5, 6, 7] {
        let resume = decided(half_repaired(last), &[at(9), at(6)]);
        let again = runs(&resume);
        assert!(again.iter().all(|(.., end, sinks)| (*end, &sinks[..]) == (90, &[1])), "{again:?}");
        assert!(again.iter().all(|(_, start, ..)| *start >= Some(60)), "{last}: {again:?}");
        assert_eq!(resume.next_id, BatchId(10));
    }
    let answers_not = decided(half_repaired(6), &[at(9), None]);
    assert_eq!(runs(&answers_not), [(6, Some(50), 90, vec![1])], "what it got last, and no more");
}

#[test]
fn repaired_entries_contradict_no_record_though_their_commit_entries_are_lost() {
    // 5 to 9 were repaired from sink 0, which went on to 10; sink 1 had no rows from 7 on.
    let mut logs = recovered(10, Some(4));
    for (_, repaired) in logs.unfinished.iter_mut().filter(|(id, _)| id.0 < 10) {
        repaired.offsets = vec![offset(90)];
    }
    let resume = decided(logs, &[at(10), at(6)]);
    assert_eq!(resume.commit_only, [BatchId(5), BatchId(6)]);
    let mut again = runs(&resume).into_iter().map(|(id, start, end, _)| (id, start, end));
    assert!(again.clone().take(3).all(|(_, start, end)| start == Some(end)), "nothing is in them");
    assert_eq!(again.next_back(), Some((10, Some(90), 100)));
}

#[test]
fn between_the_entries_of_asynchronous_tracking_a_sink_stands_at_its_own_record() {
    let sparse = |last: u64, commit: u64| {
        let mut logs = recovered(last, Some(commit));
        logs.unfinished.retain(|(id, _)| id.0 == last);
        logs
    };
    // Nothing from 7 to 9 had rows for sink 0.
    let resume = decided(sparse(9, 4), &[at(6), at(9)]);
    assert_eq!(runs(&resume), [(9, Some(60), 90, vec![0])]);
    let resume = decided(sparse(9, 4), &[at(6), at(2), at(12)]);
    let expected =
        [(9, Some(60), 90, vec![0]), (9, Some(40), 90, vec![1]), (12, Some(90), 120, vec![0, 1])];
    assert_eq!(runs(&resume), expected);
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let sinks = [published(9, Some(90)), published(9, Some(91))];
    let refused = decide(recovered(4, Some(4)), &sinks, 1).unwrap_err();
    assert!(matches!(refused, ResumeError::SinksDisagree { batch_id: BatchId(9), .. }));
    assert_eq!(refused.kind(), Kind::Data);
    let refused = decide(recovered(5, Some(4)), &[at(5), published(5, Some(49))], 1).unwrap_err();
    assert!(matches!(refused, ResumeError::Disagreement { .. }), "each with the logs, too");
    // Below the last commit entry nobody looks at them.
    assert!(decide(recovered(9, Some(9)), &sinks, 1).is_ok());
}

#[test]
fn entries_that_end_at_one_place_are_known_as_repaired() {
    let repaired =
        |id| (BatchId(id), offset_log::Entry { offsets: vec![offset(90)], ..entry(id).1 });
    let mut logs = recovered(6, Some(4));
    logs.unfinished = vec![repaired(5), repaired(6)];
    logs.last_intent = logs.unfinished.last().cloned();
    // The sink that the logs were repaired from cannot answer this time.
    for record in [at(5), at(6)] {
        assert!(decide(logs.clone(), &[None, record], 1).is_ok());
    }
}

#[test]
fn a_sink_beside_the_foremost_that_does_not_say_where_it_stands_gets_nothing_again() {
    let resume = decided(recovered(4, Some(4)), &[at(8), published(8, None)]);
    assert_eq!((runs(&resume), resume.repair.len()), (vec![], 4));
}

use super::*;

const KEEP: Keep = Keep { entries: 100, step: 100 };

fn known(ids: impl Iterator<Item = u64> + Clone, committed: u64) -> Known {
    let lane: VecDeque<BatchId> = ids.map(BatchId).collect();
    Known { ids: [lane.clone(), lane], committed: Some(BatchId(committed)), ..Known::default() }
}

#[test]
fn as_many_entries_stay_as_with_spark() {
    let mut logs = known(0..251, 250);
    let names = logs.take_expired(KEEP);
    assert_eq!(names.len(), 2 * 150);
    assert_eq!((names[0].as_str(), names[150].as_str()), ("offsets/0", "commits/0"));
    for lane in logs.ids {
        assert_eq!((lane.len(), lane.front()), (101, Some(&BatchId(150))));
    }
}

#[test]
fn few_are_not_worth_it() {
    assert_eq!(known(0..200, 199).take_expired(KEEP), [""; 0]);
    assert_eq!(known(0..201, 200).take_expired(KEEP).len(), 200);
    assert_eq!(known(0..10_000, 50).take_expired(KEEP), [""; 0], "not committed yet");
}

#[test]
fn sparse_logs_keep_as_many_entries() {
    let mut logs = known((0..250).map(|id| id * 500), 249 * 500);
    logs.take_expired(KEEP);
    for lane in logs.ids {
        assert_eq!(lane.len(), 100);
    }
}

#[test]
fn intents_that_are_not_committed_do_not_count() {
    let mut logs = known(0..300, 220);
    logs.take_expired(KEEP);
    assert_eq!(logs.ids[0].front(), Some(&BatchId(120)));
}

#[test]
fn a_listing_adds_what_was_there_before() {
    let mut logs = known(7..9, 8);
    let names = ["3", "7", ".3.crc", "8", "4", ".tmp"].map(str::to_owned);
    logs.add_listed(Lane::Intents, Listed::of(Lane::Intents, &names));
    assert_eq!(logs.ids[0], [3, 4, 7, 8].map(BatchId));
    assert!(logs.sidecars.contains("offsets/.3.crc"));

    let mut logs = known((0..0).chain(500..501), 500);
    let names: Vec<String> = (0..400).map(|id| id.to_string()).chain([".0.crc".into()]).collect();
    logs.add_listed(Lane::Commits, Listed::of(Lane::Commits, &names));
    let deleted = logs.take_expired(KEEP);
    assert_eq!(deleted[..3], ["commits/.0.crc", "commits/0", "commits/1"]);
}

#[test]
fn what_was_flushed_last_stays_and_is_not_flushed_too_often() {
    let mut logs = known(0..251, 250);
    let now = Duration::from_secs(5);
    assert_eq!(logs.to_be_flushed(KEEP, now), Some(BatchId(250)));
    assert_eq!(known(0..200, 199).to_be_flushed(KEEP, now), None, "nothing is deleted");

    logs.flushed = Some((BatchId(40), now));
    assert_eq!(logs.to_be_flushed(KEEP, now + FLUSHED_AGAIN / 2), None);
    assert_eq!(logs.to_be_flushed(KEEP, now + FLUSHED_AGAIN), Some(BatchId(250)));
    let names = logs.take_expired(KEEP);
    assert_eq!(names.len(), 2 * 149);
    for lane in &logs.ids {
        assert_eq!(lane.iter().take(2).collect::<Vec<_>>(), [&BatchId(40), &BatchId(150)]);
    }
    logs.flushed = Some((BatchId(250), now));
    logs.committed = Some(BatchId(350));
    logs.ids.iter_mut().for_each(|lane| lane.extend((251..351).map(BatchId)));
    assert_eq!(logs.take_expired(KEEP)[..2], ["offsets/40", "offsets/150"]);
}

//! Conditions of joins of two streams.

use millstream_store::offset::BatchId;

use super::snapshot_builders::{plan, run};
use crate::api::settings::OutputMode;
use crate::state::micro_batch::MicroBatchFacts;
use crate::state::watermark::Watermark;

#[tokio::test(flavor = "multi_thread")]
async fn what_can_fail_is_computed_only_where_the_conditions_before_it_hold() {
    let sql = "SELECT l.v AS v FROM __stream_left AS l JOIN __stream_right AS r \
               ON l.ts = r.ts AND r.v <> 10 AND 100 / (r.v - 10) > 0";
    let mut plan = plan(sql, OutputMode::Append, None).await;
    let watermark = Watermark { evict_ms: 0, late_ms: 0 };
    let facts = MicroBatchFacts::new(BatchId(0), watermark);
    // All within one second, and so all joined with each other.
    let values = [vec![10, 11, 12, 13], vec![10, 11, 12, 14, 15, 16, 17, 19]];
    let (joined, _) = run(&mut plan, &facts, &values).await;
    assert_eq!(joined.len(), 4 * 7, "{joined:?}");
}

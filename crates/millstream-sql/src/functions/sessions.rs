//! Merges sessions that overlap, over all rows of a key at once.
//!
//! `session_window` gives each row a session of its own, from its time to a gap after it. Over the
//! rows of a key in the order of their starts, a session continues while the next one starts no
//! later than it ends; each row then gets the whole session it is part of.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, TimestampMicrosecondType};
use datafusion::common::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};

use super::windows::between;

/// The window function: sessions of a key, ordered by their starts, to merged sessions.
pub(crate) fn merged_sessions() -> Arc<WindowUDF> {
    static MERGED: LazyLock<Arc<WindowUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(WindowUDF::from(MergedSessions { signature }))
    });
    Arc::clone(&MERGED)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MergedSessions {
    signature: Signature,
}

impl WindowUDFImpl for MergedSessions {
    fn name(&self) -> &str {
        "merged_sessions"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Merge))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let session: DataType = args.input_fields()[0].data_type().clone();
        Ok(Arc::new(Field::new(args.name(), session, true)))
    }
}

#[derive(Debug)]
struct Merge;

impl PartitionEvaluator for Merge {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let sessions = values[0].as_struct();
        let bound = |at: usize| sessions.column(at).as_primitive::<TimestampMicrosecondType>();
        let (starts, ends) = merged(bound(0).values(), bound(1).values());
        debug_assert_eq!(starts.len(), rows, "a session for each row");
        Ok(Arc::new(between(starts, ends, None, values[0].data_type())?))
    }
}

/// For each row's session, start and end of the merged session that it belongs to.
fn merged(starts: &[i64], ends: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let (mut all_starts, mut all_ends) = (Vec::new(), Vec::new());
    let mut first = 0;
    while first < starts.len() {
        let mut end = ends[first];
        let mut next = first + 1;
        while next < starts.len() && starts[next] <= end {
            // Not simply the later one's end: gaps may differ from row to row.
            end = end.max(ends[next]);
            next += 1;
        }
        all_starts.resize(next, starts[first]);
        all_ends.resize(next, end);
        first = next;
    }
    (all_starts, all_ends)
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn sessions_that_touch_are_one() {
        assert_eq!(merged(&[0, 5, 11], &[5, 10, 16]), (vec![0, 0, 11], vec![10, 10, 16]));
    }

    #[test]
    fn a_long_session_holds_short_ones() {
        assert_eq!(merged(&[0, 1, 8], &[9, 2, 12]), (vec![0; 3], vec![12; 3]));
    }

    #[test]
    fn no_rows_have_no_sessions() {
        assert_eq!(merged(&[], &[]), (vec![], vec![]));
    }
}

//! What the operators of a task have done at a runner, on its way to the node.

use ballista_core::serde::protobuf::OperatorMetricsSet;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datafusion::physical_plan::metrics::{Count, Metric, MetricValue, MetricsSet};
use prost::Message as _;
use std::sync::Arc;

/// The figure that says how many tasks of a stage were at runners.
const AT_RUNNERS: &str = "tasks_at_runners";

/// By operator its figures, as text. Empty if one of them cannot be sent.
pub fn to_text(operators: Vec<MetricsSet>) -> Vec<String> {
    let texts = operators.into_iter().map(|operator| {
        let encoded: OperatorMetricsSet = operator.try_into().ok()?;
        Some(BASE64_STANDARD.encode(encoded.encode_to_vec()))
    });
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// The figures of a task that a runner has done, and that it has. `None` if they cannot be read:
/// its rows count nevertheless.
pub fn from_text(texts: &[String]) -> Option<Vec<MetricsSet>> {
    let operator = |text: &String| -> Option<MetricsSet> {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        OperatorMetricsSet::decode(&bytes[..]).ok()?.try_into().ok()
    };
    let mut operators: Vec<MetricsSet> = texts.iter().map(operator).collect::<Option<_>>()?;
    let (count, name) = (Count::new(), AT_RUNNERS.into());
    count.add(1);
    operators.first_mut()?.push(Arc::new(Metric::new(MetricValue::Count { name, count }, None)));
    Some(operators)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_as_they_went_with_the_task_counted() {
        let mut set = MetricsSet::new();
        let count = Count::new();
        count.add(17);
        set.push(Arc::new(Metric::new(MetricValue::OutputRows(count), Some(3))));
        let texts = to_text(vec![set, MetricsSet::new()]);
        let back = from_text(&texts).expect("they can be read");
        assert_eq!(back.len(), 2);
        assert_eq!(back[0].output_rows(), Some(17));
        let there = back[0].sum_by_name(AT_RUNNERS).map(|value| value.as_usize());
        assert_eq!(there, Some(1));
        assert!(from_text(&["no base64".to_owned()]).is_none());
        assert!(from_text(&[]).is_none());
    }
}

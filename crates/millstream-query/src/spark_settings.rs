//! Spark's settings: what a query means here is what it means in Spark with the settings of Spark's
//! that are its defaults, and `SET` accepts those.
//!
//! A setting that changes how fast Spark computes has no effect here, whatever its value. One that
//! changes what a query means can only have the value that ours has; those few of which both values
//! are known here are in [`millstream_sql::query::settings`]. The session's time zone and its ANSI
//! mode are in [`Meaning`](crate::tables::meanings::Meaning).

/// Settings that change how Spark computes and not what, by how their names begin.
const WITHOUT_EFFECT: &[&str] = &[
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.cbo.",
    "spark.sql.codegen.",
    "spark.sql.cteRecursionAnchorRowsLimitToConvertToLocalRelation",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.maxMetadataStringLength",
    "spark.sql.optimizer.decorrelateExistsIn.enabled",
    "spark.sql.optimizer.decorrelateInnerQuery.enabled",
    "spark.sql.optimizer.excludedRules",
    "spark.sql.optimizer.optimizeOneRowRelationSubquery.alwaysInline",
    "spark.sql.optimizer.optimizeUncorrelatedInSubqueriesInJoinCondition.enabled",
    "spark.sql.optimizer.scalarSubqueryUseSingleJoin",
    "spark.sql.shuffle.partitions",
    "spark.sql.statistics.",
];

/// Settings that change what a query means, and the value that each has here.
const FIXED: &[(&str, &str)] = &[
    ("spark.sql.caseSensitive", "false"),
    ("spark.sql.crossJoin.enabled", "true"),
    ("spark.sql.cteRecursionLevelLimit", "100"),
    ("spark.sql.groupByOrdinal", "true"),
    ("spark.sql.legacy.ctePrecedencePolicy", "CORRECTED"),
    ("spark.sql.legacy.nullInEmptyListBehavior", "false"),
    ("spark.sql.legacy.parser.havingWithoutGroupByAsWhere", "false"),
    ("spark.sql.legacy.percentileDiscCalculation", "false"),
    ("spark.sql.legacy.raiseErrorWithoutErrorClass", "false"),
    ("spark.sql.legacy.scalarSubqueryCountBugBehavior", "false"),
    ("spark.sql.legacy.setopsPrecedence.enabled", "false"),
    ("spark.sql.legacy.timeParserPolicy", "CORRECTED"),
    ("spark.sql.optimizer.decorrelateExistsSubqueryLegacyIncorrectCountHandling.enabled", "false"),
    ("spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled", "false"),
    ("spark.sql.orderByOrdinal", "true"),
    ("spark.sql.prioritizeOrdinalResolutionInSort.enabled", "true"),
    ("spark.sql.storeAssignmentPolicy", "ANSI"),
];

/// What `SET key = value` does.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// It says what is so already, or nothing that has an effect here.
    Fits,
    /// The setting has another value here, which this is.
    Fixed(&'static str),
}

/// What is known of a setting of Spark's.
pub fn known(key: &str, value: &str) -> Option<Known> {
    let is_meant = |name: &&str| match name.ends_with('.') {
        true => key.starts_with(*name),
        false => key == *name,
    };
    if WITHOUT_EFFECT.iter().any(is_meant) {
        return Some(Known::Fits);
    }
    let (_, here) = FIXED.iter().find(|(name, _)| *name == key)?;
    let is_same = value.trim().trim_matches(['\'', '"']).eq_ignore_ascii_case(here);
    Some(if is_same { Known::Fits } else { Known::Fixed(here) })
}

/// The only value of a setting that changes what a query means.
pub fn value(key: &str) -> Option<&'static str> {
    FIXED.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_can_have_the_value_that_it_has() {
        assert_eq!(known("spark.sql.crossJoin.enabled", "TRUE"), Some(Known::Fits));
        assert_eq!(known("spark.sql.crossJoin.enabled", "false"), Some(Known::Fixed("true")));
        assert_eq!(known("spark.sql.ansi.enabled", "false"), None);
        assert_eq!(known("spark.sql.storeAssignmentPolicy", "'ansi'"), Some(Known::Fits));
        assert_eq!(value("spark.sql.storeAssignmentPolicy"), Some("ANSI"));
        assert_eq!(value("spark.sql.shuffle.partitions"), None);
        assert_eq!(known("spark.sql.adaptive.coalescePartitions.enabled", "1"), Some(Known::Fits));
        assert_eq!(known("spark.sql.shuffle.partitions", "8"), Some(Known::Fits));
        assert_eq!(known("spark.sql.shuffle.partitionsOfMine", "8"), None);
    }
}

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
    "spark.sql.broadcastTimeout",
    "spark.sql.cbo.",
    "spark.sql.codegen.",
    "spark.sql.cteRecursionAnchorRowsLimitToConvertToLocalRelation",
    "spark.sql.execution.arrow.",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxPartitionNum",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.maxMetadataStringLength",
    "spark.sql.optimizer.decorrelateExistsIn.enabled",
    "spark.sql.optimizer.decorrelateInnerQuery.enabled",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled",
    "spark.sql.optimizer.excludedRules",
    "spark.sql.optimizer.optimizeOneRowRelationSubquery.alwaysInline",
    "spark.sql.optimizer.optimizeUncorrelatedInSubqueriesInJoinCondition.enabled",
    "spark.sql.optimizer.runtime.",
    "spark.sql.optimizer.scalarSubqueryUseSingleJoin",
    "spark.sql.parquet.enableVectorizedReader",
    "spark.sql.parquet.filterPushdown",
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.bucketing.",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.statistics.",
    "spark.sql.ui.",
];

/// Settings that change what a query means, the value that each has here, and what to write where
/// another one was wanted.
const FIXED: &[(&str, &str, &str)] = &[
    (
        "spark.sql.ansi.doubleQuotedIdentifiers",
        "false",
        "; write names in backticks, and texts in single quotation marks",
    ),
    ("spark.sql.ansi.enforceReservedKeywords", "false", ""),
    ("spark.sql.ansi.relationPrecedence", "false", "; write parentheses around joins"),
    ("spark.sql.caseSensitive", "false", ""),
    ("spark.sql.crossJoin.enabled", "true", ""),
    ("spark.sql.cteRecursionLevelLimit", "100", "; write WITH RECURSIVE t MAX RECURSION LEVEL n"),
    ("spark.sql.groupByOrdinal", "true", ""),
    (
        "spark.sql.jsonGenerator.ignoreNullFields",
        "true",
        "; write to_json(x, map('ignoreNullFields', 'false'))",
    ),
    ("spark.sql.legacy.ctePrecedencePolicy", "CORRECTED", ""),
    // What has an answer by both has the same.
    (
        "spark.sql.legacy.timeParserPolicy",
        EXCEPTION,
        "; write patterns of Java's DateTimeFormatter",
    ),
    (
        "spark.sql.mapKeyDedupPolicy",
        EXCEPTION,
        "; take repeated keys out before there is a map, as with max_by(value, time) ... GROUP BY key",
    ),
    (
        "spark.sql.optimizer.decorrelateExistsSubqueryLegacyIncorrectCountHandling.enabled",
        "false",
        "",
    ),
    ("spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled", "false", ""),
    ("spark.sql.orderByOrdinal", "true", ""),
    (
        "spark.sql.parser.escapedStringLiterals",
        "false",
        "; write r'...' for a text whose backslashes stay, or two backslashes for each",
    ),
    ("spark.sql.prioritizeOrdinalResolutionInSort.enabled", "true", ""),
    ("spark.sql.storeAssignmentPolicy", "ANSI", "; write CAST(x AS ...) for other types"),
    ("spark.sql.timeType.enabled", "false", ""),
    ("spark.sql.timestampType", "TIMESTAMP_LTZ", "; write TIMESTAMP_NTZ for times without a zone"),
];

const EXCEPTION: &str = "EXCEPTION";

/// Values beside those of [`FIXED`] that change nothing of what has an answer here.
const ALSO: &[(&str, &str)] = &[("spark.sql.legacy.timeParserPolicy", "CORRECTED")];

/// How the names of settings begin that keep what earlier versions of Spark did.
const LEGACY: &str = "spark.sql.legacy.";

/// Those that Spark has switched on; all others are off.
const LEGACY_ON: &[&str] = &[
    "execution.pandas.groupedMap.assignColumnsByName",
    "followThreeValuedLogicInArrayExists",
    "histogramNumericPropagateInputType",
    "literal.pickMinimumPrecision",
    "replaceDatabricksSparkAvro.enabled",
    "setCommandRejectsSparkCoreConfs",
    "sizeOfNull",
    "viewSchemaBindingMode",
    "viewSchemaCompensation",
];

/// What `SET key = value` does.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// It says what is so already, or nothing that has an effect here.
    Fits,
    /// The setting has another value here.
    Fixed {
        /// Which it is.
        here: &'static str,
        /// What to write instead, behind a semicolon; empty where there is nothing.
        help: &'static str,
    },
}

/// What is known of a setting of Spark's.
pub fn known(key: &str, value: &str) -> Option<Known> {
    if is_without_effect(key) {
        return Some(Known::Fits);
    }
    let value = value.trim().trim_matches(['\'', '"']);
    let (here, help) = match FIXED.iter().find(|(name, ..)| *name == key) {
        Some((_, here, help)) => (*here, *help),
        // Not all of the others are true or false.
        None if !is_truth(value) => return None,
        None => (legacy(key)?, ""),
    };
    let is_also = |(name, also): &(&str, &str)| *name == key && value.eq_ignore_ascii_case(also);
    match value.eq_ignore_ascii_case(here) || ALSO.iter().any(is_also) {
        true => Some(Known::Fits),
        false => Some(Known::Fixed { here, help }),
    }
}

/// Whether a setting changes only how Spark computes.
pub fn is_without_effect(key: &str) -> bool {
    let is_meant = |name: &&str| match name.ends_with('.') {
        true => key.starts_with(*name),
        false => key == *name,
    };
    WITHOUT_EFFECT.iter().any(is_meant)
}

/// The only value of a setting that changes what a query means.
pub fn value(key: &str) -> Option<&'static str> {
    let fixed = FIXED.iter().find(|(name, ..)| *name == key).map(|(_, value, _)| *value);
    fixed.or_else(|| legacy(key))
}

fn is_truth(value: &str) -> bool {
    ["true", "false"].iter().any(|one| value.eq_ignore_ascii_case(one))
}

fn legacy(key: &str) -> Option<&'static str> {
    let name = key.strip_prefix(LEGACY)?;
    Some(if LEGACY_ON.contains(&name) { "true" } else { "false" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(key: &str, value: &str) -> Option<&'static str> {
        match known(key, value) {
            Some(Known::Fixed { here, .. }) => Some(here),
            _ => None,
        }
    }

    #[test]
    fn a_setting_can_have_the_value_that_it_has() {
        for (key, value) in [
            ("spark.sql.crossJoin.enabled", "TRUE"),
            ("spark.sql.storeAssignmentPolicy", "'ansi'"),
            ("spark.sql.adaptive.coalescePartitions.enabled", "1"),
            ("spark.sql.shuffle.partitions", "8"),
            ("spark.sql.parser.escapedStringLiterals", "false"),
            ("spark.sql.mapKeyDedupPolicy", "EXCEPTION"),
            ("spark.sql.legacy.timeParserPolicy", "exception"),
            ("spark.sql.legacy.timeParserPolicy", "CORRECTED"),
            ("spark.sql.legacy.followThreeValuedLogicInArrayExists", "true"),
            ("spark.sql.legacy.createHiveTableByDefault", "'FALSE'"),
        ] {
            assert_eq!(known(key, value), Some(Known::Fits), "{key} = {value}");
        }
        assert_eq!(known("spark.sql.ansi.enabled", "false"), None);
        assert_eq!(known("spark.sql.shuffle.partitionsOfMine", "8"), None);
        assert_eq!(known("spark.sql.legacy.ofMine", "LEGACY"), None);
        assert_eq!(value("spark.sql.storeAssignmentPolicy"), Some("ANSI"));
        assert_eq!(value("spark.sql.shuffle.partitions"), None);
        assert_eq!(value("spark.sql.legacy.sizeOfNull"), Some("true"));
    }

    #[test]
    fn another_value_is_refused_with_what_to_write() {
        assert_eq!(here("spark.sql.crossJoin.enabled", "false"), Some("true"));
        assert_eq!(here("spark.sql.legacy.timeParserPolicy", "LEGACY"), Some("EXCEPTION"));
        assert_eq!(here("spark.sql.legacy.charVarcharAsString", "true"), Some("false"));
        assert_eq!(here("spark.sql.legacy.sizeOfNull", "false"), Some("true"));
        match known("spark.sql.parser.escapedStringLiterals", "true") {
            Some(Known::Fixed { here: "false", help }) => assert!(help.contains("r'...'")),
            other => panic!("{other:?}"),
        }
    }
}

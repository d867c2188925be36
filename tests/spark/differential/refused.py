"""Queries that both engines have to refuse before they read a row."""

from .cases import KEYED, T, TWICE, Case, rows
from .operators import ENDLESS, SESSION

NO_WATERMARK = ("Invalid streaming output mode: append. This output mode is not supported for "
                "streaming aggregations without watermark")
SESSION_UPDATE = ("Invalid streaming output mode: update. This output mode is not supported for "
                  "session window streaming aggregations")
NO_EVENT_TIME = ("with outputMode 'append' a group is published when it is complete, but no GROUP BY "
                 "expression is an event time with a watermark")
NO_SESSION_UPDATE = "outputMode 'update' with session_window over a stream is not supported"
NO_SESSION_END = ("with outputMode 'append' session_window needs a watermark, without which no "
                  "session ever ends")
TWICE_ONLY = "Detected pattern of possible 'correctness' issue due to global watermark"
SORTED_ONLY = "Sorting is not supported on streaming DataFrames/Datasets"

# What Spark and Millstream say of each.
WORDS = {
    "append_without_watermark": (NO_WATERMARK, NO_EVENT_TIME),
    "append_without_event_time": (NO_WATERMARK, NO_EVENT_TIME),
    "append_of_other_time": (NO_WATERMARK, NO_EVENT_TIME),
    "distinct_values": (
        "Distinct aggregations are not supported",
        "count(DISTINCT ...) over a stream is not supported"),
    "twice_update": (
        TWICE_ONLY,
        "outputMode 'update' is for a query with one operator that keeps state"),
    "twice_complete": (
        TWICE_ONLY,
        "outputMode 'complete' is for a query with one operator that keeps state"),
    "complete_without_aggregate": (
        "complete. This output mode is not supported for no streaming",
        "outputMode 'complete' is for aggregations, and this query has none"),
    "sorted": (SORTED_ONLY, "ORDER BY over a stream would have to wait for its end"),
    "sorted_update": (SORTED_ONLY, "ORDER BY over a stream would have to wait for its end"),
    "session_update": (SESSION_UPDATE, NO_SESSION_UPDATE),
    "session_without_watermark_update": (SESSION_UPDATE, NO_SESSION_UPDATE),
    "session_without_watermark_append": (NO_WATERMARK, NO_SESSION_END),
    "session_of_other_time_append": (NO_WATERMARK, NO_SESSION_END),
    "session_of_other_time_update": (SESSION_UPDATE, NO_SESSION_UPDATE),
    "join_update": (
        "join between two streaming DataFrames/Datasets is not supported in Update",
        "outputMode 'update' with a join of two streams is not supported"),
    "outer_join_without_bound": (
        "not supported without a watermark in the join keys",
        "an outer join publishes a row of the left stream without a partner when none can come"),
    "first_rows_update": ("Limits are not supported", "LIMIT over a stream is not supported"),
    "ranked": (
        "[NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING]",
        "`row_number` OVER a window over a stream is not supported"),
    "window_of_months": (
        "Intervals greater than a month is not supported",
        "a window of months has no fixed length"),
}


def refused(name, query, mode="append"):
    spark, ours = WORDS.get(name, ("", ""))
    return Case(name, query, mode=mode, events={"t": [rows(1)]}, spark_refuses=spark, refuses=ours)


REFUSED = [
    refused("append_without_watermark",
            "SELECT count(*) AS n FROM STREAM t GROUP BY window(ts, '10 seconds')"),
    refused("append_without_event_time", f"SELECT k, count(*) AS n FROM {T} GROUP BY k"),
    refused("append_of_other_time",
            f"SELECT count(*) AS n FROM {T} GROUP BY window(ts + INTERVAL 1 SECOND, '1 minute')"),
    refused("distinct_values", f"""SELECT count(DISTINCT k) AS n
FROM {T} GROUP BY window(ts, '10 seconds')"""),
    refused("twice_update", TWICE, "update"),
    refused("twice_complete", TWICE, "complete"),
    refused("complete_without_aggregate", "SELECT k FROM STREAM t", "complete"),
    refused("sorted", KEYED + " ORDER BY k"),
    refused("sorted_update", "SELECT k, count(*) AS n FROM STREAM t GROUP BY k ORDER BY k",
            "update"),
    refused("session_update", SESSION % "'2 seconds'", "update"),
    refused("session_without_watermark_update", ENDLESS % "'2 seconds'", "update"),
    refused("session_without_watermark_append", ENDLESS % "'2 seconds'"),
    refused("session_of_other_time_append", (SESSION % "'2 seconds'").replace(
        "session_window(ts,", "session_window(ts + INTERVAL 1 SECOND,")),
    refused("session_of_other_time_update", (SESSION % "'2 seconds'").replace(
        "session_window(ts,", "session_window(ts + INTERVAL 1 SECOND,"), "update"),
    refused("join_update", f"SELECT l.k AS k FROM {T} AS l LEFT JOIN {T} AS r ON l.k = r.k", "update"),
    refused("outer_join_without_bound",
            f"SELECT l.k AS k FROM {T} AS l LEFT JOIN {T} AS r ON l.k = r.k"),
    refused("first_rows_update", "SELECT k, count(*) AS n FROM STREAM t GROUP BY k LIMIT 2",
            "update"),
    refused("ranked", f"SELECT k, row_number() OVER (PARTITION BY k ORDER BY i) AS place FROM {T}"),
    refused("window_of_months", f"SELECT count(*) AS n FROM {T} GROUP BY window(ts, '1 month')"),
]

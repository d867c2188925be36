"""Queries that both engines have to refuse before they read a row."""

from .cases import KEYED, T, TWICE, Case, rows
from .operators import ENDLESS, SESSION


def refused(name, query, mode="append"):
    return Case(name, query, mode=mode, events={"t": [rows(1)]})


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

"""The queries, each the same text for both engines.

Sums and averages are of quarters, so they are exact whatever the order of rows is; arrays are
sorted where they are made. What is known to differ has small cases of its own in `known`, and the
cases here keep out of its way, so that they show what is new.
"""

from dataclasses import dataclass, field
from typing import Callable, Optional

from .events import line

T = "STREAM t WATERMARK ts DELAY OF INTERVAL 10 SECONDS"
U = "STREAM u WATERMARK ts DELAY OF INTERVAL 5 SECONDS"


@dataclass
class Case:
    """A query, what it reads, and how it is run."""

    name: str
    query: str
    mode: str = "append"
    # What the files hold: the name of a function of `events`, or a list of files for each table.
    events: object = "unruly"
    tables: tuple = ("t",)
    # Files in a micro-batch.
    files: int = 1
    options: dict = field(default_factory=dict)
    # The files of the first run; the second one, on the same checkpoint, has the others too.
    stop_after: Optional[int] = None
    # Spark's query where SQL has no words for it: from a session to a frame.
    on_spark: Optional[Callable] = None
    # Ours where it is another text. None for `query`; "" where there are no words for it yet.
    here: Optional[str] = None
    # Whether the result has to be the same for other cuts of the input into files.
    recut: bool = False
    # Why it differs, where that is known.
    why: str = ""
    # What differs, where that is known: the lines of `compare`, which show the rows of both sides.
    # A side that refuses the query has no micro-batches.
    differs: tuple = ()
    # A part of what an engine says that has to refuse the query, "" where it must run it: Spark,
    # in which the condition's name in brackets counts, and Millstream.
    spark_refuses: str = ""
    refuses: str = ""

    def frame(self, session):
        """The query as a streaming frame of Spark."""
        return self.on_spark(session) if self.on_spark else session.sql(self.query)


# Five seconds before 1970, counted from the origin of events.
SECONDS_1969 = -1_767_225_605


def rows(*moments, **values):
    """A file with a row at each of these moments, in seconds."""
    return [line(seconds, **values) for seconds in moments]


BASIC = """count(*) AS n, count(i) AS ni, sum(i) AS total, avg(d) AS mean, min(s) AS least,
max(s) AS greatest, min(d) AS low, max(i) AS high, stddev(d) AS spread"""
# No result of these is NULL.
WHOLE = """count(*) AS n, count(i) AS ni, sum(coalesce(i, 0)) AS total, max(coalesce(s, '')) AS s,
avg(coalesce(d, 0)) AS mean"""

KEYED = f"""SELECT window.start AS begin, window.end AS until, k, {BASIC}
FROM {T} GROUP BY window(ts, '10 seconds'), k"""
KEYED_WHOLE = f"""SELECT window.start AS begin, k, {WHOLE}
FROM {T} GROUP BY window(ts, '10 seconds'), k"""
SLIDING = f"""SELECT window, k, count(*) AS n, sum(d) AS total
FROM {T} GROUP BY window(ts, '15 seconds', '5 seconds'), k"""
TWICE = f"""SELECT window.start AS begin, count(*) AS keys, sum(n) AS n, max(total) AS most
FROM (SELECT window AS w, k, count(*) AS n, sum(d) AS total
      FROM {T} GROUP BY window(ts, '5 seconds'), k) AS inner_one
GROUP BY window(window_time(w), '20 seconds')"""
BY_WINDOW = f"""SELECT window.start AS begin, %s
FROM {T} GROUP BY window(ts, '10 seconds')"""
NOT_IN = f"""SELECT window.start AS begin, k, count(*) AS n
FROM {T} WHERE k NOT IN (SELECT o.k FROM (VALUES ('b'), ('d')) AS o(k))
GROUP BY window(ts, '10 seconds'), k"""
# The second stream's keys are its own.
BOTH = f"""SELECT window.start AS begin, k, count(*) AS n, sum(i) AS total
FROM (SELECT ts, k, i FROM {T}
      UNION ALL SELECT ts, concat('u', coalesce(k, '')), -i FROM {U}) AS both_streams
GROUP BY window(ts, '10 seconds'), k"""

APPEND = [
    Case("keyed", KEYED),
    Case("sliding", SLIDING),
    Case("shifted_fraction", f"""SELECT window, count(*) AS n, sum(i) AS total
FROM {T} GROUP BY window(ts, '10 seconds', '4 seconds', '1 second')"""),
    Case("having", f"""SELECT window.end AS until, k, sum(i) AS total
FROM {T} GROUP BY window(ts, '10 seconds'), k HAVING count(*) > 1 AND sum(i) < 12"""),
    Case("event_time_itself", f"""SELECT ts, k, count(*) AS n, sum(d) AS total
FROM {T} WHERE ts IS NOT NULL GROUP BY ts, k"""),
    Case("event_time_nullif", """SELECT at, count(*) AS n
FROM (SELECT nullif(ts, TIMESTAMP '2026-01-01 00:00:20') AS at FROM STREAM t)
WATERMARK at DELAY OF INTERVAL 10 SECONDS GROUP BY at""",
         events={"t": [rows(5, 20, None), rows(20, 45), rows(46, 80)]}),
    Case("several_keys", f"""SELECT window.start AS begin, upper(k) AS u, s, i > 4 AS big,
count(*) AS n FROM {T} GROUP BY window(ts, '20 seconds'), upper(k), s, i > 4"""),
    Case("twice", TWICE),
    Case("thrice", f"""SELECT window.start AS begin, sum(n) AS n, count(*) AS parts
FROM (SELECT window AS v, sum(n) AS n
      FROM (SELECT window AS w, k, count(*) AS n
            FROM {T} GROUP BY window(ts, '5 seconds'), k) AS first_one
      WHERE n > 1 GROUP BY window(window_time(w), '10 seconds', '5 seconds')) AS second_one
GROUP BY window(v, '20 seconds')"""),
    Case("twice_by_time", f"""SELECT at, count(*) AS keys, sum(n) AS n
FROM (SELECT window_time(w) AS at, k, n
      FROM (SELECT window AS w, k, count(*) AS n
            FROM {T} GROUP BY window(ts, '5 seconds'), k) AS windows) AS inner_one
GROUP BY at"""),
    Case("twice_by_window", f"""SELECT window.start AS begin, k, count(*) AS windows, sum(n) AS n
FROM (SELECT window(ts, '5 seconds') AS w, k, count(*) AS n
      FROM {T} GROUP BY window(ts, '5 seconds'), k) AS inner_one
GROUP BY window(w, '10 seconds'), k"""),
    Case("collected", BY_WINDOW % """sort_array(collect_list(s)) AS all_s,
sort_array(collect_set(i)) AS set_i, sort_array(collect_list(d)) AS all_d,
approx_count_distinct(i) AS about, median(d) AS middle"""),
    Case("sketches", BY_WINDOW % """theta_sketch_estimate(theta_sketch_agg(s)) AS texts,
hll_sketch_estimate(hll_sketch_agg(i)) AS ints, tuple_sketch_estimate_double(
tuple_sketch_agg_double(s, 1.0D)) AS keys, tuple_sketch_summary_integer(
tuple_sketch_agg_integer(s, i, 12, 'max'), 'max') AS most"""),
    Case("first_last", f"""SELECT window.start AS begin, k, first(d) AS first_d, last(d) AS last_d,
first(i, true) AS first_i, last(i, true) AS last_i, min_by(s, ts) AS s_then, max_by(d, ts) AS d_then
FROM {T} GROUP BY window(ts, '10 seconds'), k"""),
    Case("spreads", BY_WINDOW % """var_pop(d) AS var, stddev_pop(i) AS dev, skewness(d) AS skew,
kurtosis(i) AS kurt, covar_samp(i, d) AS covar, regr_count(i, d) AS pairs,
avg(CAST(d AS DECIMAL(6, 2))) AS exact_mean, sum(CAST(i AS DECIMAL(38, 0))) AS wide"""),
    Case("logic", BY_WINDOW % """bool_or(i > 8) AS any_big, every(i > -3) AS all_big, bit_xor(i)
AS bits, count_if(d < 0) AS below, max(struct(coalesce(d, 0), coalesce(i, 0))) AS pair,
count(*) FILTER (WHERE k = 'a') AS of_a, sum(i) FILTER (WHERE d > 0) AS above,
count(i, d) AS whole, sum(i) / count(i) AS mean"""),
    Case("where_time", f"""SELECT window.start AS begin, count(*) AS n
FROM {T} WHERE second(ts) < 30 GROUP BY window(ts, '10 seconds')"""),
    Case("exploded", f"""SELECT window.start AS begin, x, count(*) AS n
FROM (SELECT ts, explode(array(i, i + 1)) AS x FROM {T}) AS parts
GROUP BY window(ts, '10 seconds'), x"""),
    Case("static_join", f"""SELECT window.start AS begin, o.w AS w, count(*) AS n,
sum(i * o.w) AS total
FROM {T} LEFT JOIN (VALUES ('a', 2), ('b', 3)) AS o(k, w) ON t.k = o.k
GROUP BY window(ts, '10 seconds'), o.w"""),
    Case("static_bound", f"""SELECT window.start AS begin, k, count(*) AS n, sum(i) AS total
FROM {T} WHERE i < (SELECT max(o.i) FROM (VALUES (9), (4)) AS o(i))
GROUP BY window(ts, '10 seconds'), k"""),
    Case("key_types", f"""SELECT window.start AS begin, CAST(ts AS DATE) AS day, i > 4 AS big,
CAST(d AS DECIMAL(6, 2)) AS exact, struct(k, i) AS pair, array(k, s) AS both_texts, count(*) AS n
FROM {T} GROUP BY window(ts, '20 seconds'), CAST(ts AS DATE), i > 4, CAST(d AS DECIMAL(6, 2)),
struct(k, i), array(k, s)"""),
    Case("odd_doubles", f"""SELECT window.start AS begin, d, count(*) AS n, min(d + 0D) AS low
FROM {T} GROUP BY window(ts, '10 seconds'), d""", events={"t": [
        [line(1, d=0.0), line(1, d="NaN"), line(1, d=-0.0), line(1, d="-Infinity")],
        [line(2, d=-0.0), line(2, d="NaN"), line(1, d=0), line(2)], rows(60)]}),
    Case("many_keys", KEYED.replace("k", "s"), events="many"),
    Case("no_delay", f"""SELECT window.start AS begin, count(*) AS n, sum(d) AS total
FROM STREAM t WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY window(ts, '5 seconds')"""),
    Case("punctual", KEYED, events="punctual", recut=True),
    Case("punctual_sliding", SLIDING, events="punctual", recut=True),
    Case("punctual_twice", TWICE, events="punctual", recut=True),
]

BY_HAND = [
    # Rows from before 1970 are late from the start: the watermark begins there.
    Case("before_1970", BY_WINDOW % "count(*) AS n",
         events={"t": [rows(SECONDS_1969, 1), rows(60)]}),
    # Late rows of one window in two files of a micro-batch are combined before they are counted.
    Case("late_in_two_files", BY_WINDOW % "count(*) AS n", files=2,
         events={"t": [rows(60), rows(61), rows(70), rows(71), rows(1), rows(2), rows(90)]}),
    # A file without any time moves no watermark; one without rows is a micro-batch.
    Case("no_times", BY_WINDOW % "count(*) AS n",
         events={"t": [[], rows(None), rows(12), rows(None), [], rows(40)]}),
    # Those of a key that the table has are never the newest.
    Case("not_in_a_table", NOT_IN, events={"t": [
        rows(1, k="a") + rows(1, k="b"), rows(2, k="b") + rows(3, k="c"),
        rows(31, k="c") + rows(4, k="a") + rows(30, k="d"), rows(5, 60, k="a")]}),
    # On the edge: a window is closed, and a row late, when the watermark is at the end.
    Case("edges", BY_WINDOW % "count(*) AS n, max(ts) AS newest",
         events={"t": [rows(0, 9.999999), rows(20), rows(0, 10), rows(20.000999), rows(9.5, 19),
                       rows(20.001), rows(9.5), rows(30), rows(19), rows(30.5, 60)]}),
]

# What each micro-batch has with a table's rows is its own: nothing of an earlier one is in it.
STATIC = "(VALUES ('a', 2), ('b', 3), ('d', 5)) AS o(k, w)"
WITH_A_TABLE = [
    Case("not_in", f"SELECT k, i FROM STREAM t WHERE k NOT IN (SELECT o.k FROM {STATIC})"),
    Case("in_or", f"SELECT k, i FROM STREAM t WHERE i = 2 OR k IN (SELECT o.k FROM {STATIC})"),
    Case("not_exists", f"""SELECT k, i FROM STREAM t
WHERE NOT EXISTS (SELECT 1 FROM {STATIC} WHERE o.k = t.k)"""),
    Case("below_the_greatest", f"SELECT k, i FROM STREAM t WHERE i < (SELECT max(w) FROM {STATIC})"),
    Case("joined_by_order", f"SELECT t.k, i, w FROM STREAM t LEFT JOIN {STATIC} ON i < w"),
    Case("without_partner", f"SELECT t.k, i FROM STREAM t LEFT ANTI JOIN {STATIC} ON i < w"),
    Case("joined_to_all", f"SELECT t.k, i, w FROM STREAM t CROSS JOIN {STATIC}"),
]

TWO_STREAMS = [
    Case("union_min", BOTH, tables=("t", "u")),
    Case("union_max", BOTH, tables=("t", "u"), options={"multipleWatermarkPolicy": "max"}),
    Case("same_stream_twice", f"""SELECT window.start AS begin, k, count(*) AS n
FROM (SELECT ts, k FROM {T} UNION ALL
      SELECT ts, concat('2', coalesce(k, ''))
      FROM {T.replace("10", "20")} WHERE ts IS NOT NULL) AS both_times
GROUP BY window(ts, '10 seconds'), k"""),
    Case("union_of_aggregates", f"""SELECT window.start AS begin, k, count(*) AS n
FROM {T} GROUP BY window(ts, '10 seconds'), k
UNION ALL SELECT window.start AS begin, k, -count(*) AS n
FROM {U} GROUP BY window(ts, '5 seconds'), k""", tables=("t", "u")),
    Case("union_punctual", f"""SELECT window.start AS begin, count(*) AS n, sum(i) AS total
FROM (SELECT ts, i FROM {T} UNION ALL SELECT ts, i FROM {U}) AS both_streams
GROUP BY window(ts, '10 seconds')""", tables=("t", "u"), events="punctual", recut=True),
]


COMPUTED = """SELECT window.start AS begin, k, count(*) AS n
FROM (SELECT ts + INTERVAL 1 HOUR AS at, k FROM STREAM t %s)
WATERMARK at DELAY OF INTERVAL 10 SECONDS AS later GROUP BY window(at, '10 seconds'), k"""


def by_hand(name, query, written, **more):
    """A case over these files of the one table."""
    return Case(name, query, events={"t": written}, **more)


UPDATE = [
    Case("update", KEYED, mode="update"),
    Case("update_whole", KEYED_WHOLE, mode="update"),
    by_hand("null_of_a_new_group", """SELECT k, min(d) AS low, max(i) AS high, avg(d) AS mean
FROM STREAM t GROUP BY k""", [rows(1, k="a", i=8, d=5.75), rows(2, k="b") + rows(3, k="a")],
            mode="update"),
    by_hand("filter_and_watermark",
            (BY_WINDOW % "count(*) AS n").replace(" GROUP", " WHERE k = 'a' GROUP"),
            [rows(1, k="a"), rows(60, k="b") + rows(1, k="a"), rows(2, k="a"), rows(60, k="a")]),
    by_hand("no_event_time", f"SELECT ts, count(*) AS n FROM {T} GROUP BY ts",
            [rows(None, 1, k="a")], mode="update"),
    by_hand("extremes_with_nan",
            "SELECT k, min(d) AS low, max(d) AS high FROM STREAM t GROUP BY k",
            [[line(1, k="a", d=1.5), line(1, k="a", d="NaN"), line(1, k="a", d=7.0)]],
            mode="update"),
    by_hand("shares", "SELECT percentile_approx(i, 0.5) AS half FROM STREAM t",
            [rows(1, i=1) + rows(2, i=5)], mode="update"),
    Case("update_sliding_having", f"""SELECT window, k, count(*) AS n, count(d) AS nd
FROM {T} GROUP BY window(ts, '20 seconds', '10 seconds'), k HAVING count(*) > 2""", mode="update"),
    Case("update_key", f"SELECT k, {WHOLE} FROM STREAM t GROUP BY k", mode="update"),
    Case("update_all", f"SELECT {BASIC} FROM STREAM t", mode="update", events="punctual"),
    Case("update_window", """SELECT window.start AS begin, count(*) AS n
FROM STREAM t GROUP BY window(ts, '10 seconds')""", mode="update"),
    Case("update_many_keys", f"""SELECT window.start AS begin, s, {WHOLE.replace(" AS s", " AS t")}
FROM {T} GROUP BY window(ts, '10 seconds'), s""", mode="update", events="many"),
    Case("complete_key", f"SELECT k, {BASIC} FROM STREAM t GROUP BY k", mode="complete"),
    Case("complete_window", KEYED_WHOLE, mode="complete"),
    Case("complete_event_time", f"SELECT ts, count(*) AS n FROM {T} GROUP BY ts",
         mode="complete"),
    Case("complete_all", "SELECT count(*) AS n, max(s) AS s FROM STREAM t", mode="complete"),
]

COMPUTED_TIMES = [
    Case("computed_time", COMPUTED % ""),
    Case("computed_time_filtered", COMPUTED % "WHERE i > 3"),
    Case("computed_time_restarted", COMPUTED % "", stop_after=3),
]

RESTARTED = [
    Case("restarted", KEYED, stop_after=3),
    Case("restarted_twice", TWICE, stop_after=3),
    Case("restarted_update", KEYED_WHOLE, mode="update", stop_after=3),
    Case("restarted_complete", KEYED_WHOLE, mode="complete", stop_after=3),
    Case("restarted_without_files", KEYED, stop_after=6),
    Case("restarted_union_max", BOTH, tables=("t", "u"), stop_after=2,
         options={"multipleWatermarkPolicy": "max"}),
    Case("restarted_union", BOTH, tables=("t", "u"), stop_after=3),
]

CASES = [*COMPUTED_TIMES, *APPEND, *BY_HAND, *WITH_A_TABLE, *TWO_STREAMS, *UPDATE, *RESTARTED]

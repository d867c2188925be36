"""Sessions, first rows and joins of two streams."""

from .cases import SECONDS_1969, T, U, Case, rows
from .events import line

SESSION = f"""SELECT session_window.start AS begin, session_window.end AS until, k, count(*) AS n,
sum(d) AS total, max(i) AS high FROM {T} GROUP BY session_window(ts, %s), k"""

# Sessions of a time without watermark never end: all of them, every time.
ENDLESS = """SELECT session_window.start AS begin, session_window.end AS until, k, count(*) AS n,
sum(d) AS total, max(i) AS high FROM STREAM t GROUP BY session_window(ts, %s), k"""

# Equal keys, and times near each other. The condition is complete for both sides' watermarks.
NEAR = "l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL 3 SECONDS AND l.ts + INTERVAL 5 SECONDS"
JOINED = f"""SELECT l.k AS k, r.k AS rk, l.ts AS at, r.ts AS rat, l.i AS i, r.i AS ri
FROM {T} AS l %s JOIN {U} AS r ON {NEAR}"""
SAME_WINDOW = f"""SELECT l.w.start AS begin, r.w.start AS rbegin, l.k AS k, r.k AS rk, l.i AS i,
r.i AS ri FROM (SELECT window(ts, '5 seconds') AS w, k, i FROM {T}) AS l
%s JOIN (SELECT window(ts, '5 seconds') AS w, k, i FROM {U}) AS r ON l.w = r.w AND l.k = r.k"""


def join(name, query):
    return Case(name, query, tables=("t", "u"))


def watermarked(session):
    return session.table("t").withWatermark("ts", "10 seconds").select("ts", "k", "i")


SESSIONS = [
    Case("session", SESSION % "'2 seconds'"),
    Case("session_gap", SESSION % "gap"),
    Case("session_gap_computed", SESSION % "CASE WHEN i > 5 THEN '5 seconds' ELSE '1 second' END"),
    Case("session_punctual", SESSION % "'3 seconds'", events="punctual", recut=True),
    Case("session_restarted", SESSION % "'4 seconds'", stop_after=3),
    Case("session_complete", SESSION % "'2 seconds'", mode="complete"),
    Case("session_then_window", f"""SELECT window.start AS begin, count(*) AS sessions, sum(n) AS n
FROM (SELECT session_window AS w, k, count(*) AS n
      FROM {T} GROUP BY session_window(ts, '2 seconds'), k) AS inner_one
GROUP BY window(w, '20 seconds')"""),
    Case("session_without_watermark", ENDLESS % "'2 seconds'", mode="complete"),
    Case("session_without_watermark_key_first", """SELECT upper(k) AS u, session_window.end AS until,
count(*) AS n, avg(d) AS mean FROM STREAM t GROUP BY upper(k), session_window(ts, '3 seconds')""",
         mode="complete"),
    Case("session_without_watermark_gap", ENDLESS % "gap", mode="complete"),
    Case("session_without_watermark_restarted", ENDLESS % "'4 seconds'", mode="complete",
         stop_after=3),
    Case("session_without_watermark_bridged", ENDLESS % "'5 seconds'", mode="complete",
         events={"t": [rows(1, 10, k="a", i=1), rows(5, k="a", i=7) + rows(2, k="b"),
                       rows(SECONDS_1969, k="a"), rows(14, k="a", d=0.5)]}),
    Case("session_of_other_time", (SESSION % "'2 seconds'").replace(
        "session_window(ts,", "session_window(ts + INTERVAL 1 SECOND,"), mode="complete"),
    Case("session_of_a_subquery", """SELECT w.start AS begin, k, count(*) AS n
FROM (SELECT session_window(ts, '2 seconds') AS w, k FROM STREAM t) AS each_row
GROUP BY w, k""", mode="complete"),
]


def first_ones(name, here, frame, **more):
    """First rows: `here` in SQL, `frame` on Spark, which has no words for them."""
    return Case(name, here, on_spark=frame, **more)


FIRST_ONES = [
    first_ones("distinct_event_time", f"SELECT DISTINCT ts, k FROM {T}",
               lambda session: watermarked(session).select("ts", "k").dropDuplicates()),
    first_ones("distinct_for_ever", "SELECT DISTINCT k, i FROM STREAM t",
               lambda session: session.table("t").select("k", "i").dropDuplicates()),
    first_ones("distinct_update", "SELECT DISTINCT k, i FROM STREAM t",
               lambda session: session.table("t").select("k", "i").dropDuplicates(),
               mode="update"),
    first_ones("union_of_first_ones", "SELECT k, i FROM STREAM t UNION SELECT k, i FROM STREAM u",
               lambda session: session.table("t").select("k", "i").unionAll(
                   session.table("u").select("k", "i")).dropDuplicates(), tables=("t", "u")),
    first_ones("first_by_event_time", f"SELECT DISTINCT ON (ts, k) ts, k FROM {T}",
               lambda session: watermarked(session).dropDuplicates(["ts", "k"]).select("ts", "k")),
    first_ones("first_by_key", "SELECT DISTINCT ON (k) k FROM STREAM t",
               lambda session: session.table("t").dropDuplicates(["k"]).select("k")),
    first_ones("first_within_watermark", f"SELECT DISTINCT ON (k) WITHIN WATERMARK k FROM {T}",
               lambda session:
               watermarked(session).dropDuplicatesWithinWatermark(["k"]).select("k")),
    first_ones("first_within_watermark_restarted",
               f"SELECT DISTINCT ON (k) WITHIN WATERMARK k FROM {T}",
               lambda session:
               watermarked(session).dropDuplicatesWithinWatermark(["k"]).select("k"),
               stop_after=3),
]

JOINS = [
    join("join_inner", JOINED % "INNER"),
    join("join_left", JOINED % "LEFT OUTER"),
    join("join_right", JOINED % "RIGHT OUTER"),
    join("join_full", (JOINED % "FULL OUTER").replace(
        "l.k = r.k", "coalesce(l.k, '') = coalesce(r.k, '')")),
    join("join_semi", f"""SELECT l.k AS k, l.ts AS at
FROM {T} AS l LEFT SEMI JOIN {U} AS r ON {NEAR}"""),
    join("join_windows", SAME_WINDOW % "INNER"),
    join("join_windows_left", SAME_WINDOW % "LEFT OUTER"),
    join("join_windows_full", (SAME_WINDOW % "FULL OUTER").replace(
        "l.k = r.k", "coalesce(l.k, '') = coalesce(r.k, '')")),
    join("join_then_window", f"""SELECT window.start AS begin, count(*) AS pairs
FROM (SELECT l.ts AS at FROM {T} AS l JOIN {U} AS r ON {NEAR}) AS pairs
GROUP BY window(at, '10 seconds')"""),
    Case("join_on_doubles", f"""SELECT l.i AS i, r.i AS ri, l.d AS d, r.d AS rd
FROM {T} AS l JOIN {U} AS r ON l.d = r.d""", tables=("t", "u"), events={
        "t": [[line(1, d=0.0, i=1), line(2, d=-0.0, i=2), line(3, d=0.25, i=3)],
              [line(4, d="NaN", i=4)]],
        "u": [[line(1, d=-0.0, i=5), line(2, d="NaN", i=6)], [line(3, d=0.0, i=7)]]}),
    Case("join_left_restarted", JOINED % "LEFT OUTER", tables=("t", "u"), stop_after=3),
    Case("join_without_watermark", """SELECT l.k AS k, l.i AS i, r.d AS d
FROM STREAM t AS l JOIN STREAM u AS r ON l.k = r.k AND l.i = r.i AND l.s = r.s""",
         tables=("t", "u")),
]

OPERATORS = [*SESSIONS, *FIRST_ONES, *JOINS]

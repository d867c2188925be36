"""What differs from Spark, each with the fewest rows that show it.

These are run like all others and have to be different in exactly the lines that they state: one that
is equal stands in the wrong list, and an error is no difference.
"""

from .cases import NOT_IN, T, U, Case, rows
from .operators import JOINED
from .shapes import FEW, TABLE

COUNTS = f"""SELECT window.start AS begin, %s count(*) AS n
FROM {T} %s GROUP BY window(ts, '10 seconds')%s"""
PLAIN = COUNTS % ("", "", "")
COUNTED = PLAIN.replace("count(*)", "count(%s)")
UNION = PLAIN.replace(T, f"(SELECT ts FROM {T} UNION ALL SELECT ts FROM {U}) AS both_streams")
# A watermark that only moves here closes the first window.
CLOSED_HERE = ("micro-batch 2: here only, with 0 rows in, watermark 2026-01-01T00:00:50.000Z, 0 rows "
               "late, rows [{'begin': '2026-01-01T00:00:00.000Z', 'k': 'a', 'n': 1}]")


def known(why, name, query, written, **more):
    """A case over the files of the one table."""
    return Case(name, query, events={"t": written}, why=why, **more)


def known_of_two(why, name, query, of_t, of_u, **more):
    """A case over the files of two tables."""
    files = {"t": of_t, "u": of_u}
    return Case(name, query, tables=("t", "u"), events=files, why=why, **more)


ROWS = [
    known("Spark moves a condition of HAVING on keys below the watermark too, which rows of other "
          "groups then do not move. Here they do",
          "having_moves_watermark", f"""SELECT window.start AS begin, k, count(*) AS n
FROM {T} GROUP BY window(ts, '10 seconds'), k HAVING k = 'a' AND count(*) > 0""",
          [rows(1, k="a"), rows(60, k="b"), rows(2, 50, k="a"), rows(90, k="a")], differs=(
              "micro-batch 2: watermark is 2026-01-01T00:00:40.000Z in Spark, "
              "2026-01-01T00:00:50.000Z here",
              "micro-batch 3: watermark is 2026-01-01T00:01:20.000Z in Spark, "
              "2026-01-01T00:00:50.000Z here",
              "micro-batch 3, watermark 2026-01-01T00:00:50.000Z:",
              '  Spark only {"begin": "2026-01-01T00:00:50.000Z", "k": "a", "n": 1}',
              "micro-batch 4: here only, with 0 rows in, watermark 2026-01-01T00:01:20.000Z, "
              "0 rows late, rows [{'begin': '2026-01-01T00:00:50.000Z', 'k': 'a', 'n': 1}]")),
    known("rows of a stream that a condition takes away are a micro-batch here; Spark has none "
          "where the table on the left is joined to no row",
          "table_on_the_left", f"SELECT t.k, w FROM {TABLE} JOIN STREAM t ON t.k = o.k AND i > 2",
          FEW, differs=("micro-batch 3: here only, with 1 rows in, watermark , 0 rows late, "
                        "rows []",)),
    known_of_two("Spark takes null keys for equal in a full outer join of streams",
                 "full_join_of_nulls", JOINED % "FULL OUTER", [rows(1, i=1)], [rows(2, i=2)],
                 differs=(
                     "micro-batch 0, watermark 1970-01-01T00:00:00.000Z:",
                     '  Spark only {"at": "2026-01-01T00:00:01.000Z", "i": 1, '
                     '"rat": "2026-01-01T00:00:02.000Z", "ri": 2}')),
    known("Spark looks rows up in a table below the watermark too: those that IN, EXISTS or a semi "
          "or anti join takes away do not move it. Here they do",
          "not_in_moves_watermark", NOT_IN, [rows(1, k="a"), rows(60, k="b")],
          differs=(CLOSED_HERE,)),
    known("of 0.0 and -0.0 the one that came first is Spark's least; here -0.0 is",
          "least_of_zeros", "SELECT k, min(d) AS low FROM STREAM t GROUP BY k",
          [rows(1, k="a", d=0.0), rows(2, k="a", d=-0.0)], mode="update", differs=(
              "micro-batch 1, watermark 1970-01-01T00:00:00.000Z:",
              '  Spark only {"k": "a", "low": 0.0}',
              '  here only  {"k": "a", "low": -0.0}')),
    known("over all rows there is one group, also of no rows: Spark publishes it then",
          "no_rows", "SELECT count(*) AS n, max(i) AS high FROM STREAM t", [rows(1), []],
          mode="update", differs=("micro-batch 1: Spark only, with 0 rows in, watermark , 0 rows "
                                  "late, rows [{'n': 1}]",)),
    known("as no_rows", "no_rows_complete", "SELECT count(*) AS n FROM STREAM t", [[], rows(1)],
          mode="complete", differs=(
              "micro-batch 1, watermark 1970-01-01T00:00:00.000Z:",
              '  Spark only {"n": 0}',
              '  here only  {"n": 1}',
              "micro-batch 1: Spark only, with 1 rows in, watermark , 0 rows late, "
              "rows [{'n': 1}]")),
    known("after a watermark that closes nothing Spark runs a micro-batch without input, here "
          "there is none: a row that comes next is late by the watermark of the micro-batch before",
          "late_after_idling", PLAIN, [rows(30), rows(5), rows(60)], stop_after=1,
          differs=(
              "micro-batch 1: dropped is 1 in Spark, 0 here",
              "micro-batch 1, watermark 2026-01-01T00:00:20.000Z:",
              '  here only  {"begin": "2026-01-01T00:00:00.000Z", "n": 1}')),
]

PROGRESS = [
    known_of_two("late rows of one group in two streams: Spark combines them before it counts",
                 "late_in_two_streams", UNION, *[[rows(60), rows(70), rows(1, 90)]] * 2,
                 differs=("micro-batch 2: dropped is 1 in Spark, 2 here",)),
    known_of_two("a restart of Spark forgets the watermark of each stream; here it is in the state",
                 "one_silent_after_restart", UNION, [rows(1, 30), rows(60), rows(70)],
                 [rows(1, 31), [], []], stop_after=1, differs=(
                     "micro-batch 3: watermark is 2026-01-01T00:00:20.000Z in Spark, "
                     "2026-01-01T00:00:26.000Z here",)),
    known("where no group has an event time, the progress here tells the watermark of 1970",
          "watermark_without_use", f"SELECT k, count(*) AS n FROM {T} GROUP BY k",
          [rows(30, k="a"), rows(60, k="b")], mode="update", differs=(
              "micro-batch 1: watermark is 2026-01-01T00:00:20.000Z in Spark, "
              "1970-01-01T00:00:00.000Z here",)),
]

ACCEPTED = [
    known("Spark refuses it", "window_time_selected", f"""SELECT window_time(window) AS at,
count(*) AS n FROM {T} GROUP BY window(ts, '10 seconds')""", [rows(1), rows(60)],
          spark_refuses='[MISSING_AGGREGATION] The non-aggregating expression "window_time(window)"',
          differs=(
              "micro-batch 0: here only, with 1 rows in, watermark 1970-01-01T00:00:00.000Z, "
              "0 rows late, rows []",
              "micro-batch 1: here only, with 1 rows in, watermark 2025-12-31T23:59:51.000Z, "
              "0 rows late, rows []",
              "micro-batch 2: here only, with 0 rows in, watermark 2026-01-01T00:00:50.000Z, "
              "0 rows late, rows [{'at': '2026-01-01T00:00:09.999Z', 'n': 1}]")),
]

KNOWN_DIFFERENT = [*ROWS, *PROGRESS, *ACCEPTED]

# Here something is another on purpose: that has to be seen.
FAULTY = [
    known("Millstream is given another delay", "other_delay", PLAIN, [rows(1), rows(14), rows(60)],
          here=PLAIN.replace("10 SECONDS", "3 SECONDS"), differs=(
              "micro-batch 1: watermark is 2025-12-31T23:59:51.000Z in Spark, "
              "2025-12-31T23:59:58.000Z here",
              "micro-batch 2: watermark is 2026-01-01T00:00:04.000Z in Spark, "
              "2026-01-01T00:00:11.000Z here",
              "micro-batch 2, watermark 2026-01-01T00:00:11.000Z:",
              '  here only  {"begin": "2026-01-01T00:00:00.000Z", "n": 1}',
              "micro-batch 3: watermark is 2026-01-01T00:00:50.000Z in Spark, "
              "2026-01-01T00:00:57.000Z here",
              "micro-batch 3, watermark 2026-01-01T00:00:57.000Z:",
              '  Spark only {"begin": "2026-01-01T00:00:00.000Z", "n": 1}')),
    known("Millstream is asked to count another column", "other_value", COUNTED % "i",
          [rows(1, i=7), rows(60)], here=COUNTED % "d", differs=(
              "micro-batch 2, watermark 2026-01-01T00:00:50.000Z:",
              '  Spark only {"begin": "2026-01-01T00:00:00.000Z", "n": 1}',
              '  here only  {"begin": "2026-01-01T00:00:00.000Z", "n": 0}')),
]

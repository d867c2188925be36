"""What differs from Spark, each with the fewest rows that show it.

These are run like all others and have to be different: one that is equal stands in the wrong list.
"""

from .cases import KEYED, NOT_IN, T, U, Case, rows
from .operators import JOINED

COUNTS = f"""SELECT window.start AS begin, %s count(*) AS n
FROM {T} %s GROUP BY window(ts, '10 seconds')%s"""
PLAIN = COUNTS % ("", "", "")
UNION = PLAIN.replace(T, f"(SELECT ts FROM {T} UNION ALL SELECT ts FROM {U}) AS both_streams")


def known(why, name, query, written, **more):
    """A case over the files of the one table."""
    return Case(name, query, events={"t": written}, why=why, **more)


def known_of_two(why, name, query, of_t, of_u, **more):
    """A case over the files of two tables."""
    files = {"t": of_t, "u": of_u}
    return Case(name, query, tables=("t", "u"), events=files, why=why, **more)


ROWS = [
    known_of_two("Spark takes null keys for equal in a full outer join of streams",
                 "full_join_of_nulls", JOINED % "FULL OUTER", [rows(1, i=1)], [rows(2, i=2)]),
    known("Spark moves a HAVING that looks at a key below the aggregation and the watermark: rows "
          "that it takes away do not move the watermark. Here they do",
          "having_moves_watermark", COUNTS % ("k,", "", ", k HAVING k = 'a'"),
          [rows(1, k="a"), rows(60, k="b")]),
    known("Spark looks rows up in a table below the watermark too: those that IN, EXISTS or a semi "
          "or anti join takes away do not move it. Here they do",
          "not_in_moves_watermark", NOT_IN, [rows(1, k="a"), rows(60, k="b")]),
    known("of 0.0 and -0.0 the one that came first is Spark's least; here -0.0 is",
          "least_of_zeros", "SELECT k, min(d) AS low FROM STREAM t GROUP BY k",
          [rows(1, k="a", d=0.0), rows(2, k="a", d=-0.0)], mode="update"),
    known("over all rows there is one group, also of no rows: Spark publishes it then",
          "no_rows", "SELECT count(*) AS n, max(i) AS high FROM STREAM t", [rows(1), []],
          mode="update"),
    known("as no_rows", "no_rows_complete", "SELECT count(*) AS n FROM STREAM t", [[], rows(1)],
          mode="complete"),
    known("after a watermark that closes nothing Spark runs a micro-batch without input, here "
          "there is none: a row that comes next is late by the watermark of the micro-batch before",
          "late_after_idling", PLAIN, [rows(30), rows(5), rows(60)], stop_after=1),
]

PROGRESS = [
    known_of_two("late rows of one group in two streams: Spark combines them before it counts",
                 "late_in_two_streams", UNION, *[[rows(60), rows(70), rows(1, 90)]] * 2),
    known_of_two("a restart of Spark forgets the watermark of each stream; here it is in the state",
                 "one_silent_after_restart", UNION, [rows(1, 30), rows(60), rows(70)],
                 [rows(1, 31), [], []], stop_after=1),
    known("where no group has an event time, the progress here tells the watermark of 1970",
          "watermark_without_use", f"SELECT k, count(*) AS n FROM {T} GROUP BY k",
          [rows(30, k="a"), rows(60, k="b")], mode="update"),
]

ACCEPTED = [
    known("Spark refuses it", "window_time_selected", f"""SELECT window_time(window) AS at,
count(*) AS n FROM {T} GROUP BY window(ts, '10 seconds')""", [rows(1), rows(60)]),
]

KNOWN_DIFFERENT = [*ROWS, *PROGRESS, *ACCEPTED]

# Here something is another on purpose: that has to be seen.
FAULTY = [
    Case("other_delay", KEYED, here=KEYED.replace("10 SECONDS", "3 SECONDS"),
         why="Millstream is given another delay"),
    Case("other_value", KEYED, here=KEYED.replace("count(i)", "count(d)"),
         why="Millstream is asked to count another column"),
]

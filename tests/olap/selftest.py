"""Checks the comparison itself: it takes each right answer to a query with ties, and no wrong one.

    $(tests/lake/install)/bin/python tests/olap/selftest.py
"""

import pathlib
import sys
import tempfile

import duckdb

import compare
import ties
import tpcds

# A query, answers to it that are right, and some that are not.
CASES = [
    ("SELECT a, b FROM t ORDER BY a",
     [":5 1:1 1:2 2:3 2:4", ":5 1:2 1:1 2:4 2:3"],
     [":5 1:1 1:1 2:3 2:4", "1:1 1:2 2:3 2:4 :5", ":5 1:1 1:2 2:3", ":5 2:3 1:1 1:2 2:4", ""]),
    ("SELECT a, b FROM t ORDER BY a LIMIT 4",
     [":5 1:1 1:2 2:3", ":5 1:2 1:1 2:4"],
     [":5 1:1 1:2 2:5", ":5 1:1 2:3 2:4", ":5 1:1 1:2", ":5 1:1 1:2 2:3 2:4"]),
    ("SELECT a, b FROM t", ["2:4 2:3 1:1 :5 1:2"], ["2:4 2:3 1:1 :5 1:1"]),
    # Keys that are no columns, or columns by another name.
    ("SELECT b FROM t ORDER BY a + 1 DESC LIMIT 3", ["3 4 1", "4 3 2"], ["1 3 4", "3 4 5"]),
    ("SELECT * FROM t ORDER BY b % 2, t.a LIMIT 2", ["1:2 2:4"], ["2:4 1:2", "1:1 1:2"]),
    ("SELECT a AS k, count(*) AS n FROM t GROUP BY a ORDER BY count(*) DESC LIMIT 2",
     ["1:2 2:2", "2:2 1:2"], ["1:2 :1", ":1 1:2"]),
    ("SELECT a % 2 AS k, b FROM t ORDER BY k DESC, 1 LIMIT 1", ["1:1", "1:2"], ["0:3"]),
    ("SELECT a, b FROM t UNION ALL SELECT 3, 6 ORDER BY a DESC LIMIT 2",
     ["3:6 2:4", "3:6 2:3"], ["2:3 3:6", "3:6 1:1"]),
    ("SELECT avg(x) AS m FROM t, (VALUES (0.1), (0.2), (0.4)) AS v(x)", ["0.233333"], ["0.2334"]),
]
# What Spark's words are to DuckDB.
WORDS = [
    ("SELECT 1 AS `a b`, coalesce(returns, 0) returns FROM (SELECT 2) at, t",
     'SELECT 1 AS "a b", coalesce(returns, 0) AS returns FROM (SELECT 2) AS "at", t'),
    ("concat('store', s_id), concat(a, ', ', b), concat('x', ',', 'y')",
     "('store' || s_id), (a || ', ' || b), ('x' || ',' || 'y')"),
    ("cast((revenue / 50) AS INT)", "cast(trunc(revenue / 50) AS INT)"),
]


def rows(text):
    """Rows as ours are read: values of a row are parted by a colon."""
    return [row.split(":") for row in text.split()]


def check_ties():
    connection = duckdb.connect()
    connection.execute(tpcds.DUCKDB_SETTINGS)
    connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES "
                       "(1, 1), (1, 2), (2, 3), (2, 4), (NULL, 5)) AS v(a, b)")
    for query, right, wrong in CASES:
        for answer in right + wrong:
            found = ties.problem(connection, query, rows(answer), compare.same, compare.alike)
            assert (found is None) == (answer in right), f"{query}: {answer!r}: {found}"


def check_values():
    for left, right in [("", None), ("", ""), ("1.0", 1), ("0.3333333", 1 / 3), ("x", "x")]:
        assert compare.same(left, right), (left, right)
    for left, right in [("", 0), ("0", None), ("x", None), ("", "x"), ("1.1", 1), ("x", "y")]:
        assert not compare.same(left, right), (left, right)


def check_words():
    for spark, duck in WORDS:
        assert tpcds.for_duckdb(spark) == duck, tpcds.for_duckdb(spark)


KNOWN = """# Why.
q1 refused: why
q2 different: why
q4 refused (by zero): why
q5 refused (by zero): why
q9 refused: why
"""
# What became of the queries, with what is wrong.
FOUND = [("q1", "refused", "no"), ("q2", "equal", None), ("q3", "different", "row 1"),
         ("q4", "refused", "error: division by zero"), ("q5", "refused", "no answer in 300 s")]


def check_known():
    with tempfile.TemporaryDirectory() as directory:
        known = pathlib.Path(directory) / "known"
        known.write_text(KNOWN)
        outcomes = compare.Outcomes(known)
        for name, outcome, problem in FOUND:
            outcomes.add(name, outcome, [(1,)], problem)
        found = [complaint.split()[0] for complaint in outcomes.end(is_all=True)]
        assert found == ["q2", "q3", "q5", "q9"], found
        for line in ["q1 refused", "q1 equal: why", "q1 refused (): why", "q1 refused (no):"]:
            known.write_text(line)
            try:
                compare.Outcomes(known)
            except SystemExit:
                continue
            raise AssertionError(line)


def check_rows():
    """Tables that leave more than half of a suite's answers without rows are complained about."""
    for empty, is_all, complaints in [(2, True, 0), (3, True, 1), (3, False, 0)]:
        outcomes = compare.Outcomes(None)
        for at in range(4):
            outcomes.add(f"q{at}", "equal", [] if at < empty else [(1,)], None)
        found = outcomes.end(is_all)
        assert len(found) == complaints, (empty, is_all, found)


def main():
    check_ties()
    check_values()
    check_words()
    check_known()
    check_rows()


if __name__ == "__main__":
    sys.exit(main())

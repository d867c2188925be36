"""Many small queries, each over a few rows: functions, keys, windows, orders, forms of a query.

What they share with the cases of `cases` is left out there: here each query is about one thing, so
that a difference names it.
"""

from .cases import T, U, Case, rows
from .events import line

# Three micro-batches and a row that closes all windows before it. Nothing is late.
FEW = [
    [line(1, k="a", i=3, d=1.5, s="x", gap="2 seconds"), line(2, k="b", i=-2, d=-0.25, s="xy"),
     line(3, k="a", i=7, d=2.25, s="Zürich"), line(4, i=5, d=0.5, s="")],
    [line(6, k="b", i=4, s="y"), line(11, k="a", d=8.75, s="x"), line(12, k="c", i=3, d=1.0, s="z"),
     line(9, k="a", i=3, d=3.5)],
    [line(14, k="c", i=11, d=-7.0, s="x"), line(13, k="a", i=0, d=1.25, s="xy"),
     line(19, k="c", i=6, d=2.0, s="w"), line(18, k="b", i=1, d=0.25, s="v")],
    rows(90, k="a", i=1, d=1.0, s="end"),
]
OTHER = [
    [line(2, k="a", i=1, s="p"), line(3, k="b", i=2, s="q")],
    [line(5, k="a", i=3, s="r"), line(14, k="c", i=4, s="p")],
    [line(16, k="c", i=5, s="q"), line(15, k="d", i=6, s="r")],
    rows(95, k="b", i=7, s="p"),
]


def few(name, query, **more):
    return Case(name, query, events={"t": FEW}, **more)


def of_two(name, query, **more):
    return Case(name, query, tables=("t", "u"), events={"t": FEW, "u": OTHER}, **more)


# Aggregate functions, each beside the number of rows of its group.
FUNCTIONS = {
    "any": "any(i > 3)",
    "any_value": "any_value(coalesce(k, '')) IS NOT NULL",
    "approx_count": "approx_count_distinct(s)",
    "approx_percentiles": "approx_percentile(i, array(0.25D, 0.5D, 0.75D), 100)",
    "array_agg": "sort_array(array_agg(i))",
    "average_of_decimals": "avg(CAST(d AS DECIMAL(8, 3)))",
    "average_tried": "try_avg(i)",
    "bits_and": "bit_and(coalesce(i, 15))",
    "bits_or": "bit_or(i)",
    "bits_xor": "bit_xor(i)",
    "bool_and": "bool_and(d > -1)",
    "collect_list": "sort_array(collect_list(s))",
    "collect_set": "sort_array(collect_set(k))",
    "corr": "round(corr(i, d), 9)",
    "count_columns": "count(i, d)",
    "count_if": "count_if(i >= 3)",
    "covar_pop": "round(covar_pop(i, d), 9)",
    "every": "every(i IS NOT NULL)",
    "first_ignoring": "first(i, true)",
    "greatest_date": "max(CAST(ts AS DATE))",
    "greatest_struct": "max(struct(coalesce(i, -9) AS i, coalesce(d, 0) AS d)).d",
    "last_ignoring": "last(s) IGNORE NULLS",
    "least_array": "min(array(coalesce(i, 0), 1))",
    "least_boolean": "min(i > 3)",
    "least_timestamp": "min(ts)",
    "max_by": "max_by(k, ts)",
    "median": "median(i)",
    "min_by": "min_by(d, ts)",
    "of_filtered": "sum(i) FILTER (WHERE d > 1)",
    "percentile": "percentile(d, 0.3)",
    "regr_avgx": "regr_avgx(i, d)",
    "regr_count": "regr_count(i, d)",
    "regr_slope": "round(regr_slope(i, d), 9)",
    "some": "some(k = 'b')",
    "stddev_pop": "round(stddev_pop(d), 9)",
    "sum_of_case": "sum(CASE k WHEN 'a' THEN 1 WHEN 'b' THEN 10 ELSE 100 END)",
    "sum_of_decimals": "sum(CAST(d AS DECIMAL(8, 3)))",
    "sum_of_quotients": "sum(d / 2) / count(d)",
    "sum_of_small": "sum(CAST(i AS SMALLINT))",
    "sum_tried": "try_sum(i)",
    "var_samp": "round(var_samp(i), 9)",
}

AGGREGATES = [
    few(f"function_{name}", f"""SELECT window.start AS begin, {call} AS v, count(*) AS n
FROM {T} GROUP BY window(ts, '10 seconds')""") for name, call in FUNCTIONS.items()
]

KEYS = {
    "boolean": "i > 3",
    "case": "CASE WHEN i > 3 THEN 'large' WHEN i > 0 THEN 'small' END",
    "cast": "CAST(d AS INT)",
    "coalesced": "coalesce(k, 'none')",
    "date": "CAST(ts AS DATE)",
    "decimal": "CAST(d AS DECIMAL(6, 1))",
    "float": "CAST(d AS FLOAT)",
    "length": "length(s)",
    "minute": "date_trunc('MINUTE', ts)",
    "modulo": "pmod(i, 3)",
    "nested": "struct(k, struct(i > 3 AS big) AS inner_one)",
    "second": "second(ts) DIV 5",
    "upper": "upper(k) || '!'",
}

BY_KEY = [
    few(f"key_{name}", f"""SELECT {key} AS key, count(*) AS n, sum(coalesce(i, 0)) AS total
FROM STREAM t GROUP BY {key}""", mode="update") for name, key in KEYS.items()
]

WINDOWS = {
    "days": "'1 day'",
    "gliding": "'10 seconds', '3 seconds'",
    "milliseconds": "'2500 milliseconds'",
    "shifted": "'10 seconds', '10 seconds', '7 seconds'",
    "shifted_back": "'10 seconds', '5 seconds', '-2 seconds'",
    "weeks": "'1 week'",
}

BY_WINDOW = [
    few(f"window_{name}", f"""SELECT window.start AS begin, window.end AS until, count(*) AS n
FROM STREAM t GROUP BY window(ts, {size})""", mode="complete") for name, size in WINDOWS.items()
]

GROUPING_SETS = [
    few("rollup", """SELECT k, i > 4 AS big, count(*) AS n, grouping_id() AS id
FROM STREAM t GROUP BY ROLLUP(k, i > 4)""", mode="update"),
    few("rollup_complete", """SELECT k, s, sum(i) AS total, grouping(k) AS gk, grouping(s) AS gs
FROM STREAM t GROUP BY ROLLUP(k, s)""", mode="complete"),
    few("rollup_with", "SELECT k, count(*) AS n FROM STREAM t GROUP BY k WITH ROLLUP",
        mode="complete"),
    few("cube", """SELECT k, i > 4 AS big, max(d) AS high, grouping_id(k, i > 4) AS id
FROM STREAM t GROUP BY CUBE(k, i > 4)""", mode="complete"),
    few("grouping_sets", """SELECT k, s, count(*) AS n
FROM STREAM t GROUP BY GROUPING SETS ((k, s), (s), ())""", mode="update"),
    few("grouping_sets_twice", """SELECT k, count(*) AS n
FROM STREAM t GROUP BY GROUPING SETS ((k), (k), ())""", mode="complete"),
    few("grouping_sets_having", """SELECT k, s, count(*) AS n
FROM STREAM t GROUP BY CUBE(k, s) HAVING count(*) > 1 AND grouping(s) = 1""", mode="complete"),
    few("rollup_of_windows", f"""SELECT window.start AS begin, k, count(*) AS n
FROM {T} GROUP BY window(ts, '10 seconds'), ROLLUP(k)""", mode="update"),
]

ORDERS = [
    few("sorted_complete", """SELECT k, count(*) AS n FROM STREAM t GROUP BY k
ORDER BY n DESC, k LIMIT 2""", mode="complete"),
    few("sorted_by_expression", """SELECT s, sum(i) AS total FROM STREAM t GROUP BY s
ORDER BY sum(i) DESC NULLS LAST, s LIMIT 3""", mode="complete"),
    few("sorted_whole", "SELECT k, max(d) AS high FROM STREAM t GROUP BY k ORDER BY high",
        mode="complete"),
    few("sorted_below_a_filter", """SELECT k, n FROM (SELECT k, count(*) AS n FROM STREAM t GROUP BY k
ORDER BY n DESC, k LIMIT 2) AS most WHERE n > 1""", mode="complete"),
]

# Functions of a row, several in a query, since none keeps anything.
OF_A_ROW = {
    "texts": "upper(s) AS a, substring(s, 1, 2) AS b, concat_ws('-', k, s) AS c, length(s) AS e",
    "trimmed": "lpad(k, 3, '*') AS a, rtrim(s) AS b, repeat(k, 2) AS c, reverse(s) AS e",
    "patterns": "s RLIKE '^x' AS a, regexp_replace(s, 'x', 'o') AS b, s LIKE '%y' AS c",
    "split": "split(s, '') AS a, split_part(s, 'i', 1) AS b, instr(s, 'r') AS c",
    "times": "year(ts) AS a, dayofweek(ts) AS b, date_add(CAST(ts AS DATE), 40) AS c, "
             "ts + INTERVAL 90 MINUTES AS e",
    "time_texts": "date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS') AS a, unix_timestamp(ts) AS b, "
                  "date_trunc('HOUR', ts) AS c",
    "numbers": "i % 3 AS a, i / 2 AS b, round(d, 1) AS c, abs(i) AS e, floor(d) AS f, ceil(d) AS g",
    "decimals": "CAST(d AS DECIMAL(9, 2)) * 1.10 AS a, CAST(i AS DECIMAL(5, 0)) / 3 AS b",
    "nulls": "coalesce(k, s, '-') AS a, nullif(i, 3) AS b, nvl2(k, 1, 2) AS c, i <=> NULL AS e",
    "conditions": "if(i > 3, 'large', 'small') AS a, CASE WHEN d > 1 THEN d END AS b, "
                  "greatest(i, 4) AS c, least(d, 0.5) AS e",
    "arrays": "array(i, 1) AS a, array_contains(array(1, 3), i) AS b, size(split(s, 'x')) AS c, "
              "element_at(array(k, s), -1) AS e",
    "lambdas": "transform(array(i, 1), x -> x + 1) AS a, filter(array(i, 9), x -> x > 3) AS b, "
               "aggregate(array(1, 2), 0, (acc, x) -> acc + x) AS c",
    "structs": "named_struct('k', k, 'i', i) AS a, struct(d).d AS b",
    "json": "to_json(named_struct('k', k, 'i', i)) AS a, "
            "get_json_object('{\"a\": 1}', '$.a') AS b, from_json('{\"x\": 5}', 'x INT').x AS c",
    "hashes": "md5(s) AS a, crc32(s) AS b, hash(k, i) AS c, xxhash64(s) AS e, sha2(k, 256) AS f",
    "bits": "i & 3 AS a, i | 8 AS b, shiftleft(i, 2) AS c, bin(i) AS e, hex(i) AS f",
    "casts": "CAST(i AS STRING) AS a, try_cast(s AS INT) AS b, CAST(d AS BIGINT) AS c, "
             "CAST(ts AS DATE) AS e",
    "between": "i BETWEEN 2 AND 5 AS a, k IN ('a', 'c') AS b, NOT (d > 1) AS c, k IS NULL AS e",
}

ROWS = [
    few(f"row_{name}", f"SELECT {columns}, i AS i FROM STREAM t") for name, columns in OF_A_ROW.items()
]

FORMS = [
    few("with", """WITH some AS (SELECT k, i FROM STREAM t WHERE i > 0)
SELECT k, count(*) AS n FROM some GROUP BY k""", mode="update"),
    few("star_except", "SELECT * EXCEPT (ts, gap, d) FROM STREAM t"),
    few("lateral_view", """SELECT k, x FROM STREAM t
LATERAL VIEW explode(array(i, 2 * i)) AS x WHERE x > 4"""),
    few("lateral_view_outer", """SELECT k, at, x FROM STREAM t
LATERAL VIEW OUTER posexplode(CASE WHEN i > 3 THEN array(i, 0) END) AS at, x"""),
    few("stacked", "SELECT k, stack(2, 'i', i, 'two', 2) AS (name, v) FROM STREAM t"),
    few("inlined", """SELECT inline(array(struct(k AS a, 1 AS one), struct(s AS a, 2 AS one)))
FROM STREAM t"""),
    few("alias_of_the_list", "SELECT i + 1 AS more, more * 2 AS twice FROM STREAM t"),
    few("case_of_names", "SELECT T.K AS Key, t.I FROM STREAM t"),
    few("grouped_by_place", "SELECT upper(k), count(*) AS n FROM STREAM t GROUP BY 1", mode="update"),
    few("grouped_by_all", "SELECT k, i > 3 AS big, count(*) AS n FROM STREAM t GROUP BY ALL",
        mode="update"),
    few("grouped_by_alias", "SELECT coalesce(k, '?') AS key, max(s) AS s FROM STREAM t GROUP BY key",
        mode="update"),
    few("having_of_alias", "SELECT k, sum(i) AS total FROM STREAM t GROUP BY k HAVING total > 4",
        mode="complete"),
    # Rows that HAVING takes away for their keys do not move the watermark.
    few("aggregate_in_expressions", """SELECT k, sum(i) * 2 + count(*) AS v, max(i) - min(i) AS spread
FROM STREAM t GROUP BY k""", mode="complete"),
    of_two("union_of_three", """SELECT k, i FROM STREAM t UNION ALL SELECT k, i FROM STREAM u
UNION ALL SELECT s, i FROM STREAM t WHERE i > 3"""),
    of_two("joined_using", """SELECT k, l.i AS i, r.i AS ri
FROM STREAM t AS l JOIN STREAM u AS r USING (k)"""),
    of_two("joined_then_grouped", f"""SELECT window.start AS begin, sum(ri) AS total
FROM (SELECT l.ts AS at, r.i AS ri FROM {T} AS l JOIN {U} AS r
      ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 4 SECONDS) AS pairs
GROUP BY window(at, '10 seconds')"""),
    of_two("joined_by_two_keys", """SELECT l.k AS k, l.s AS s, r.i AS i
FROM STREAM t AS l JOIN STREAM u AS r ON l.k = r.k AND l.i = r.i + 2"""),
    of_two("joined_with_a_rest", """SELECT l.k AS k, l.i AS i, r.i AS ri
FROM STREAM t AS l JOIN STREAM u AS r ON l.k = r.k AND l.i > r.i"""),
]

TABLE = "(VALUES ('a', 10), ('b', 20), ('e', 50)) AS o(k, w)"
WITH_A_TABLE = [
    few("table_joined", f"SELECT t.k, i, w FROM STREAM t JOIN {TABLE} ON t.k = o.k"),
    few("table_exists", f"""SELECT k, i FROM STREAM t
WHERE EXISTS (SELECT 1 FROM {TABLE} WHERE o.k = t.k AND o.w > 10)"""),
    few("table_value", f"SELECT k, (SELECT max(w) FROM {TABLE}) - i AS v FROM STREAM t"),
    few("table_then_grouped", f"""SELECT w, count(*) AS n, sum(i) AS total
FROM STREAM t LEFT JOIN {TABLE} ON t.k = o.k GROUP BY w""", mode="complete"),
]

SHAPES = [*AGGREGATES, *BY_KEY, *BY_WINDOW, *GROUPING_SETS, *ORDERS, *ROWS, *FORMS, *WITH_A_TABLE]

"""Queries that Millstream refuses as yet: aggregates that keep an order, and names that only one
side of a join shows.

Spark runs them, so that the cases are whole; that Millstream refuses them is checked. When one
lands, its case belongs into `CASES`.
"""

from .cases import T, Case, rows
from .shapes import TABLE

OF_BOTH = "`k` is a column of both `t` and `o`"

PENDING = [
    Case("joined_texts", f"""SELECT window.start AS begin,
listagg(s, ',') WITHIN GROUP (ORDER BY s) AS texts FROM {T} GROUP BY window(ts, '10 seconds')""",
         events={"t": [rows(2, s="y") + rows(1, s="x"), rows(60)]},
         refuses="string_agg(... ORDER BY ...) over a stream is not supported", differs=(
             "micro-batch 0: Spark only, with 2 rows in, watermark 1970-01-01T00:00:00.000Z, "
             "0 rows late, rows []",
             "micro-batch 1: Spark only, with 1 rows in, watermark 2025-12-31T23:59:52.000Z, "
             "0 rows late, rows []",
             "micro-batch 2: Spark only, with 0 rows in, watermark 2026-01-01T00:00:50.000Z, "
             "0 rows late, rows [{'begin': '2026-01-01T00:00:00.000Z', 'texts': 'x,y'}]")),
    Case("table_semi", f"SELECT k, i FROM STREAM t LEFT SEMI JOIN {TABLE} ON t.k = o.k",
         events={"t": [rows(1, k="a", i=3)]}, refuses=OF_BOTH, differs=(
             "micro-batch 0: Spark only, with 1 rows in, watermark , 0 rows late, "
             "rows [{'k': 'a', 'i': 3}]",)),
    Case("table_anti", f"SELECT k, i FROM STREAM t LEFT ANTI JOIN {TABLE} ON t.k = o.k",
         events={"t": [rows(1, k="c", i=3)]}, refuses=OF_BOTH, differs=(
             "micro-batch 0: Spark only, with 1 rows in, watermark , 0 rows late, "
             "rows [{'k': 'c', 'i': 3}]",)),
]

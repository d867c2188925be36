"""Queries that Millstream refuses as yet: aggregates that keep an order or group in several ways.

Spark runs them, so that the cases are whole; that Millstream refuses them is checked. When one
lands, its case belongs into `CASES`.
"""

from .cases import T, Case

PENDING = [
    Case("joined_texts", f"""SELECT window.start AS begin,
listagg(s, ',') WITHIN GROUP (ORDER BY s) AS texts FROM {T} GROUP BY window(ts, '10 seconds')"""),
    Case("update_rollup", """SELECT k, i > 4 AS big, count(*) AS n
FROM STREAM t GROUP BY ROLLUP(k, i > 4)""", mode="update"),
]

"""Answers of TPC-H's queries beside DuckDB's, over the same files.

DATA has a Parquet file for each table (tpchgen-cli parquet -s 0.1 -o DATA). Prints a JSON object
per query: whether the rows are equal, and the milliseconds of each engine, the best of all runs.
Exit status 1 if any differ.
"""

import argparse
import csv
import json
import math
import pathlib
import re
import subprocess
import sys
import time

import duckdb

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
HERE = pathlib.Path(__file__).parent


def queries():
    text = (HERE / "queries.sql").read_text()
    parts = re.split(r"^-- (q\d+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def theirs(data, text, runs):
    connection = duckdb.connect()
    for table in TABLES:
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{data}/{table}.parquet'")
    took = []
    for _ in range(runs):
        start = time.monotonic()
        rows = connection.execute(text).fetchall()
        took.append((time.monotonic() - start) * 1e3)
    return rows, min(took)


def ours(arguments, declarations, text):
    script = declarations + arguments.first + text * arguments.runs
    flags = ["--on", arguments.on] if arguments.on else []
    run = subprocess.run(
        [arguments.millstream, "query", "-", "--timing", "--format", "csv", *flags],
        input=script, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    took = [float(found) for found in re.findall(r"rows in ([0-9.]+) ms", run.stderr)]
    lines = list(csv.reader(run.stdout.splitlines()))
    each = len(lines) // arguments.runs
    # A line of one null is empty.
    return [line or [""] for line in lines[1:each]], min(took)


def same(left, right):
    """A value of ours, which is text, against one of DuckDB's."""
    if right is None:
        return left == ""
    if isinstance(right, (int, float)) or right.__class__.__name__ == "Decimal":
        return math.isclose(float(left), float(right), rel_tol=1e-9, abs_tol=1e-6)
    return left == str(right)


def equal(mine, other):
    if len(mine) != len(other):
        return f"{len(mine)} rows, DuckDB has {len(other)}"
    for number, (left, right) in enumerate(zip(mine, other)):
        if len(left) != len(right) or not all(map(same, left, right)):
            return f"row {number}: {left}, DuckDB has {list(map(str, right))}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millstream")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("queries", nargs="*", help="q1, q2, ...; all without it")
    parser.add_argument("--on", help="HOST:PORT of a coordinator")
    parser.add_argument("--first", default="", help="statements before each query, such as SET")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    declarations = "".join(
        f"CREATE TABLE {table} USING parquet OPTIONS ('path' = '{data}/{table}.parquet');\n"
        for table in TABLES)
    worst, sums = 0, [0.0, 0.0]
    for name, text in queries().items():
        if arguments.queries and name not in arguments.queries:
            continue
        rows, duckdb_ms = theirs(data, text, arguments.runs)
        try:
            mine, millstream_ms = ours(arguments, declarations, text)
            problem = equal(mine, rows)
        except RuntimeError as error:
            problem, millstream_ms = str(error), math.nan
        worst |= problem is not None
        sums[0] += millstream_ms
        sums[1] += duckdb_ms
        print(json.dumps({
            "query": name, "equal": problem is None, "rows": len(rows),
            "millstream_ms": round(millstream_ms, 1), "duckdb_ms": round(duckdb_ms, 1),
            **({"problem": problem} if problem else {})}), flush=True)
    print(json.dumps({"query": "all", "millstream_ms": round(sums[0], 1),
                      "duckdb_ms": round(sums[1], 1), "ratio": round(sums[0] / sums[1], 2)}))
    return worst


if __name__ == "__main__":
    sys.exit(main())

"""Answers and times of `millstream query` beside DuckDB's, over the same files, in one run.

DATA has a Parquet file for each table of the suite: `tpchgen-cli parquet -s 0.1 -o DATA` makes those
of TPC-H, `hits.py DATA/hits.parquet` that of the 43 queries. Prints a JSON object per query: whether
the rows are equal, and the milliseconds of each engine, the best of all runs; at the end the sums.
With --datafusion also the times of DataFusion alone, through its Python package. Exit status 1 if
any answer differs.
"""

import argparse
import csv
import datetime
import json
import math
import pathlib
import re
import subprocess
import sys
import time

import duckdb

SUITES = {
    "tpch": ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"],
    "hits": ["hits"],
}
HERE = pathlib.Path(__file__).parent
FIRST_GROUP = {"millstream": "'$1'", "duckdb": r"'\1'", "datafusion": r"'\1'"}


def queries(suite, engine):
    text = (HERE / f"{suite}.sql").read_text()
    parts = re.split(r"^-- (q\d+)$", text, flags=re.MULTILINE)[1:]
    return {name: query.replace("CAPTURED", FIRST_GROUP[engine])
            for name, query in zip(parts[::2], parts[1::2])}


def best(runs, ask):
    took = []
    for _ in range(runs):
        start = time.monotonic()
        answer = ask()
        took.append((time.monotonic() - start) * 1e3)
    return answer, min(took)


class DuckDb:
    def __init__(self, tables, threads):
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads = {threads}")
        for table, path in tables.items():
            self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{path}'")

    def ask(self, text):
        return self.connection.execute(text).fetchall()


class DataFusion:
    def __init__(self, tables, threads):
        import datafusion

        config = datafusion.SessionConfig().with_target_partitions(threads)
        config = config.set("datafusion.execution.parquet.pushdown_filters", "true")
        config = config.set("datafusion.sql_parser.enable_ident_normalization", "false")
        self.context = datafusion.SessionContext(config)
        for table, path in tables.items():
            self.context.register_parquet(table, str(path))

    def ask(self, text):
        return self.context.sql(text.rstrip().rstrip(";")).collect()


def ours(arguments, declarations, text):
    script = declarations + arguments.first + text * arguments.runs
    flags = ["--on", arguments.on] if arguments.on else []
    run = subprocess.run(
        [arguments.millstream, "query", "-", "--timing", "--format", "csv", *flags],
        input=script, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    took = [float(found) for found in re.findall(r"rows? in ([0-9.]+) ms", run.stderr)]
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
    if isinstance(right, datetime.datetime):
        # A TIMESTAMP is shown in UTC, and DuckDB's is without a time zone.
        return datetime.datetime.fromisoformat(left).replace(tzinfo=None) == right
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
    parser.add_argument("--suite", choices=SUITES, default="tpch")
    parser.add_argument("--on", help="HOST:PORT of a coordinator")
    parser.add_argument("--first", default="", help="statements before each query, such as SET")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--datafusion", action="store_true", help="DataFusion alone as well")
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    tables = {table: data / f"{table}.parquet" for table in SUITES[arguments.suite]}
    declarations = "".join(
        f"CREATE TABLE {table} USING parquet OPTIONS ('path' = '{path}');\n"
        for table, path in tables.items())
    duck = DuckDb(tables, arguments.threads)
    alone = DataFusion(tables, arguments.threads) if arguments.datafusion else None
    asked = {engine: queries(arguments.suite, engine) for engine in FIRST_GROUP}
    worst, sums = 0, {}
    for name, text in asked["millstream"].items():
        if arguments.queries and name not in arguments.queries:
            continue
        took = {}
        rows, took["duckdb"] = best(arguments.runs, lambda: duck.ask(asked["duckdb"][name]))
        try:
            mine, took["millstream"] = ours(arguments, declarations, text)
            problem = equal(mine, rows)
        except RuntimeError as error:
            problem, took["millstream"] = str(error), math.nan
        if alone:
            ask = lambda: alone.ask(asked["datafusion"][name])
            took["datafusion"] = best(arguments.runs, ask)[1]
        worst |= problem is not None
        for engine, milliseconds in took.items():
            sums[engine] = sums.get(engine, 0.0) + milliseconds
        print(json.dumps({
            "query": name, "equal": problem is None, "rows": len(rows), **shown(took),
            **({"problem": problem} if problem else {})}), flush=True)
    print(json.dumps({"query": "all", **shown(sums)}))
    return worst


def shown(took):
    """Milliseconds by engine, and how many times another's ours are."""
    times = {f"{engine}_ms": round(milliseconds, 1) for engine, milliseconds in took.items()}
    ours_ms = took["millstream"]
    ratios = {f"to_{engine}": round(ours_ms / milliseconds, 2)
              for engine, milliseconds in took.items() if engine != "millstream"}
    return {**times, **ratios}


if __name__ == "__main__":
    sys.exit(main())

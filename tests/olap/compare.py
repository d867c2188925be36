"""Answers and times of `millstream query` beside DuckDB's, over the same files, in one run.

DATA has a Parquet file for each table of the suite: `tpchgen-cli parquet -s 0.1 -o DATA` makes those
of TPC-H, `hits.py DATA/hits.parquet` that of the 43 queries. Prints a JSON object per query: whether
the rows are equal, and the milliseconds of each engine, the best of all runs; at the end the sums.
Exit status 1 if any answer of Millstream differs from DuckDB's.

Other engines are named by --beside: `datafusion` and `spark` are Python packages (`pip install
datafusion pyspark`), `ballista` and `distributed` (datafusion-distributed) are in the program that
`cargo build --release --manifest-path bench/query-peers/Cargo.toml` builds, to be named by --peers.
A query that an engine refuses is left out of the sums that it is compared by.
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
ENGINES = ["datafusion", "spark", "ballista", "distributed"]


def queries(suite):
    text = (HERE / f"{suite}.sql").read_text()
    parts = re.split(r"^-- (q\d+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def spelled(query, engine):
    """`query` as `engine` writes the first group of a regular expression."""
    group = "'$1'" if engine in ("millstream", "spark") else r"'\1'"
    return query.replace("CAPTURED", group)


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


class Spark:
    def __init__(self, tables, threads):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(f"local[{threads}]")
        builder = builder.config("spark.sql.shuffle.partitions", threads)
        builder = builder.config("spark.driver.memory", "4g").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        self.session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        self.session.sparkContext.setLogLevel("OFF")
        for table, path in tables.items():
            self.session.read.parquet(str(path)).createOrReplaceTempView(table)

    def ask(self, text):
        return self.session.sql(text.rstrip().rstrip(";")).collect()


class Peer:
    """An engine in a process of its own, which reports how long it took itself."""

    def __init__(self, program, engine, tables, threads):
        named = [f"{table}={path}" for table, path in tables.items()]
        self.process = subprocess.Popen(
            [program, engine, str(threads), *named], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(self, text):
        self.process.stdin.write(" ".join(text.rstrip().rstrip(";").split("\n")) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])


def engine(name, arguments, tables):
    if name == "datafusion":
        return DataFusion(tables, arguments.threads)
    if name == "spark":
        return Spark(tables, arguments.threads)
    return Peer(arguments.peers, name, tables, arguments.threads)


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


def beside(engines, arguments, query):
    """The best milliseconds of each engine, and what those that refuse the query say."""
    took, refused = {}, {}
    for name, engine in engines.items():
        text = spelled(query, name)
        try:
            took[name] = best(arguments.runs, lambda: engine.ask(text))[1]
        # Each engine has errors of its own.
        except Exception as error:  # pylint: disable=broad-except
            refused[name] = str(error).split("\n", maxsplit=1)[0][:200]
    return took, refused


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millstream")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("queries", nargs="*", help="q1, q2, ...; all without it")
    parser.add_argument("--suite", choices=SUITES, default="tpch")
    parser.add_argument("--on", help="HOST:PORT of a coordinator")
    parser.add_argument("--first", default="", help="statements before each query, such as SET")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beside", nargs="*", choices=ENGINES, default=[],
                        help="engines besides DuckDB")
    parser.add_argument("--peers", help="the program query-peers")
    arguments = parser.parse_args()
    if {"ballista", "distributed"} & set(arguments.beside) and not arguments.peers:
        parser.error("ballista and distributed need --peers PROGRAM")
    return arguments


def main():
    arguments = parsed()
    data = arguments.data.resolve()
    tables = {table: data / f"{table}.parquet" for table in SUITES[arguments.suite]}
    declarations = "".join(
        f"CREATE TABLE {table} USING parquet OPTIONS ('path' = '{path}');\n"
        for table, path in tables.items())
    duck = DuckDb(tables, arguments.threads)
    engines = {name: engine(name, arguments, tables) for name in arguments.beside}
    worst, sums = 0, {}
    for name, query in queries(arguments.suite).items():
        if arguments.queries and name not in arguments.queries:
            continue
        rows, duck_ms = best(arguments.runs, lambda: duck.ask(spelled(query, "duckdb")))
        try:
            text = spelled(query, "millstream")
            mine, mine_ms = ours(arguments, declarations, text)
            problem = equal(mine, rows)
        except RuntimeError as error:
            problem, mine_ms = str(error), math.nan
        took, refused = beside(engines, arguments, query)
        took["duckdb"] = duck_ms
        worst |= problem is not None
        for other, milliseconds in took.items():
            theirs, of_ours = sums.get(other, (0.0, 0.0))
            sums[other] = (theirs + milliseconds, of_ours + mine_ms)
        print(json.dumps({
            "query": name, "equal": problem is None, "rows": len(rows),
            "millstream_ms": round(mine_ms, 1),
            **{f"{other}_ms": round(theirs, 1) for other, theirs in took.items()},
            **{f"to_{other}": round(mine_ms / theirs, 2) for other, theirs in took.items()},
            **({"problem": problem} if problem else {}),
            **({"refused": refused} if refused else {})}), flush=True)
    print(json.dumps({"query": "all", **{
        f"{other}_ms": round(theirs, 1) for other, (theirs, _) in sums.items()}, **{
        f"millstream_ms_of_{other}": round(of_ours, 1) for other, (_, of_ours) in sums.items()}, **{
        f"to_{other}": round(of_ours / theirs, 2) for other, (theirs, of_ours) in sums.items()}}))
    return worst


if __name__ == "__main__":
    sys.exit(main())

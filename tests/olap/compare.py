"""Answers and times of `millstream query` beside DuckDB's, over the same files, in one run.

DATA has a Parquet file for each table of the suite: `tpchgen-cli parquet -s 0.1 -o DATA` makes
those of TPC-H, `hits.py DATA/hits.parquet` that of the 43 queries, `tpcds.py DATA --scale 0.1`
those of TPC-DS. Prints a JSON object per query: whether the rows are equal, different, or the query
refused, and the milliseconds of each engine, the best of all runs; at the end the sums. Exit status
1 if any answer of Millstream is not DuckDB's, but for the queries that --known names: lines `QUERY
OUTCOME (WORDS): REASON`, each of which has to be so, with these words in what is wrong; and 1 if
most answers of a whole suite have no rows, since such are soon equal.

Other engines are named by --beside: `datafusion` and `spark` are Python packages (`pip install
datafusion pyspark`), `ballista` and `distributed` (datafusion-distributed) are in the program that
`cargo build --release --manifest-path bench/query-peers/Cargo.toml` builds, to be named by --peers.
A query that an engine refuses is left out of the sums that it is compared by.
"""

import argparse
import concurrent.futures
import csv
import datetime
import decimal
import json
import math
import pathlib
import re
import subprocess
import sys
import time

import duckdb

import ties
import tpcds

SUITES = {
    "tpch": ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"],
    "hits": ["hits"],
    "tpcds": tpcds.TABLES,
}
HERE = pathlib.Path(__file__).parent
ENGINES = ["datafusion", "spark", "ballista", "distributed"]


def queries(suite, texts):
    if suite == "tpcds":
        return tpcds.queries(texts)
    text = (HERE / f"{suite}.sql").read_text()
    parts = re.split(r"^-- (q\d+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def spelled(query, engine):
    """`query` as `engine` writes the first group of a regular expression, and names."""
    if engine in ("datafusion", "ballista", "distributed"):
        query = query.replace("`", '"')
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
    def __init__(self, suite, tables, threads):
        self.suite = suite
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads = {threads}")
        if suite == "tpcds":
            self.connection.execute(tpcds.DUCKDB_SETTINGS)
        for table, path in tables.items():
            self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{path}'")

    def text(self, query):
        return tpcds.for_duckdb(query) if self.suite == "tpcds" else spelled(query, "duckdb")

    def ask(self, text):
        return self.connection.execute(text).fetchall()

    def problem(self, text, mine, rows):
        """What is wrong with the rows `mine`, or None. The orders of TPC-DS have ties."""
        found = equal(mine, rows)
        if found and self.suite == "tpcds":
            return ties.problem(self.connection, text, mine, same, alike)
        return found


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
    try:
        run = subprocess.run(
            [arguments.millstream, "query", "-", "--timing", "--format", "csv", *flags],
            input=script, capture_output=True, text=True, check=False, timeout=arguments.limit)
    except subprocess.TimeoutExpired as expired:
        raise RuntimeError(f"no answer in {arguments.limit:.0f} s") from expired
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip() or f"exit status {run.returncode}")
    took = [float(found) for found in re.findall(r"rows? in ([0-9.]+) ms", run.stderr)]
    lines = list(csv.reader(run.stdout.splitlines()))
    each = len(lines) // arguments.runs
    # A line of one null is empty.
    return [line or [""] for line in lines[1:each]], min(took)


def same(left, right):
    """A value of ours, which is text, against one of DuckDB's."""
    if right is None or left == "":
        return left == "" and right in (None, "")
    if is_number(right):
        return close(left, right)
    if isinstance(right, datetime.datetime):
        # A TIMESTAMP is shown in UTC, and DuckDB's is without a time zone.
        return datetime.datetime.fromisoformat(left).replace(tzinfo=None) == right
    return left == str(right)


def is_number(value):
    return isinstance(value, (int, float, decimal.Decimal))


def close(left, right):
    return math.isclose(float(left), float(right), rel_tol=1e-9, abs_tol=1e-6)


def alike(left, right):
    """Two values of DuckDB's that are the same to `same`."""
    return close(left, right) if is_number(left) and is_number(right) else left == right


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
    parser.add_argument("--texts", type=pathlib.Path, default=tpcds.cache(),
                        help="where the queries of TPC-DS are; in the tests' cache without it")
    parser.add_argument("--known", type=pathlib.Path,
                        help="a file of answers that are known not to be equal")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a query may take")
    parser.add_argument("--jobs", type=int, default=1,
                        help="queries at a time; with more than one, times say nothing")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beside", nargs="*", choices=ENGINES, default=[],
                        help="engines besides DuckDB")
    parser.add_argument("--peers", help="the program query-peers")
    arguments = parser.parse_args()
    if {"ballista", "distributed"} & set(arguments.beside) and not arguments.peers:
        parser.error("ballista and distributed need --peers PROGRAM")
    return arguments


class Outcomes:
    """What became of the queries, beside what is known to become of them."""

    def __init__(self, known):
        self.known = {}
        lines = known.read_text().splitlines() if known else []
        for line in lines:
            if line.strip() and not line.startswith("#"):
                entry = re.fullmatch(r"(\S+) (different|refused)(?: \(([^)]+)\))?: \S.*", line)
                if entry is None:
                    form = "QUERY OUTCOME (WORDS): REASON"
                    raise SystemExit(f"{known}: a line is `{form}`, not: {line}")
                self.known[entry[1]] = (entry[2], entry[3] or "")
        self.counts = dict.fromkeys(["equal", "different", "refused", "without_rows"], 0)
        self.complaints = []

    def add(self, name, outcome, rows, problem):
        """A query's outcome, DuckDB's rows, and what is wrong or None."""
        self.counts[outcome] += 1
        self.counts["without_rows"] += not rows
        expected, words = self.known.pop(name, ("equal", ""))
        if outcome != expected:
            self.complaints.append(f"{name} is {outcome}, not {expected}")
        elif words not in (problem or ""):
            self.complaints.append(f"{name} is {outcome}, but not with the words: {words}")

    def end(self, is_all):
        """All complaints. Of a whole suite an entry about a query that is not there is one, too,
        and so are tables that leave most answers without rows."""
        if is_all:
            missing = [f"{name} is known, and there is no such query" for name in self.known]
            self.complaints += missing
            empty = self.counts["without_rows"]
            answers = sum(self.counts[outcome] for outcome in ("equal", "different", "refused"))
            if 2 * empty > answers:
                self.complaints.append(f"{empty} of {answers} answers have no rows")
        return self.complaints


class Sums:
    """The milliseconds of each engine, and ours over the same queries."""

    def __init__(self):
        self.sums = {}

    def add(self, took, mine_ms):
        if math.isnan(mine_ms):
            return
        for other, milliseconds in took.items():
            theirs, of_ours = self.sums.get(other, (0.0, 0.0))
            self.sums[other] = (theirs + milliseconds, of_ours + mine_ms)

    def shown(self):
        found = {f"{other}_ms": round(theirs, 1) for other, (theirs, _) in self.sums.items()}
        for other, (_, of_ours) in self.sums.items():
            found[f"millstream_ms_of_{other}"] = round(of_ours, 1)
        for other, (theirs, of_ours) in self.sums.items():
            found[f"to_{other}"] = round(of_ours / theirs, 2)
        return found


def asked(arguments, declarations, chosen):
    """A function of each query's name that gives our rows and milliseconds. With --jobs the queries
    are on their way when it is called first."""
    def ask(name):
        return ours(arguments, declarations, spelled(chosen[name], "millstream"))

    if arguments.jobs == 1:
        return ask
    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    waiting = {name: pool.submit(ask, name) for name in chosen}
    return lambda name: waiting[name].result()


def main():
    arguments = parsed()
    data = arguments.data.resolve()
    tables = {table: data / f"{table}.parquet" for table in SUITES[arguments.suite]}
    declarations = "".join(
        f"CREATE TABLE {table} USING parquet OPTIONS ('path' = '{path}');\n"
        for table, path in tables.items())
    duck = DuckDb(arguments.suite, tables, arguments.threads)
    engines = {name: engine(name, arguments, tables) for name in arguments.beside}
    chosen = {name: query for name, query in queries(arguments.suite, arguments.texts).items()
              if not arguments.queries or name in arguments.queries}
    ask, outcomes, sums = asked(arguments, declarations, chosen), Outcomes(arguments.known), Sums()
    for name, query in chosen.items():
        text = duck.text(query)
        rows, duck_ms = best(arguments.runs, lambda: duck.ask(text))
        try:
            mine, mine_ms = ask(name)
            problem = duck.problem(text, mine, rows)
            outcome = "different" if problem else "equal"
        except RuntimeError as error:
            problem, mine_ms, outcome = str(error), math.nan, "refused"
        outcomes.add(name, outcome, rows, problem)
        took, refused = beside(engines, arguments, query)
        took["duckdb"] = duck_ms
        sums.add(took, mine_ms)
        print(json.dumps({
            "query": name, "outcome": outcome, "rows": len(rows),
            **({} if math.isnan(mine_ms) else {"millstream_ms": round(mine_ms, 1)}),
            **{f"{other}_ms": round(theirs, 1) for other, theirs in took.items()},
            **({} if math.isnan(mine_ms) else {
                f"to_{other}": round(mine_ms / theirs, 2) for other, theirs in took.items()}),
            **({"problem": problem} if problem else {}),
            **({"refused": refused} if refused else {})}), flush=True)
    complaints = outcomes.end(not arguments.queries)
    print(json.dumps({"query": "all", **outcomes.counts, **sums.shown(),
                      **({"complaints": complaints} if complaints else {})}))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

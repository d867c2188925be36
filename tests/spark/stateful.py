"""Runs queries with state on Spark and on Millstream over the same files, and compares.

    stateful.py --binary MILLSTREAM [--cases a,b] [--work DIR] [--seed N] [--cuts N]
    stateful.py --list

Compared is every micro-batch: its rows, its watermark, and how many rows it dropped for being late.
Cases whose rows are all in time are also run here with the input cut into files otherwise, `--cuts`
times, and must end with Spark's rows each time.

Of each case it is said before what has to come out: `equal`; `different`, where a difference is
known; `refused` by both; `pending`, which Spark runs and Millstream refuses as yet. A case that is
not `equal` says what it expects of either side: the rows that only one of them has, and the words of
a refusal. Ends with status 1 if anything else comes out, an error of another kind among that.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

sys.dont_write_bytecode = True

from differential import compare, events  # noqa: E402
from differential.cases import CASES  # noqa: E402
from differential.engines import EngineError, Input, MillstreamRun, SparkRun  # noqa: E402
from differential.known import FAULTY, KNOWN_DIFFERENT  # noqa: E402
from differential.operators import OPERATORS  # noqa: E402
from differential.pending import PENDING  # noqa: E402
from differential.refused import REFUSED  # noqa: E402
from differential.shapes import SHAPES  # noqa: E402

EXPECTED = {
    "equal": [*CASES, *OPERATORS, *SHAPES],
    "different": [*FAULTY, *KNOWN_DIFFERENT],
    "refused": REFUSED,
    "pending": PENDING,
}
# Queries at a time: while one plans or writes, another computes.
AT_A_TIME = 3
# Each query runs for seconds: code that is compiled well comes too late for it.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


def make_session(work):
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


class Trial:
    """One case, its input and both engines."""

    def __init__(self, spark, arguments, work, case):
        self.arguments, self.case, self.directory = arguments, case, work / case.name
        self.files = self.written_files()
        self.data = Input(self.directory, case.tables)
        self.spark = SparkRun(spark, case, self.directory, self.data.paths)

    def written_files(self):
        """The files of each table."""
        if not isinstance(self.case.events, str):
            return self.case.events
        make = getattr(events, self.case.events)
        return {table: make(f"{self.arguments.seed} {table}") for table in self.case.tables}

    def steps(self):
        """Puts the files there that each run adds, and yields after each step."""
        count = max(len(files) for files in self.files.values())
        stops = [] if self.case.stop_after is None else [self.case.stop_after * self.case.files]
        for first, last in zip([0, *stops], [*stops, count]):
            for table in self.case.tables:
                self.data.write(table, self.files[table][first:last], first)
            yield

    def millstream(self, directory, paths):
        """Our engine on the case; its columns are Spark's unless Spark refuses the query."""
        query = self.case.query if self.case.here is None else self.case.here
        columns = self.spark.columns() if self.case.mode != "append" else []
        binary = self.arguments.binary
        return MillstreamRun(binary, query, self.case, directory, paths, columns)

    def difference(self):
        """Lines that say what differs; none if nothing does."""
        ours, case = None, self.case
        for _ in self.steps():
            theirs = outcome(self.spark, case.spark_refuses)
            ours = ours or self.millstream(self.directory / "ours", self.data.paths)
            own = outcome(ours, case.refuses)
        if not case.differs and not case.spark_refuses and not compare.all_rows(theirs):
            return ["Spark finds no rows: the case shows nothing"]
        found = compare.micro_batches_differ(theirs, own)
        for number in range(self.arguments.cuts if case.recut else 0):
            found += self.recut(number, theirs)
        if case.refuses and not case.spark_refuses:
            ours.validate_as_batch()
        return found

    def recut(self, number, theirs):
        """What differs from Spark's rows, all together, when the files are others."""
        directory = self.directory / f"cut_{number}"
        data = Input(directory, self.case.tables)
        for table in self.case.tables:
            seed = f"{self.arguments.seed} {number} {table}"
            data.write(table, events.cut_otherwise(self.files[table], seed), 0)
        own = self.millstream(directory / "ours", data.paths).run()
        found = compare.rows_differ(compare.all_rows(theirs), compare.all_rows(own))
        return [f"cut {number} ({len(own)} micro-batches):", *found] if found else []


def outcome(run, refusal):
    """The micro-batches of a run so far; none where the engine has to refuse it with `refusal`."""
    try:
        ran = run.run()
    except EngineError as error:
        if refusal and error.refused and refusal in str(error):
            return []
        if refusal:
            raise EngineError(error.engine, f"does not refuse it with {refusal!r}: {error}") from error
        raise
    if refusal:
        raise EngineError(run.engine, f"accepts what it has to refuse with {refusal!r}")
    return ran


def says_what_it_expects(expected, case):
    """Whether a case states what makes it one of these, and nothing else."""
    stated = (bool(case.spark_refuses), bool(case.refuses), bool(case.differs))
    return stated in {
        "equal": [(False, False, False)],
        "different": [(False, False, True), (True, False, True)],
        "refused": [(True, True, False)],
        "pending": [(False, True, True)],
    }[expected]


def check(spark, arguments, work, expected, case):
    """Runs a case and tells what came out; whether that was expected."""
    began = time.monotonic()
    error, found = [], []
    try:
        found = Trial(spark, arguments, work, case).difference()
    except EngineError as raised:
        error = [str(raised)]
    if not says_what_it_expects(expected, case):
        error.append(f"the case does not say what a case that is {expected} expects")
    good = not error and found == list(case.differs)
    verdict = f"{expected}, as expected" if good else f"NOT {expected} as it says"
    why = f": {case.why}" if case.why else ""
    lines = [f"{case.name}: {verdict} ({time.monotonic() - began:.1f} s){why}"]
    if not good:
        lines += [case.query, *error, *found]
        lines += ["it expects:", *case.differs] if case.differs else []
        lines.append("")
    print("\n".join(lines), flush=True)
    return good


def run_all(arguments, work, chosen):
    """Runs the cases in one session; whether all went as expected."""
    spark = make_session(work)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        good = list(pool.map(lambda pair: check(spark, arguments, work, *pair), chosen))
    spark.stop()
    print(f"{len(good)} cases, {good.count(False)} not as expected", flush=True)
    return all(good)


def parse():
    """The command line, and the cases it names with what is expected of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", type=Path, help="the millstream to compare")
    parser.add_argument("--cases", default="", help="names with commas between; default: all")
    parser.add_argument("--work", type=Path, help="a new directory that is kept")
    parser.add_argument("--seed", type=int, default=1, help="of the events")
    parser.add_argument("--cuts", type=int, default=3, help="other cuts of cases without late rows")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    arguments = parser.parse_args()
    chosen = [(expected, case) for expected, cases in EXPECTED.items() for case in cases]
    if arguments.cases:
        names = set(arguments.cases.split(","))
        unknown = names - {case.name for _, case in chosen}
        if unknown:
            parser.error(f"no case is called {', '.join(sorted(unknown))}; see --list")
        chosen = [(expected, case) for expected, case in chosen if case.name in names]
    if not arguments.list and not (arguments.binary and arguments.binary.is_file()):
        parser.error("--binary must name the millstream to compare")
    if arguments.work and arguments.work.exists() and any(arguments.work.iterdir()):
        parser.error(f"{arguments.work} is not empty")
    return arguments, chosen


def main():
    arguments, chosen = parse()
    if arguments.list:
        print("\n".join(f"{expected:9} {case.name}" for expected, case in chosen))
        return
    arguments.binary = arguments.binary.absolute()
    with tempfile.TemporaryDirectory(prefix="millstream-stateful-") as temporary:
        work = (arguments.work or Path(temporary)).absolute()
        good = run_all(arguments, work, chosen)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

"""Runs queries with state on Spark and on Millstream over the same files, and compares.

    stateful.py --binary MILLSTREAM [--stored] [--ask-spark] [--store]
                [--cases a,b] [--work DIR] [--seed N] [--cuts N]
    stateful.py --list

Compared is every micro-batch: its rows, its watermark, and how many rows it dropped for being late.
Cases whose rows are all in time are also run here with the input cut into files otherwise, `--cuts`
times, and must end with Spark's rows each time.

Of each case it is said before what has to come out: `equal`; `different`, where a difference is
known; `refused` by both; `pending`, which Spark runs and Millstream refuses as yet. A case that is
not `equal` says what it expects of either side: the rows that only one of them has, and the words of
a refusal. Ends with status 1 if anything else comes out, an error of another kind among that.

What Spark answers is stored in `differential/answers`. Spark is asked only where there is no
answer, or one to something else, since the case was changed: for all cases that takes minutes.
`--store` then stores what it answers. With `--stored`, as in the tests, it is not asked, and such a
case fails.
`--ask-spark` asks it in all cases; one whose stored answer is another fails, and with `--store` as
well the new answer replaces that.
"""

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True

from differential import compare, events  # noqa: E402
from differential.cases import CASES  # noqa: E402
from differential.engines import EngineError, Input, MillstreamRun, SparkAnswers  # noqa: E402
from differential.known import FAULTY, KNOWN_DIFFERENT  # noqa: E402
from differential.operators import OPERATORS  # noqa: E402
from differential.pending import PENDING  # noqa: E402
from differential.refused import REFUSED  # noqa: E402
from differential.shapes import SHAPES  # noqa: E402
from differential.store import Store, key_of  # noqa: E402

EXPECTED = {
    "equal": [*CASES, *OPERATORS, *SHAPES],
    "different": [*FAULTY, *KNOWN_DIFFERENT],
    "refused": REFUSED,
    "pending": PENDING,
}
# Queries at a time: while one plans or writes, another computes.
AT_A_TIME = 3
# Of the events, unless told otherwise: for these the answers of Spark are stored.
SEED = 1
NOT_STORED = ("its answer to this case is not stored: run "
              "tests/spark/stateful.py --binary MILLSTREAM --store")


class Answers:
    """What Spark answers: as stored, or asked now. All threads share it."""

    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, work
        self.store, self.lock, self.spark = Store(), threading.Lock(), None

    def started(self):
        """Spark, started by the first case that asks it. No other needs PySpark."""
        with self.lock:
            if self.spark is None:
                from differential.spark import Spark

                self.spark = Spark(self.work)
            return self.spark

    def answer(self, trial):
        """Spark's answer to a case, a note if it was asked now, and how the answer has changed,
        where that is an error."""
        name, key = trial.case.name, key_of(trial.case, trial.files)
        stored = self.store.find(name, key)
        if stored and not self.arguments.ask_spark:
            return stored, "", []
        if self.arguments.stored:
            raise EngineError("Spark", NOT_STORED)
        fresh = self.started().ask(key, trial.case, trial.directory / "spark", trial.steps)
        changed = compare.answers_differ(stored, fresh) if stored else []
        if not self.arguments.store:
            return fresh, ", Spark was asked", changed
        if stored and not changed:
            return fresh, ", Spark was asked: the stored answer holds", []
        self.store.put(name, fresh)
        return fresh, ", Spark was asked: its answer is stored", []

    def end(self):
        """Drops the answers of cases that are gone, if answers are stored, and ends the session."""
        if self.arguments.store:
            self.store.drop_others(case.name for cases in EXPECTED.values() for case in cases)
        if self.spark:
            self.spark.stop()


class Trial:
    """One case, its input and both engines."""

    def __init__(self, arguments, work, case):
        self.arguments, self.case, self.directory = arguments, case, work / case.name
        self.files = self.written_files()

    def written_files(self):
        """The files of each table."""
        if not isinstance(self.case.events, str):
            return self.case.events
        make = getattr(events, self.case.events)
        return {table: make(f"{self.arguments.seed} {table}") for table in self.case.tables}

    def steps(self, data):
        """Puts the files there that each run adds, and yields after each step."""
        count = max(len(files) for files in self.files.values())
        stops = [] if self.case.stop_after is None else [self.case.stop_after * self.case.files]
        for first, last in zip([0, *stops], [*stops, count]):
            for table in self.case.tables:
                data.write(table, self.files[table][first:last], first)
            yield

    def millstream(self, directory, paths, columns):
        """Our engine on the case; its columns are Spark's unless Spark refuses the query."""
        query = self.case.query if self.case.here is None else self.case.here
        binary = self.arguments.binary
        return MillstreamRun(binary, query, self.case, directory, paths, columns)

    def difference(self, answer):
        """Lines that say what differs from Spark's answer; none if nothing does."""
        case, data = self.case, Input(self.directory, self.case.tables)
        spark = SparkAnswers(answer)
        ours = self.millstream(self.directory / "ours", data.paths, spark.columns)
        for _ in self.steps(data):
            theirs = outcome(spark, case.spark_refuses)
            own = outcome(ours, case.refuses)
        if not case.differs and not case.spark_refuses and not compare.all_rows(theirs):
            return ["Spark finds no rows: the case shows nothing"]
        found = compare.micro_batches_differ(theirs, own)
        for number in range(self.arguments.cuts if case.recut else 0):
            found += self.recut(number, theirs, spark.columns)
        if case.refuses and not case.spark_refuses:
            ours.validate_as_batch()
        return found

    def recut(self, number, theirs, columns):
        """What differs from Spark's rows, all together, when the files are others."""
        directory = self.directory / f"cut_{number}"
        data = Input(directory, self.case.tables)
        for table in self.case.tables:
            seed = f"{self.arguments.seed} {number} {table}"
            data.write(table, events.cut_otherwise(self.files[table], seed), 0)
        own = self.millstream(directory / "ours", data.paths, columns).run()
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


def check(answers, arguments, work, expected, case):
    """Runs a case and tells what came out; whether that was expected."""
    began = time.monotonic()
    error, found, note = [], [], ""
    try:
        trial = Trial(arguments, work, case)
        answer, note, changed = answers.answer(trial)
        error += ["Spark answers otherwise than it did:", *changed] if changed else []
        found = trial.difference(answer)
    except EngineError as raised:
        error.append(str(raised))
    if not says_what_it_expects(expected, case):
        error.append(f"the case does not say what a case that is {expected} expects")
    good = not error and found == list(case.differs)
    verdict = f"{expected}, as expected" if good else f"NOT {expected} as it says"
    why = f": {case.why}" if case.why else ""
    lines = [f"{case.name}: {verdict} ({time.monotonic() - began:.1f} s{note}){why}"]
    if not good:
        lines += [case.query, *error, *found]
        lines += ["it expects:", *case.differs] if case.differs else []
        lines.append("")
    print("\n".join(lines), flush=True)
    return good


def run_all(arguments, work, chosen):
    """Runs the cases; whether all went as expected."""
    answers = Answers(arguments, work)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        good = list(pool.map(lambda pair: check(answers, arguments, work, *pair), chosen))
    answers.end()
    print(f"{len(good)} cases, {good.count(False)} not as expected", flush=True)
    return all(good)


def parse():
    """The command line, and the cases it names with what is expected of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", type=Path, help="the millstream to compare")
    parser.add_argument("--cases", default="", help="names with commas between; default: all")
    parser.add_argument("--work", type=Path, help="a new directory that is kept")
    parser.add_argument("--seed", type=int, default=SEED, help="of the events")
    parser.add_argument("--cuts", type=int, default=3, help="other cuts of cases without late rows")
    parser.add_argument("--stored", action="store_true", help="a case without stored answer fails")
    parser.add_argument("--ask-spark", action="store_true", help="asks Spark in all cases")
    parser.add_argument("--store", action="store_true", help="stores what Spark was asked")
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
    if arguments.stored and (arguments.ask_spark or arguments.store):
        parser.error("with --stored Spark is never asked")
    if arguments.store and arguments.seed != SEED:
        parser.error(f"answers are stored for --seed {SEED} only")
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

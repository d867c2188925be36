"""One query over recorded input, on Spark and on Millstream: what each micro-batch did.

Both read directories of JSON lines, a file to a micro-batch, oldest first, and stop at the end.
What both are asked to run is the same text; only how rows get out differs: Spark hands each
micro-batch to a function (`spark` has that side, apart because it needs PySpark), Millstream writes
files, or prints what files cannot take: they take append only.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .events import COLUMNS

# A run that ends by itself; a busy machine may take its time.
RUN_SECONDS = 180


@dataclass
class MicroBatch:
    """One micro-batch of a run. The watermark is the one that it ran with."""

    id: int
    rows: list
    input_rows: int = 0
    watermark: str = ""
    dropped: int = 0


@dataclass
class Answer:
    """What Spark answers to a case: for each run its micro-batches, or the words of a refusal."""

    # What it was asked; see `store`.
    key: str
    # The names of the query's columns; none if Spark refuses it.
    columns: list
    runs: list


class EngineError(Exception):
    """An engine has refused a query or failed; the text is what it said."""

    def __init__(self, engine, said, refused=False):
        super().__init__(f"{engine}: {said}")
        self.engine, self.said, self.refused = engine, said, refused


class Input:
    """Directories of files under `directory`, one for each table, filled in steps."""

    def __init__(self, directory, tables):
        self.paths = {table: Path(directory) / f"in_{table}" for table in tables}
        for path in self.paths.values():
            path.mkdir(parents=True)

    def write(self, table, files, first):
        """Puts files there whose numbers begin at `first`: both engines go by their times."""
        for number, lines in enumerate(files, first):
            path = self.paths[table] / f"{number:03}.json"
            path.write_text("".join(text + "\n" for text in lines), encoding="utf-8")
            changed = 1_700_000_000 + 10 * number
            os.utime(path, (changed, changed))


class SparkAnswers:
    """Runs on Spark whose answer is known, fresh or stored: they do again what it says."""

    engine = "Spark"

    def __init__(self, answer):
        self.columns, self.left, self.ran = answer.columns, iter(answer.runs), []

    def run(self):
        """The micro-batches of the next run and those before."""
        answered = next(self.left)
        if isinstance(answered, str):
            raise EngineError(self.engine, answered, refused=True)
        self.ran += answered
        return self.ran


class MillstreamRun:
    """The query in a pipeline file."""

    engine = "Millstream"

    def __init__(self, binary, query, case, directory, paths, columns):
        self.binary, self.directory, self.ran = binary, Path(directory), []
        self.commits_seen = 0
        # Files take no other mode than append. The console shows text: rows are JSON there.
        self.prints = case.mode != "append"
        if self.prints and columns:
            names = ", ".join(f"`{name}`" for name in columns)
            query = f"SELECT to_json(struct({names})) AS row\nFROM (\n{query}\n) AS results"
        sources = [source(name, path, case.files) for name, path in paths.items()]
        flow = f"CREATE FLOW compared AS INSERT INTO target\n{query};\n"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.file = self.directory / "pipeline.sql"
        self.file.write_text("".join([*sources, self.target(case), flow]), encoding="utf-8")

    def target(self, case):
        """The table that gets the rows."""
        options = {"outputMode": case.mode, **case.options}
        if self.prints:
            shows_all = {"truncate": "false", "numRows": "1000000"}
            return table("target", "", "console", options | shows_all)
        return table("target", "", "json", options | {"path": "out", "commitInterval": "0"})

    def run(self):
        """Runs everything that is there; the micro-batches of this run and those before."""
        lines = self.command("run", "--checkpoint", "checkpoint", "--trigger", "availableNow",
                             "--progress", "json").splitlines()
        printed = rows_printed(lines)
        written = iter(() if self.prints else self.commits())
        for progress in (json.loads(text) for text in lines if text.startswith('{"id":')):
            rows = printed.get(progress["batchId"], [])
            if not self.prints and progress["sink"]["numOutputRows"] > 0:
                rows = next(written, [])
            self.ran.append(self.micro_batch(progress, rows))
        for rows in written:
            raise EngineError("Millstream", f"no micro-batch is known that wrote {rows}")
        return self.ran

    def validate_as_batch(self):
        """Fails if the query is wrong where it reads tables at rest: then also in other respects
        than that it needs state."""
        text = self.file.read_text(encoding="utf-8")
        text = re.sub(r"STREAM (\w+)( WATERMARK ts DELAY OF INTERVAL \d+ SECONDS)?", r"\1", text)
        text = re.sub(r"'outputMode' = '\w+', ", "", text)
        at_rest = self.directory / "at_rest.sql"
        at_rest.write_text(text, encoding="utf-8")
        self.command("validate", file=at_rest.name)

    def command(self, *words, file="pipeline.sql"):
        """What a command of the binary prints."""
        command = [self.binary, words[0], file, *words[1:]]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=RUN_SECONDS, check=False)
        if done.returncode != 0:
            raise EngineError("Millstream", done.stderr[-2000:], done.returncode == 2)
        return done.stdout

    def commits(self):
        """The rows of each commit since the last call: of each micro-batch that had rows."""
        commits = {}
        for file in sorted((self.directory / "out").glob("part-*.json")):
            texts = file.read_text(encoding="utf-8").split("\n")
            entry = commits.setdefault(file.name.split("-")[1], [])
            entry.extend(json.loads(text) for text in texts if text)
        fresh = list(commits.values())[self.commits_seen:]
        self.commits_seen = len(commits)
        return fresh

    @staticmethod
    def micro_batch(progress, rows):
        dropped = sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
        watermark = progress.get("eventTime", {}).get("watermark", "")
        number, input_rows = progress["batchId"], progress["numInputRows"]
        return MicroBatch(number, rows, input_rows, watermark, dropped)


def source(name, path, files):
    """A table of the files under `path`, some at a time."""
    return table(name, f"({COLUMNS})", "json", {"path": path, "maxFilesPerTrigger": files})


def table(name, columns, connector, options):
    """A CREATE TABLE statement."""
    pairs = (f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} {columns} USING {connector}\nOPTIONS ({', '.join(pairs)});\n"


def rows_printed(lines):
    """The rows of the tables that the console shows, by micro-batch."""
    rows, number = {}, None
    for text in lines:
        if text.startswith("Batch: "):
            number = int(text.removeprefix("Batch: "))
            rows[number] = []
        elif text.startswith("|{"):
            rows[number].append(json.loads(text.strip().strip("|")))
    return rows

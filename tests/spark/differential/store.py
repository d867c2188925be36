"""What Spark has answered, kept in `answers`, so that comparing with it needs no Spark.

An answer holds for exactly what Spark was asked. Its key is a hash over all of that: Spark's
version and settings, the query, how it is run, and every line of the input. A case that is changed
in any of these has no stored answer any more.
"""

import hashlib
import json
import threading
from dataclasses import asdict
from pathlib import Path

from .engines import Answer, MicroBatch
from .events import COLUMNS

DIRECTORY = Path(__file__).parent / "answers"
REQUIREMENTS = Path(__file__).parent.parent / "requirements.txt"
# To be raised when `spark` runs a case otherwise, or when files are written otherwise.
FORMAT = 1
# What answers of Spark may depend on, the same for all cases.
SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def pinned_version():
    """Spark's version, as it is installed for the tests."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").split()
    return next(line.removeprefix("pyspark==") for line in lines if line.startswith("pyspark=="))


VERSION = pinned_version()


class Calls:
    """In place of a session of Spark, or of a frame: the text of the calls that make it.

    Thus a query that is a function of Python has a text too, which has what its helpers do, and
    which needs no Spark.
    """

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text

    def __getattr__(self, name):
        def call(*given):
            strange = [one for one in given if not isinstance(one, (Calls, str, int, list))]
            if strange:
                raise TypeError(f"{name} is called with {strange}, whose text may not be stable")
            return Calls(f"{self.text}.{name}({', '.join(map(repr, given))})")

        return call


def key_of(case, files):
    """A hash over all that Spark's answer to a case follows from."""
    asked = {
        "format": FORMAT,
        "version": VERSION,
        "settings": SETTINGS,
        "columns": COLUMNS,
        "query": repr(case.frame(Calls("session"))),
        "mode": case.mode,
        "options": case.options,
        "tables": case.tables,
        "files_per_trigger": case.files,
        "stop_after": case.stop_after,
        "input": files,
    }
    text = json.dumps(asked, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """The stored answers by the name of the case; a file has those with the same first letter."""

    def __init__(self):
        self.answers, self.lock = {}, threading.Lock()
        for path in DIRECTORY.glob("*.json"):
            read = json.loads(path.read_text(encoding="utf-8"))
            self.answers |= {name: decoded(stored) for name, stored in read.items()}

    def find(self, name, key):
        """The answer to a case, if it is one to what is asked now."""
        answer = self.answers.get(name)
        return answer if answer and answer.key == key else None

    def put(self, name, answer):
        """Stores an answer at once: a run that is ended early has not asked for nothing."""
        with self.lock:
            self.answers[name] = answer
            self.write(name[0])

    def drop_others(self, names):
        """Drops what is stored for cases that have none of these names."""
        with self.lock:
            gone = self.answers.keys() - set(names)
            for name in gone:
                del self.answers[name]
            for letter in {name[0] for name in gone}:
                self.write(letter)

    def write(self, letter):
        """Writes the file of this letter."""
        path = DIRECTORY / f"{letter}.json"
        lines = [f"{json.dumps(name)}: {encoded(answer)}"
                 for name, answer in sorted(self.answers.items()) if name[0] == letter]
        if lines:
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        else:
            path.unlink(missing_ok=True)


def encoded(answer):
    """An answer as a line, so that a change shows which case it is in. A run is a list of
    micro-batches, or text if it was refused; a row has its values in the order of the columns, null
    where it has none."""
    runs = [run if isinstance(run, str) else [with_values(one, answer.columns) for one in run]
            for run in answer.runs]
    text = json.dumps({"key": answer.key, "columns": answer.columns, "runs": runs},
                      ensure_ascii=False)
    # As texts, in which NaN is NaN.
    if repr(decoded(json.loads(text))) != repr(answer):
        raise ValueError(f"this answer does not survive being stored: {answer}")
    return text


def with_values(one, columns):
    return asdict(one) | {"rows": [[row.get(name) for name in columns] for row in one.rows]}


def decoded(stored):
    """The answer that was encoded."""
    runs = [run if isinstance(run, str) else [with_names(one, stored["columns"]) for one in run]
            for run in stored["runs"]]
    return Answer(stored["key"], stored["columns"], runs)


def with_names(one, columns):
    rows = [{name: value for name, value in zip(columns, row) if value is not None}
            for row in one["rows"]]
    return MicroBatch(**one | {"rows": rows})

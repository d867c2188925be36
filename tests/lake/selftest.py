"""Checks the oracle itself: each engine reads what the others wrote, and differences are seen.

    $(tests/lake/install)/bin/python tests/lake/selftest.py [CHECK...]

An oracle that says "equal" to everything would pass every test that relies on it, so these checks
also change single values and want another hash.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

WRITERS = ["deltalake", "spark"]
READERS = ["deltalake", "duckdb", "spark"]
SCHEMA = (
    "id bigint, p string, small smallint, i int, f float, d double, ok boolean, text string, "
    "raw binary, day date, at timestamp, local timestamp_ntz, price decimal(10,2), "
    "long decimal(38,18)"
)
VALUES: list[dict[str, Any]] = [
    {"id": 1, "p": "x", "small": -3, "i": 7, "f": 0.5, "d": 0.1, "ok": True, "text": "plain"},
    {"id": 2, "p": "y z/%é", "d": "NaN", "text": "grüße, 世界 🚀", "price": "-2.50"},
    {"id": 3, "p": None, "d": "-Infinity", "text": "", "raw": "", "long": "0.000000000000000001"},
    {"id": 4, "p": "x", "d": -0.0, "text": 'line\nbreak "x"', "raw": "00ff", "price": "0.00"},
    {"id": 5, "p": "x", "day": "1969-12-31", "at": "1969-12-31T23:59:59.999999+00:00"},
    {"id": 6, "p": "y", "day": "2024-02-29", "local": "2024-02-29T12:00:00.000001"},
    {"id": 9007199254740993, "p": "y", "price": "99999999.99", "long": "-12345678901234567890.5"},
]


class Oracle:
    """A running oracle, asked over its pipes like a test would."""

    def __init__(self, directory: str, *flags: str) -> None:
        file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracle.py")
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("SPARK_HOME", None)
        log = open(os.path.join(directory, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, file, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=directory,
            env=environment,
        )
        self.ready = self.line()

    def line(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, "the oracle ended without an answer"
        return json.loads(line)

    def try_ask(self, engine: str, op: str, table: str | None = None, **more: Any) -> Any:
        request = {"engine": engine, "op": op, "table": table} | more
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.line()

    def ask(self, engine: str, op: str, table: str | None = None, **more: Any) -> Any:
        answer = self.try_ask(engine, op, table, **more)
        assert "error" not in answer, f"{op} with {engine} of {table}: {answer['error']}"
        return answer

    def read_by_all(self, table: str, **more: Any) -> dict[str, Any]:
        """What all engines agree upon."""
        answers = {reader: self.ask(reader, "read", table, **more) for reader in READERS}
        ways = answers["deltalake"].pop("ways")
        assert ways == {"query_builder": "ok", "pyarrow": "ok"}, ways
        for answer in answers.values():
            del answer["ms"]
        first = answers[READERS[0]]
        assert all(answer == first for answer in answers.values()), json.dumps(answers, indent=1)
        return first

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


def generated_rows_are_those_of_the_protocol(oracle: Oracle, at: str) -> None:
    def cell(text: str | None) -> str:
        return "n" if text is None else f"v{len(text.encode())}:{text}"

    total = 0
    for id in range(5, 8):
        text = None if id % 3 == 0 else f"row {id} é✓"
        row = cell(str(id)) + cell(text) + cell(f"p{id % 4}" if text else None)
        total += int.from_bytes(hashlib.sha256(row.encode()).digest()[:8], "big")
    shape = {"schema": "id bigint, text string, p string", "partition_by": ["p"]}
    for writer in WRITERS:
        table = f"{at}/{writer}"
        oracle.ask(writer, "append", table, rows=3, first=5, nulls_every=3, **shape)
        answer = oracle.read_by_all(table)
        assert answer["hash"] == f"{total % 2**64:016x}", answer
        assert (answer["rows"], answer["version"], answer["sums"]) == (3, 0, {"id": "18"}), answer
        assert (answer["min"]["text"], answer["max"]["text"]) == ("row 5 é✓", "row 7 é✓"), answer


def every_type_reads_alike(oracle: Oracle, at: str) -> None:
    hashes = set()
    for writer in WRITERS:
        table = f"{at}/{writer}"
        oracle.ask(writer, "create", table, schema=SCHEMA, partition_by=["p"])
        oracle.ask(writer, "append", table, schema=SCHEMA, partition_by=["p"], values=VALUES)
        more = {"rows": 40, "first": 100, "nulls_every": 5}
        oracle.ask(writer, "append", table, schema=SCHEMA, partition_by=["p"], **more)
        answer = oracle.read_by_all(table)
        assert answer["rows"] == 47 and answer["version"] == 2, answer
        assert answer["max"]["id"] == "9007199254740993", answer
        assert answer["sums"]["d"] == "NaN" and answer["min"]["d"] == "-inf", answer
        assert answer["min"]["at"] == "1969-12-31 23:59:59.999999", answer
        assert answer["max"]["price"] == "99999999.99", answer
        hashes.add(answer["hash"])
        some = oracle.read_by_all(table, columns=["text", "id"])
        assert some["hash"] != answer["hash"] and list(some["types"]) == ["text", "id"], some
        assert oracle.read_by_all(table, version=1)["rows"] == 7
        assert oracle.read_by_all(table, version=0)["hash"] == "0" * 16
    assert len(hashes) == 1, hashes


def any_changed_value_changes_the_hash(oracle: Oracle, at: str) -> None:
    other = {
        "p": "z",
        "small": 1,
        "i": 1,
        "f": 1.5,
        "d": 1.5,
        "ok": False,
        "text": "other",
        "raw": "01",
        "day": "2000-01-01",
        "at": "2000-01-01T00:00:00+00:00",
        "local": "2000-01-01T00:00:00",
        "price": "1.01",
        "long": "1.000000000000000001",
    }
    changed = [VALUES[0] | {name: value} for name, value in other.items()]
    variants = [VALUES] + [[first] + VALUES[1:] for first in changed]
    variants += [VALUES[1:], VALUES + VALUES[:1]]
    # The same text, moved to the neighbouring column.
    variants += [[{"p": "ab", "text": "c"}], [{"p": "a", "text": "bc"}], [{"p": "ab", "text": ""}]]
    hashes = []
    for number, values in enumerate(variants):
        table = f"{at}/{number}"
        oracle.ask("deltalake", "append", table, schema=SCHEMA, values=values)
        hashes.append(oracle.ask("duckdb", "read", table)["hash"])
    assert len(set(hashes)) == len(variants), hashes


def nested_values_read_alike(oracle: Oracle, at: str) -> None:
    def write(table: str, last: int) -> str:
        oracle.ask(
            "spark",
            "sql",
            sql=f"CREATE TABLE delta.`{table}` USING delta AS SELECT 1L AS id, "
            "array(1, null, 3) AS list, named_struct('a', 1.50BD, 'b', 'x') AS pair, "
            f"map('k2', array(2), 'k1', array({last})) AS named "
            "UNION ALL SELECT 2L, array(), null, null",
        )
        return oracle.read_by_all(table)["hash"]

    assert write(f"{at}/one", 1) != write(f"{at}/two", 2)


def engines_see_each_others_changes(oracle: Oracle, at: str) -> None:
    table = f"{at}/table"
    oracle.ask("spark", "append", table, rows=10, first=0, txn={"app": "a", "version": 7})
    for step in range(1, 5):
        more = {"rows": 10, "first": 10 * step, "txn": {"app": "b", "version": step}}
        oracle.ask(WRITERS[step % 2], "append", table, **more)
    answer = oracle.read_by_all(table)
    assert (answer["rows"], answer["sums"]["id"]) == (50, "1225"), answer
    for reader in READERS:
        found = [oracle.ask(reader, "txn", table, app=app)["txn"] for app in ("a", "b", "none")]
        assert found == [7, 4, None], (reader, found)

    def live() -> int:
        files = oracle.ask("duckdb", "sql", sql=f"SELECT * FROM delta_list_files('{table}')")
        return len(files["rows"])

    assert live() == 5
    for writer, where in (("deltalake", "id < 5"), ("spark", "id >= 45")):
        oracle.ask("deltalake", "append", table, values=[{"id": 20, "text": "more"}])
        oracle.ask(writer, "delete", table, where=where)
        before = oracle.read_by_all(table)
        oracle.ask(writer, "optimize", table)
        after = oracle.read_by_all(table)
        assert after["hash"] == before["hash"] and after["version"] > before["version"], after
        oracle.ask(writer, "vacuum", table, retain_hours=0)
        assert oracle.read_by_all(table)["hash"] == after["hash"]
    assert live() == 1
    assert oracle.read_by_all(table)["rows"] == 42
    for writer in WRITERS:
        history = oracle.ask(writer, "history", table)["history"]
        assert {"version": history[0]["version"]}.items() <= oracle.read_by_all(table).items()


def checkpoints_read_alike(oracle: Oracle, at: str) -> None:
    table, log = f"{at}/table", f"{at}/table/_delta_log"

    def parts() -> list[str]:
        return sorted(name for name in os.listdir(log) if name.endswith(".parquet"))

    for step in range(6):
        oracle.ask("deltalake", "append", table, rows=10, first=10 * step, hooks=False)
    size = {"spark.databricks.delta.checkpoint.partSize": "2"}
    oracle.ask("spark", "checkpoint", table, conf=size)
    assert len(parts()) == 3 and parts()[0].endswith("5.checkpoint.0000000001.0000000003.parquet")
    for version in range(5):
        os.remove(f"{log}/{version:020}.json")
    assert oracle.read_by_all(table)["sums"] == {"id": "1770"}
    oracle.ask("deltalake", "append", table, rows=10, first=60, hooks=False)
    oracle.ask("deltalake", "checkpoint", table)
    assert len(parts()) == 4
    assert oracle.read_by_all(table)["sums"] == {"id": "2415"}
    oracle.ask("spark", "append", table, rows=10, first=70)
    oracle.ask("spark", "checkpoint", table)
    assert len(parts()) == 5, "the session setting must not outlive its request"
    oracle.ask("deltalake", "cleanup", table)
    assert oracle.read_by_all(table)["rows"] == 80


def v2_checkpoints_are_refused_by_pyarrow_alone(oracle: Oracle, at: str) -> None:
    table = f"{at}/table"
    oracle.ask("spark", "create", table, properties={"delta.checkpointPolicy": "v2"})
    oracle.ask("spark", "append", table, rows=10, first=0)
    oracle.ask("spark", "checkpoint", table)
    answers = [oracle.ask(reader, "read", table) for reader in READERS]
    assert "v2Checkpoint" in answers[0]["ways"]["pyarrow"]["error"]["message"], answers[0]["ways"]
    assert {answer["sums"]["id"] for answer in answers} == {"45"}


def properties_are_set(oracle: Oracle, at: str) -> None:
    for writer in WRITERS:
        table = f"{at}/{writer}"
        properties = {"delta.checkpointInterval": "3", "delta.appendOnly": "true"}
        oracle.ask(writer, "create", table, properties=properties)
        shown = oracle.ask("spark", "sql", sql=f"SHOW TBLPROPERTIES delta.`{table}`")["rows"]
        assert properties.items() <= {row["key"]: row["value"] for row in shown}.items(), shown


def errors_are_answers(oracle: Oracle, at: str) -> None:
    for reader in READERS:
        error = oracle.try_ask(reader, "read", f"{at}/nowhere")["error"]
        assert error["type"] and error["message"], error
    types = {
        ("deltalake", "sql"): "Unsupported",
        ("duckdb", "append"): "Unsupported",
        ("spark", "fly"): "BadRequest",
        ("flink", "read"): "BadRequest",
    }
    for (engine, op), expected in types.items():
        assert oracle.try_ask(engine, op, f"{at}/nowhere")["error"]["type"] == expected
    oracle.process.stdin.write("not JSON\n")
    assert oracle.try_ask("duckdb", "sql", sql="SELECT 1")["error"]["type"] == "JSONDecodeError"
    assert oracle.line()["rows"] == [{"1": 1}]
    nan = oracle.try_ask("duckdb", "sql", sql="SELECT 'nan'::DOUBLE")
    assert nan["error"]["type"] == "ValueError", nan


CHECKS: list[Callable[[Oracle, str], None]] = [
    generated_rows_are_those_of_the_protocol,
    every_type_reads_alike,
    any_changed_value_changes_the_hash,
    nested_values_read_alike,
    engines_see_each_others_changes,
    checkpoints_read_alike,
    v2_checkpoints_are_refused_by_pyarrow_alone,
    properties_are_set,
    errors_are_answers,
]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-lake-") as directory:
        light = Oracle(directory, "--engines", "deltalake,duckdb")
        assert set(light.ready["ready"]) == {"deltalake", "duckdb"}, light.ready
        print("started without Spark:", light.ready, flush=True)
        light.end()
        oracle = Oracle(directory)
        print("started:", oracle.ready, flush=True)
        for check in CHECKS:
            if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
                continue
            started = time.monotonic()
            at = f"{directory}/{check.__name__}"
            os.mkdir(at)
            check(oracle, at)
            print(f"ok {check.__name__} {time.monotonic() - started:.1f} s", flush=True)
        oracle.end()


if __name__ == "__main__":
    main()

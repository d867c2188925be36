"""Answers what foreign engines make of a Delta table, and lets them change it.

Whether a table is right is not for its writer to say. Here are the engines that users have:
`deltalake` (delta-rs), DuckDB with its `delta` extension, and delta-spark. Starting Spark takes
ten seconds and more, so a test starts this process once and asks it many questions.

    ENGINES=$(tests/lake/install)
    $ENGINES/bin/python tests/lake/oracle.py [--engines deltalake,duckdb,spark]

Without `spark` among the engines it is there at once. Scratch files go into the working directory:
start it in a temporary one, with SPARK_LOCAL_IP=127.0.0.1 and without SPARK_HOME. Logs go to
standard error.

# Protocol

One JSON object per line each way. The first line on standard output says that all engines stand:

    {"ready": {"deltalake": "1.6.6", "duckdb": "1.5.5", "spark": "4.1.0"}, "ms": 9000}

Then every line on standard input is a request and is answered by one line, in order. The process
ends at the end of its standard input. An answer has `ms`, the time that it took, and either the
fields named below or `error`, after which the process goes on:

    {"error": {"type": "TableNotFoundError", "message": "..."}, "ms": 3}

`type` is the name of the Python exception, of the Java class if it came unchanged out of Java, or
`Unsupported` for what an engine is not asked to do, or `BadRequest`.

Every request has `op` and `engine` and, but for `sql`, `table`: an absolute path. For Spark, `conf`
may hold session settings (texts by name) that hold for this request. Engines see the table as it
is now: nothing is cached between requests. All other fields, `?` marking those that may be absent:

    op          engines                 fields
    read        all                     version?, columns?
    sql         spark, duckdb           sql
    create      deltalake, spark        schema?, partition_by?, properties?
    append      deltalake, spark        rows, first, nulls_every?, or values; schema?,
                                        partition_by?, txn?, hooks?
    checkpoint  deltalake, spark
    cleanup     deltalake               (deletes expired log files)
    optimize    deltalake, spark        hooks?
    vacuum      deltalake, spark        retain_hours? (168), hooks?
    delete      deltalake, spark        where? (all rows), hooks?
    txn         all                     app, version? (deltalake only)
    history     deltalake, spark        limit?
    stream      spark                   target, checkpoint, options?

`stream` runs a query that copies the table to `target`, a Delta table, with the trigger
`availableNow`; `options` are those of its source (texts by name).

Answers:

    read        rows, version, types, sums, min, max, hash; ways for deltalake
    sql         columns, rows: a list of objects
    txn         version: the table's, txn: the app's or null
    history     history: the engine's own list, newest first
    stream      offsets: the offset that each micro-batch ended at
    the others  version: the table's newest, afterwards; result: the engine's own account (only for
                optimize, vacuum, delete)

## What is read

`columns` is a list of names; absent, null or empty it means all, in the table's order. `version`
in an answer is null if the table moved on while it was read without a `version` (Spark tries
again before it says so). DuckDB does not tell it, so it is asked for a version far beyond the
log before and after; null too if its refusal does not name the newest.

`rows` is a number. `types`, `sums`, `min` and `max` are objects by column. Types are Arrow's names
(`int64`, `double`, `decimal128(10, 2)`, `date32[day]`, `string`, `binary`, `bool`, `list<int64>`),
and `timestamp` (UTC) or `timestamp_ntz`. `sums` has the numeric columns, exact (for doubles:
rounded once), `min` and `max` those that are not nested; each a text, or null without any value.
These texts are those of cells, except that doubles are printed as Python does (`0.25`, `1e+16`,
`NaN`, `inf`). NaN is neither the least nor the greatest.

deltalake reads twice: `ways` is {"query_builder": "ok", "pyarrow": "ok" or {"error": {..}}}. The
answer is that of QueryBuilder. Where to_pyarrow_table refuses, that is said there; where it gives
other rows, the whole request fails with type `WaysDisagree`.

## The hash

It does not depend on the order of rows, and is the same for equal values in whatever engine:

    hash  = sum over all rows of h(row), modulo 2^64, as 16 lower-case hexadecimal digits
    h(r)  = the first 8 bytes of SHA-256(r), big-endian
    row   = its cells, concatenated, in the order of columns
    cell  = "n" for null, otherwise "v", the length of the text in bytes, ":", the text (UTF-8)

    type             text
    integers         decimal, "-7"
    boolean          "true", "false"
    decimal          with all digits of its scale, never an exponent, "-2.50"
    float, double    the bits of the double as a signed integer; every NaN is 0x7ff8000000000000
    string           itself
    binary           lower-case hexadecimal
    date             "2024-01-31"
    timestamps       "2024-01-31 23:59:59.000001", always six digits; UTC
    struct, list     the cells of its members, concatenated
    map              the cells of key and value of each entry; entries sorted by that text

## What is written

`schema` is `name type, ...` with Spark's names: tinyint, smallint, int, bigint, float, double,
boolean, string, binary, date, timestamp, timestamp_ntz, decimal(P,S); to create with Spark, any
DDL. Default: "id bigint, text string". `properties` are the table's (texts by name). An `append`
makes the table if there is none; each is one commit. `txn` is {"app": TEXT, "version": N}. With
`hooks` false deltalake neither makes a checkpoint nor cleans up after the commit, as it does by
default.

`values` is a list of rows as objects: null or absent is null; decimals, dates and timestamps are
texts (ISO 8601, with an offset for `timestamp`), binary is hexadecimal.

Otherwise rows with id = first .. first + rows - 1 are generated. In a column named in
`partition_by`, id is replaced by id % 4. If `nulls_every` is K, all columns but the first are null
where id % K = 0 (the id itself, in partition columns too).

    bigint, int, smallint, tinyint   id, id, id % 30000, id % 100
    float, double                    id / 4
    decimal(P,S)                     id * 10^-S
    boolean                          id % 2 = 0
    date                             1970-01-01 + id % 20000 days
    timestamp, timestamp_ntz         2024-01-01 00:00:00 + id * 1000001 microseconds
    string                           "row ID é✓"; in a partition column "pID"
    binary                           the UTF-8 of that text
"""

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any, Iterator, TextIO

OPS = {
    "read",
    "sql",
    "create",
    "append",
    "checkpoint",
    "cleanup",
    "optimize",
    "vacuum",
    "delete",
    "txn",
    "history",
    "stream",
}
ENGINES = "deltalake,duckdb,spark"
# Causes of a Java exception repeat each other at length.
MESSAGE_CHARACTERS = 8000


class BadRequest(Exception):
    """The request is not one of this protocol."""


class Unsupported(Exception):
    """This engine is not asked to do that."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks foreign engines about Delta tables.")
    parser.add_argument("--engines", default=ENGINES, help=f"some of {ENGINES}")
    names = parser.parse_args().engines.split(",")
    answers = claim_stdout()
    started = time.monotonic()
    engines = {name: start(name) for name in names}
    answer(answers, {"ready": {name: engine.version for name, engine in engines.items()}}, started)
    for line in sys.stdin:
        if line.strip():
            started = time.monotonic()
            answer(answers, reply(engines, line), started)


def claim_stdout() -> TextIO:
    """Standard output for answers alone; what a library or Java prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def start(name: str) -> Any:
    """The engine called `name`; only those asked for are imported, for each takes its time."""
    if name == "deltalake":
        from with_deltalake import Deltalake

        return Deltalake()
    if name == "duckdb":
        from with_duckdb import Duckdb

        return Duckdb()
    if name == "spark":
        from with_spark import Spark

        return Spark()
    raise SystemExit(f"no engine is called {name!r}; there are {ENGINES}")


def answer(answers: TextIO, content: dict[str, Any], started: float) -> None:
    content["ms"] = round((time.monotonic() - started) * 1000)
    try:
        line = json.dumps(content, default=json_value, allow_nan=False)
    except ValueError as error:  # a NaN in SQL results, for which JSON has no word
        line = json.dumps({"error": described(error), "ms": content["ms"]})
    print(line, file=answers, flush=True)


def json_value(value: Any) -> Any:
    """What JSON has no word for, as it comes in SQL results and in accounts of engines."""
    return value.hex() if isinstance(value, bytes) else str(value)


def reply(engines: dict[str, Any], line: str) -> dict[str, Any]:
    try:
        return perform(engines, json.loads(line))
    except Exception as error:  # whatever it is, the test has to hear of it and may ask on
        return {"error": described(error)}


def perform(engines: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    engine = engines.get(request.get("engine"))
    if engine is None:
        raise BadRequest(f"engine {request.get('engine')!r} was not started")
    if request.get("op") not in OPS:
        raise BadRequest(f"op {request.get('op')!r} is not known")
    operation = getattr(engine, request["op"], None)
    if operation is None:
        raise Unsupported(f"{request['op']} with {request['engine']}")
    prepared = getattr(engine, "prepared", nothing_prepared)
    with prepared(request):
        return operation(request)


@contextlib.contextmanager
def nothing_prepared(_: dict[str, Any]) -> Iterator[None]:
    yield


def described(error: Exception) -> dict[str, str]:
    java = getattr(error, "java_exception", None)
    name = java.getClass().getName() if java is not None else type(error).__name__
    return {"type": name, "message": str(error)[:MESSAGE_CHARACTERS]}


if __name__ == "__main__":
    main()

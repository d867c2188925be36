"""Appends to a Delta table by another engine, for `millstream-bench delta`.

peers.py CONTENDER TASK TABLE COMMITS PAUSE_MS PART_SIZE JARS

CONTENDER is deltalake, deltalake-off, spark or spark-parts; TASK is commits, or open in a process
of its own. Prints one JSON object. The facts have the names that the program gives its own.
"""

import contextlib
import functools
import json
import os
import re
import sys
import time
from typing import Any, Callable, Iterator

Facts = dict[str, Any]
ROWS = 10
# Before time counts: the first reads the table, and Java compiles itself while it does.
WARM_UP_COMMITS = 2
CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint\.")
# Spark keeps the state of the table in memory; the default of 1 GB is too little for millions.
SPARK_MEMORY = "6g"


def main() -> None:
    variant, task, table, commits, pause_ms, part_size, jars = sys.argv[1:]
    if variant.startswith("spark"):
        sizes = {"spark": None, "spark-parts": part_size}
        engine: Any = Spark(table, jars, sizes[variant])
    else:
        engine = Deltalake(table, has_hooks=variant == "deltalake")
    if task == "open":
        facts = opened(engine)
    else:
        facts = appended(engine, table, int(commits), int(pause_ms) / 1_000)
    print(json.dumps({**facts, "peak_rss_mb": peak_rss_mb(), "version": engine.version}))


def appended(engine: Any, table: str, commits: int, pause_s: float) -> Facts:
    engine.open()
    for number in range(WARM_UP_COMMITS):
        engine.append(engine.rows(number))
    known, cpu_before, begun = checkpoints(table), cpu_ms(), time.perf_counter()
    commit_ms, with_checkpoint = [], []
    for number in range(commits):
        rows = engine.rows(number)
        commit_ms.append(timed(functools.partial(engine.append, rows)))
        found = checkpoints(table)
        if found - known:
            with_checkpoint.append(number)
        known = found
        time.sleep(pause_s)
    wall_ms, used_ms = (time.perf_counter() - begun) * 1_000, cpu_ms() - cpu_before
    # One more that is waited for, to see what it costs alone.
    engine.append(engine.rows(0))
    return {
        "commit_ms": commit_ms,
        "commits_with_checkpoint": with_checkpoint,
        "checkpoint_ms": timed(engine.checkpoint),
        "wall_ms": round(wall_ms, 3),
        "cpu_ms": round(used_ms, 1),
    }


def opened(engine: Any) -> Facts:
    cpu_before, begun = cpu_ms(), time.perf_counter()
    open_ms = timed(engine.open)
    files: list[int] = []
    list_ms = timed(lambda: files.append(engine.files()))
    wall_ms = (time.perf_counter() - begun) * 1_000
    return {
        "open_ms": open_ms,
        "list_ms": list_ms,
        "files": files[0],
        "wall_ms": round(wall_ms, 3),
        "cpu_ms": round(cpu_ms() - cpu_before, 1),
    }


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return round((time.perf_counter() - begun) * 1_000, 3)


class Deltalake:
    """delta-rs. A stream keeps its table open, so this does."""

    def __init__(self, table: str, has_hooks: bool) -> None:
        import deltalake
        import pyarrow

        self.deltalake, self.pyarrow = deltalake, pyarrow
        self.version = deltalake.__version__
        self.path, self.table = table, None
        self.hooks = None
        if not has_hooks:
            self.hooks = deltalake.PostCommitHookProperties(
                create_checkpoint=False, cleanup_expired_logs=False
            )

    def open(self) -> None:
        self.table = self.deltalake.DeltaTable(self.path)

    def files(self) -> int:
        return len(self.table.file_uris())

    def append(self, rows: Any) -> None:
        self.deltalake.write_deltalake(
            self.table, rows, mode="append", post_commithook_properties=self.hooks
        )

    def rows(self, number: int) -> Any:
        ids = range(number * ROWS, (number + 1) * ROWS)
        arrow = self.pyarrow
        columns = {
            "id": arrow.array(ids, arrow.int64()),
            "price": arrow.array([row / 7 for row in ids], arrow.float64()),
            "user": arrow.array([f"user-{row:016x}" for row in ids], arrow.string()),
            "at": arrow.array([row * 1_000 for row in ids], arrow.timestamp("us", tz="UTC")),
            "note": arrow.array([None] * ROWS, arrow.string()),
        }
        return arrow.table(columns)

    def checkpoint(self) -> None:
        self.table.create_checkpoint()


class Spark:
    """delta-spark on all cores. The session is started before time counts."""

    def __init__(self, table: str, jars: str, part_size: str | None) -> None:
        import pyspark

        self.version, self.path = pyspark.__version__, table
        self.session = spark_session(jars, os.path.dirname(table))
        self.session.sparkContext.setLogLevel("ERROR")
        if part_size is not None:
            self.session.conf.set("spark.databricks.delta.checkpoint.partSize", part_size)

    def log(self) -> Any:
        delta = self.session._jvm.org.apache.spark.sql.delta.DeltaLog
        return delta.forTable(self.session._jsparkSession, self.path)

    def open(self) -> None:
        self.log().unsafeVolatileSnapshot().version()

    def files(self) -> int:
        return self.log().unsafeVolatileSnapshot().numOfFiles()

    def rows(self, number: int) -> Any:
        columns = [
            "id",
            "id / 7.0D AS price",
            "concat('user-', lpad(lower(hex(id)), 16, '0')) AS user",
            "timestamp_millis(id) AS at",
            "CAST(NULL AS STRING) AS note",
        ]
        rows = self.session.range(number * ROWS, (number + 1) * ROWS, 1, 1)
        return rows.selectExpr(*columns)

    def append(self, rows: Any) -> None:
        rows.write.format("delta").mode("append").save(self.path)

    def checkpoint(self) -> None:
        self.log().checkpoint()


def spark_session(jars: str, scratch: str) -> Any:
    from pyspark.sql import SparkSession

    found = [os.path.join(jars, name) for name in sorted(os.listdir(jars))]
    settings = {
        "spark.jars": ",".join(name for name in found if name.endswith(".jar")),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.local.dir": scratch,
        # Without Hadoop's hidden checksum beside each file, as on shared storage: an engine that
        # replaces `_last_checkpoint` leaves that of Spark behind, and Spark then reads in vain.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": SPARK_MEMORY,
    }
    builder = SparkSession.builder.master("local[*]").appName("millstream-bench-delta")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def checkpoints(table: str) -> set[str]:
    names = os.listdir(os.path.join(table, "_delta_log"))
    return {found[1] for name in names if (found := CHECKPOINT.match(name))}


def cpu_ms() -> float:
    """Of this process and the Java that it has started; hundredths of a second."""
    ticks = 0
    for pid in family():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            user, system = stat.read().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return ticks * 1_000 / os.sysconf("SC_CLK_TCK")


def peak_rss_mb() -> float:
    kib = 0
    for pid in family():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as status:
            kib += sum(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return round(kib / 1_024, 1)


def family() -> Iterator[int]:
    """This process and all that it has started."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8") as stat:
            parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(child for child, parent in parents.items() if parent == pid)


if __name__ == "__main__":
    main()

"""A stream into a Delta table of about 700,000 log entries, and its checkpoints.

The benchmark calls what the sink calls; a commit is what a micro-batch without other work consists
of. Where a row says so, the engine runs as a user runs it, and micro-batches are measured. Theirs runs on several machines over an object store, ours on the local disk.
"""

from functools import partial

from .. import model
from ..lines import Untaken, value
from ..model import Experiment, Figure, Row, Source, less, not_said

SOURCE = Source(
    "delta",
    "Streaming into Delta Lake: checkpoints in several parts",
    "https://github.com/delta-io/delta/blob/master/PROTOCOL.md",
    "We know of no public address of this report itself; the link is the protocol that it is "
    "about. Number and size of its machines are not published. Ours is on a local disk.",
)

row = partial(model.Row, SOURCE)
unmeasured = partial(model.unmeasured, SOURCE)

EXPERIMENTS = (
    Experiment(
        "delta-checkpoints",
        "delta --actions 700000 --part-size 100000 --configuration off,classic,multi-part,steered "
        "--commits 60 --repeat 1",
        "delta --actions 700000 --part-size 100000 --configuration off,classic,multi-part,steered "
        "--commits 200 --repeat 3",
    ),
    Experiment(
        "delta-minutes",
        "delta --actions 700000 --configuration classic,steered --commits 22 --pause 1000",
        "delta --actions 700000 --configuration classic,steered --commits 42 --pause 60000",
    ),
    Experiment(
        "delta-growth",
        "delta --actions 100000,700000 --configuration classic,steered --commits 12 --pause 0",
        "delta --actions 700000,5000000 --configuration classic,steered --commits 42",
    ),
    Experiment(
        "delta-job",
        "delta --actions 700000 --configuration off --commits 10 --pause 250 --peers millstream "
        "--peer-commits 200",
        "delta --actions 700000 --configuration off --commits 10 --pause 10000 --peers millstream "
        "--peer-commits 400",
    ),
    Experiment(
        "delta-peers",
        "delta --actions 100000 --configuration off --commits 10 --pause 250 --part-size 12500 "
        "--peers deltalake,spark,millstream --peer-commits 22 --engines {engines}",
        "delta --actions 700000 --configuration off --commits 10 --pause 1000 --part-size 100000 "
        "--peers deltalake,spark,millstream --peer-commits 60 --engines {engines}",
    ),
)

S = 0.001
MB = 0.000_001
# A note on other engines.
SMALLER = "100,000 entries in the reduced size"
# And on ours.
JOB = "`millstream run`; each 10 s and of 400 in the full size"


def commit(quantile: str, configuration: str):
    """Seconds of a commit with its data file."""
    return value(f"commit_{quantile}_ms", S, line="summary", configuration=configuration)


def step(path: str, scale: float, configuration: str):
    """A fact of one step."""
    return value(path, scale, line="round", configuration=configuration)


def part_mb(lines: list[dict]) -> float:
    """Size of one part."""
    size = step("full.bytes", MB, "multi-part")(lines)
    return size / step("full.parts", 1, "multi-part")(lines)


def growth(configuration: str):
    """Time of a checkpoint over that of the smallest table, each for as many entries."""

    def take(lines: list[dict]) -> float:
        sizes = {line.get("actions") for line in lines} - {None}
        small, large = min(sizes), max(sizes)
        if small == large:
            raise Untaken("tables of two sizes are needed")
        path, where = "steady.checkpoint_ms_median", {"configuration": configuration}
        of = [value(path, actions=actions, **where)(lines) for actions in (small, large)]
        return of[1] / of[0] / (large / small)

    return take


def beside(engine: str, files: str, name: str, longest: Figure, written: Figure) -> list[Row]:
    """Another engine on this machine."""
    return [
        row(f"{engine} on this machine, {files}: longest commit", longest, "delta-peers",
            commit("max", name), note=SMALLER),
        row(f"{engine} on this machine, {files}: a checkpoint", written, "delta-peers",
            step("stream.checkpoint_ms", S, name), note=SMALLER),
    ]


ROWS = (
    row("an ordinary micro-batch, one checkpoint file: p50", less("about 20 s", 20, "s"),
        "delta-checkpoints", commit("p50", "classic")),
    row("the micro-batch with a checkpoint, one file: longest",
        less("above 40 s", 40, "s"), "delta-checkpoints", commit("max", "classic")),
    row("the micro-batch with a checkpoint in parts: longest",
        not_said("s"), "delta-checkpoints", commit("max", "multi-part")),
    row("the same with the default, which rewrites only parts that changed: longest",
        not_said("s"), "delta-checkpoints", commit("max", "steered")),
    row("micro-batches at an interval and without other work, one file: longest",
        less("above 40 s", 40, "s"), "delta-minutes", commit("max", "classic"),
        note="a micro-batch each second in the reduced size, each minute in the full one"),
    row("the same with the default", not_said("s"), "delta-minutes",
        commit("max", "steered")),
    row("writing the checkpoint, one file", less("20 s, one task", 20, "s"),
        "delta-checkpoints", step("steady.checkpoint_ms_median", S, "classic")),
    row("writing the checkpoint in parts of 100,000, all of it",
        less("5 s, 8 tasks", 5, "s"), "delta-checkpoints", step("full.wall_ms", S, "multi-part")),
    row("how that time grows, one file: 1 if as fast as the table",
        Figure("with the log", unit="times"), "delta-growth", growth("classic")),
    row("how it grows with the default: 1 if as fast as the table",
        not_said("times"), "delta-growth", growth("steered")),
    row("reading the table's state, one file", less("5 s, two of 17 tasks", 5, "s"),
        "delta-checkpoints", step("open.wall_ms", S, "classic"),
        note="the table is opened and all live files are listed"),
    row("reading the table's state from parts", less("about 1 s, 20 tasks", 1, "s"),
        "delta-checkpoints", step("open.wall_ms", S, "multi-part"),
        note="the table is opened and all live files are listed"),
    row("bytes of a checkpoint of about 700,000 entries", less("163 MB", 163, "MB"),
        "delta-checkpoints", step("full.bytes", MB, "multi-part")),
    row("files of it with parts of 100,000 entries", Figure("8", 8, "files"),
        "delta-checkpoints", step("full.parts", 1, "multi-part")),
    row("bytes of one of them", Figure("about 20 MB", 20, "MB"), "delta-checkpoints",
        part_mb),
    row("a job through the engine, a micro-batch each 250 ms: p50", less("about 20 s", 20, "s"),
        "delta-job", commit("p50", "millstream"), note=JOB),
    row("the same: longest of 200", less("above 40 s", 40, "s"), "delta-job",
        commit("max", "millstream"), note=JOB),
    *beside("delta-spark", "one file", "spark", less("above 40 s", 40, "s"),
            less("20 s", 20, "s")),
    *beside("delta-spark", "parts", "spark-parts", not_said("s"), less("5 s", 5, "s")),
    *beside("delta-rs", "one file", "deltalake", not_said("s"), not_said("s")),
    row("Millstream beside them, through the engine: longest micro-batch", not_said("s"),
        "delta-peers", commit("max", "millstream"), note=SMALLER),
    unmeasured("17 tasks of 10 MB are planned and two read, as Parquet blocks have 128 MB",
               "125 and 34 MB", "how Spark plans a read; there are no such tasks here"),
    unmeasured("the state is made anew after each write, into 50 partitions", "",
               "a step of Spark's; a table that is kept open here takes over its own commits"),
)

"""Spark's Structured Streaming with offset management off the critical path.

Their checkpoint is on an object store whose latency they do not tell. Here a write to the
checkpoint takes 100 ms (`--put-latency 100`), in memory; listing and deleting take nothing, but for
the experiments about the purge, where each request takes 50 ms, and on three brokers, where it
takes 100 ms. There a log keeps two entries, so that each micro-batch has some to delete.
"""

from functools import partial

from .. import model
from ..lines import reduction, saving, sustained, value
from ..model import FULL, REDUCED, Experiment, Figure, Row, Source, less, more, not_said

SOURCE = Source(
    "subsecond",
    "Databricks: Latency goes subsecond in Apache Spark Structured Streaming",
    "https://www.databricks.com/blog/latency-goes-subsecond-apache-spark-structured-streaming",
    "As theirs, quantiles are by Apache DataSketches, and a record of Kafka counts when a reader "
    "has it. Quantiles are p99 where an absolute time is compared, and p50 where a reduction is. A "
    "write to the checkpoint takes 100 ms here, and milliseconds that are saved follow from that; "
    "how long theirs takes is not published. Where a row is about the purge alone, writing, "
    "listing and deleting take 50 ms each.",
)

row = partial(model.Row, SOURCE)
unmeasured = partial(model.unmeasured, SOURCE)

CONFIGURATIONS = "none,plain,async-purge,async-progress,async-both,default"
FOUR = "plain,async-purge,async-progress,async-both"
PURGE_MS = 50
# What `peers` measures, and how the page calls it.
PEERS = {
    "relay": "the bare client",
    "relay-transactions": "the bare client, a transaction at a time",
    "millstream": "Millstream, at least once",
    "millstream-exactly-once": "Millstream, exactly once",
    "millstream-exactly-once-librdkafka": "Millstream, exactly once by librdkafka",
    "millstream-exactly-once-tls": "Millstream, exactly once by TLS, with a user and zstd",
    "flink": "Flink 2.2, at least once",
    "flink-exactly-once-50ms": "Flink 2.2, exactly once, checkpoints each 50 ms",
    "flink-exactly-once-100ms": "Flink 2.2, exactly once, checkpoints each 100 ms",
    "flink-exactly-once-200ms": "Flink 2.2, exactly once, checkpoints each 200 ms",
    "flink-exactly-once-1s": "Flink 2.2, exactly once, checkpoints each second",
    "spark-micro-batch": "Spark 4.2, micro-batches",
    "spark-async": "Spark 4.2, micro-batches with asynchronous progress tracking",
    "spark-real-time": "Spark 4.2, Real-Time Mode, checkpoints each 5 minutes",
    "spark-real-time-10s": "Spark 4.2, Real-Time Mode, checkpoints each 10 seconds",
}
SLOW_REQUESTS = (f"--put-latency {PURGE_MS} --list-latency {PURGE_MS} --delete-latency {PURGE_MS} "
                 "--retain 2")

EXPERIMENTS = (
    Experiment(
        "progress-rate",
        "offset-management --route rate-to-stats --highest --rate 100000,500000,1000000 "
        "--partitions 1 "
        f"--put-latency 100 --configuration {CONFIGURATIONS} --seconds 3 --repeat 1",
        "offset-management --route rate-to-stats --highest --rate 100000,500000,1000000 "
        "--partitions 40 "
        f"--put-latency 0,30,100 --configuration {CONFIGURATIONS} --seconds 10 --repeat 3",
    ),
    Experiment(
        "progress-kafka",
        "offset-management --route kafka-to-kafka --highest --broker-warmup 30 "
        "--rate 10000,100000,500000,1000000 --partitions 4 "
        f"--put-latency 100 --configuration {FOUR} --seconds 4 --repeat 1",
        "offset-management --route kafka-to-kafka --highest --broker-warmup 60 "
        "--rate 100000,500000,1000000 --partitions 40 "
        f"--put-latency 0,100 --configuration {CONFIGURATIONS} --seconds 10 --repeat 3",
    ),
    Experiment(
        "purge",
        "offset-management --route rate-to-stats,kafka-to-kafka --rate 10000 --partitions 4 "
        f"{SLOW_REQUESTS} --configuration plain,async-purge --seconds 4 --repeat 1",
        "offset-management --route rate-to-stats,kafka-to-kafka --rate 100000 --partitions 40 "
        f"{SLOW_REQUESTS} --configuration plain,async-purge --seconds 20 --repeat 3",
    ),
    Experiment(
        "backlog",
        "offset-management --route rate-to-stats --rate 10000 --partitions 1 --put-latency 100,700 "
        "--configuration async-both --seconds 15 --repeat 1",
        "offset-management --route rate-to-stats --rate 10000 --partitions 1 --put-latency 100,700 "
        "--configuration async-both --seconds 60 --repeat 3",
    ),
    Experiment(
        "progress-three-brokers",
        "offset-management --route kafka-to-kafka --cluster --highest --broker-warmup 60 "
        "--rate 5000,100000 "
        "--partitions 40 --put-latency 100 --list-latency 100 --delete-latency 100 --retain 2 "
        f"--configuration {FOUR} --seconds 10 --repeat 1",
        "offset-management --route kafka-to-kafka --cluster --highest --broker-warmup 60 "
        "--rate 100000,500000,1000000 "
        "--partitions 40 --put-latency 100 --list-latency 100 --delete-latency 100 --retain 2 "
        f"--configuration {FOUR} --seconds 10 --repeat 3",
    ),
    Experiment(
        "recovery",
        "recovery --interval 100,1000,10000,60000 --rate 2000 --warmup 2 --repeat 3",
        "recovery --interval 100,1000,10000,60000 --rate 10000 --repeat 7",
    ),
    Experiment(
        "three-brokers",
        "kafka-to-kafka --cluster --rate 1000,10000,50000 --partitions 4 "
        "--systems relay,millstream,millstream-exactly-once "
        "--seconds 5 --warmup 3 --repeat 1 --broker-warmup 60",
        "kafka-to-kafka --cluster --rate 1000,10000,50000,100000 --partitions 40 "
        "--systems relay,millstream,millstream-exactly-once "
        "--seconds 20 --warmup 10 --repeat 3 --broker-warmup 120",
    ),
    Experiment(
        "peers",
        # All are warmed up as in the full size, since a JVM compiles what it runs in the first
        # minute, longer where the machine is slow. Time is saved on rounds.
        "peers --rate 1000 --seconds 20 --warmup 60 --repeat 1 --broker-warmup 60",
        "peers --rate 1000 --seconds 30 --warmup 60 --repeat 5 --broker-warmup 120",
    ),
    Experiment(
        "redis",
        "redis --rate 1000 --seconds 8 --repeat 1",
        "redis --rate 1000,10000 --seconds 30 --repeat 3",
    ),
    Experiment(
        "cassandra",
        "cassandra --rate 1000 --seconds 8 --repeat 1",
        "cassandra --rate 1000 --seconds 30 --repeat 3",
    ),
    Experiment(
        "pulsar",
        "pulsar --rate 1000 --seconds 8 --repeat 1",
        "pulsar --rate 1000,10000 --seconds 30 --repeat 3",
    ),
    Experiment(
        "operational",
        "operational --rate 1000 --seconds 10 --warmup 3 --repeat 1",
        "operational --rate 10000 --seconds 60 --repeat 3",
    ),
    Experiment(
        "freshness",
        "freshness --rate 10000 --seconds 10 --repeat 1",
        "freshness --rate 10000 --seconds 60 --repeat 3",
    ),
)


def p(quantile: int, configuration: str, route: str, **where):
    """A quantile of one configuration, in milliseconds; a write takes 100 ms, if nothing else is
    said."""
    where = {"put_latency_ms": 100, **where}
    return value(f"p{quantile}_ms", line="round", route=route, configuration=configuration,
                 **where)


def generated(rate: int) -> list[Row]:
    """Generated rows to the sink that measures them, at one rate."""

    def of(quantile: int, configuration: str):
        return p(quantile, configuration, "rate-to-stats", rate=rate)

    where = f"rate to stats, {rate:,} rows/s"
    return [
        row(f"{where}: p99 with both improvements", less("below 100 ms", 100, "ms"),
            "progress-rate", of(99, "async-both")),
        row(f"{where}: p50 saved by both improvements", more("85 to 86 %", 85, "%"),
            "progress-rate", reduction(of(50, "plain"), of(50, "async-both"))),
        row(f"{where}: p50 saved by asynchronous progress alone",
            more("about 65 %", 65, "%"), "progress-rate",
            reduction(of(50, "plain"), of(50, "async-progress"))),
        row(f"{where}: share of p50 that is offset management",
            Figure("most of it", unit="%"), "progress-rate",
            reduction(of(50, "plain"), of(50, "none"))),
    ]


def between_topics(rate: int, size: str = "") -> list[Row]:
    """From one topic to the other, at one rate."""

    def of(quantile: int, configuration: str):
        return p(quantile, configuration, "kafka-to-kafka", rate=rate)

    where = f"Kafka to Kafka, {rate:,} records/s"
    note = "one broker, not three"
    rows = [
        (f"{where}: p99 before", Figure("700 to 900 ms", 800, "ms"), of(99, "plain")),
        (f"{where}: p99 with both improvements", less("150 to 250 ms", 250, "ms"),
         of(99, "async-both")),
        (f"{where}: p50 saved by both improvements, in percent", more("65 to 75 %", 65, "%"),
         reduction(of(50, "plain"), of(50, "async-both"))),
        (f"{where}: p50 saved by asynchronous progress alone", Figure("200 to 250 ms", 200, "ms"),
         saving(of(50, "plain"), of(50, "async-progress"))),
        (f"{where}: p50 saved by both improvements", Figure("about 500 ms", 500, "ms"),
         saving(of(50, "plain"), of(50, "async-both"))),
    ]
    return [row(what, figure, "progress-kafka", take, size, note) for what, figure, take in rows]


def highest(where: str, experiment: str, **lines) -> Row:
    """The highest rate at which the default configuration keeps up."""
    return row(f"{where}: the highest rate that is held",
               more("1,000,000 rows/s, the most that was tried", 1_000_000, "rows/s"), experiment,
               value("highest_rate", line="highest", **lines), note="the checkpoint on a local disk")


def by_purge(route: str):
    """p50 before and after, where deleting old entries moves off the critical path."""
    return [p(50, it, route, put_latency_ms=PURGE_MS, delete_latency_ms=PURGE_MS)
            for it in ("plain", "async-purge")]


def backlog(put_ms: int) -> Row:
    """The longest time that a row waits where an entry of each log is due each second."""
    what = f"an entry of both logs is due each second, and each takes {put_ms} ms to write"
    return row(f"{what}: the longest that a row waits",
               Figure("processing waits for a backlog", unit="ms"), "backlog",
               value("max_ms", line="round", put_latency_ms=put_ms), note="`async-both`")


def four_on_three_brokers(rate: int, size: str = "") -> list[Row]:
    """Before and after, on three brokers with as many replicas."""

    def of(quantile: int, configuration: str):
        return p(quantile, configuration, "kafka-to-kafka", rate=rate, brokers=3)

    where = f"Kafka to Kafka, three brokers, 40 partitions, {rate:,} records/s"
    both = of(50, "plain"), of(50, "async-both")
    rows = [
        ("p99 before", Figure("700 to 900 ms", 800, "ms"), of(99, "plain")),
        ("p99 with both improvements", less("150 to 250 ms", 250, "ms"), of(99, "async-both")),
        ("p50 saved by asynchronous purge alone", Figure("200 to 250 ms", 200, "ms"),
         saving(of(50, "plain"), of(50, "async-purge"))),
        ("p50 saved by asynchronous progress alone", Figure("200 to 250 ms", 200, "ms"),
         saving(of(50, "plain"), of(50, "async-progress"))),
        ("p50 saved by both improvements", more("65 to 75 %", 65, "%"), reduction(*both)),
    ]
    return [row(f"{where}: {what}", figure, "progress-three-brokers", take, size)
            for what, figure, take in rows]


def on_three_brokers(rate: int, size: str = "") -> list[Row]:
    """The defaults beside the bare client, on three brokers with as many replicas."""

    def of(quantile: int, configuration: str):
        return sustained(f"p{quantile}_ms", line="round", configuration=configuration, rate=rate)

    where = f"Kafka to Kafka, three brokers, three replicas, {rate:,} records/s"
    defaults = "the engine's defaults; the checkpoint is on the local disk"
    once = "each micro-batch is a transaction; theirs is at least once"
    return [
        row(f"{where}: {who}, p{quantile}", figure, "three-brokers", of(quantile, configuration),
            size, note)
        for who, configuration, theirs, note in (
            ("the bare client", "relay", not_said("ms"), "what brokers and machine take"),
            ("at least once", "millstream", less("250 ms or less", 250, "ms"), defaults),
            ("exactly once", "millstream-exactly-once", not_said("ms"), once),
        )
        for quantile, figure in ((50, not_said("ms")), (99, theirs))
    ]


def recovered(interval_ms: int) -> list[Row]:
    """After a kill at a random moment, with an entry of progress each so many milliseconds."""
    each = f"{interval_ms / 1000:g} s"

    def of(field: str):
        return value(field, line="summary", interval_ms=interval_ms)

    return [
        row(f"an entry each {each}, killed at a random moment: {what}",
            Figure("longer with the interval", unit="ms"), "recovery", of(field), note=note)
        for what, field, note in (
            ("records processed again", "again_ms", "as the time in which they became due"),
            ("until the backlog is caught up", "caught_up_ms", "the median of several kills"),
        )
    ]


def here(quantile: int, configuration: str):
    """A quantile of an engine on this machine, the medians of the rounds of `peers`."""
    return value(f"p{quantile}_ms", line="summary", configuration=configuration)


def beside_others() -> list[Row]:
    """What people run today, beside each other on one broker, with its checkpoints on the disk."""
    return [
        row(f"one broker, 1,000 records/s: {who}, p{quantile}", not_said("ms"), "peers",
            here(quantile, configuration))
        for configuration, who in PEERS.items() for quantile in (50, 99)
    ]


def within_a_second(experiment: str, store: str, **where) -> Row:
    """A fast store or bus that alerts are written to."""
    return row(
        f"operational pipelines write to {store}: p99 at 1,000 rows/s",
        less("within a second", 1000, "ms"),
        experiment,
        value("millstream_p99_ms", line="summary", rate=1000, **where),
    )


def alerts(case: str, what: str, means: str) -> list[Row]:
    """An operational pipeline: from the moment at which an event was due until its alert came."""

    def of(field: str):
        return value(field, line="summary", case=case)

    return [
        row(f"{what}: p50", not_said("ms"), "operational", of("p50_ms"), note=means),
        row(f"{what}: p99", less("within a second", 1000, "ms"), "operational", of("p99_ms"),
            note=means),
    ]

ROWS = (
    *generated(100_000),
    *generated(500_000),
    *generated(1_000_000),
    highest("rate to stats", "progress-rate", route="rate-to-stats"),
    row("rate to stats: p50 saved by asynchronous purge alone", more("about 50 %", 50, "%"),
        "purge", reduction(*by_purge("rate-to-stats")),
        note="writing, listing and deleting take 50 ms each"),
    *between_topics(10_000, REDUCED),
    *between_topics(100_000),
    *between_topics(500_000),
    *between_topics(1_000_000),
    highest("Kafka to Kafka, one broker", "progress-kafka", route="kafka-to-kafka"),
    row("Kafka to Kafka: p50 saved by asynchronous purge alone",
        Figure("200 to 250 ms", 200, "ms"), "purge", saving(*by_purge("kafka-to-kafka")),
        note="one broker, not three; writing, listing and deleting take 50 ms each"),
    *on_three_brokers(1_000),
    *on_three_brokers(10_000),
    *on_three_brokers(50_000),
    *on_three_brokers(100_000, FULL),
    *four_on_three_brokers(5_000, REDUCED),
    *four_on_three_brokers(100_000),
    *four_on_three_brokers(500_000, FULL),
    *four_on_three_brokers(1_000_000, FULL),
    highest("Kafka to Kafka, three brokers, 40 partitions", "progress-three-brokers",
            route="kafka-to-kafka"),
    row("Spark 4.2 on this machine: p50 saved by its asynchronous progress tracking",
        Figure("200 to 250 ms", 200, "ms"), "peers",
        saving(here(50, "spark-micro-batch"), here(50, "spark-async")),
        note="Spark's own figure, with its checkpoint on the local disk"),
    row("Kafka to Kafka beside that Spark, 1,000 records/s: p99",
        less("250 ms or less", 250, "ms"), "peers", here(99, "millstream")),
    *beside_others(),
    *recovered(100),
    *recovered(1_000),
    *recovered(10_000),
    *recovered(60_000),
    backlog(100),
    backlog(700),
    unmeasured("interval between entries", "1 minute; 1,000 ms since Spark 3.4",
               "a setting; `async-progress` and `async-both` have 1,000 ms here"),
    unmeasured("asynchronous progress: stateless queries into Kafka, at least once",
               "nothing else", "a limit of theirs, without a figure"),
    unmeasured("asynchronous progress is refused with Once and AvailableNow", "refused",
               "behaviour without a figure; tests are the place for it"),
    unmeasured("5 and 7 workers of 4 cores and 61 GiB, two nodes that generate", "",
               "the set-up; here everything shares one machine"),
    within_a_second("redis", "Redis"),
    within_a_second("cassandra", "Cassandra"),
    within_a_second("pulsar", "Pulsar, exactly once", delivery="exactly-once"),
    within_a_second("pulsar", "Pulsar, at least once", delivery="at-least-once"),
    *alerts("surge", "alerts of a surge of traffic from one source",
            "requests counted by source and second, above a threshold; by webhook"),
    *alerts("leak", "alerts of personal data that a service logs",
            "the service's owner is looked up; by mail"),
    *alerts("emergency", "alerts of an emergency in an elevator",
            "the building is looked up; by webhook"),
    *alerts("overheating", "alerts of a generator that gets too hot",
            "by a topic, exactly once"),
    row("analytical pipelines: from a record to a query over its Delta table, p99",
        not_said("ms"), "freshness", value("p99_ms", line="round", rate=10_000),
        note="the table commits each second, and is on the local disk"),
)

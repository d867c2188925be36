"""Messages at 1 GiB/s into a warehouse, by Dataflow.

Theirs is a cluster; ours is compared by what a busy core carries. Theirs for a core follows from
what a worker of two cores carries at the published part of its processor time.
"""

from dataclasses import dataclass
from functools import partial

from .. import model
from ..lines import change, value
from ..model import Experiment, Row, Source, less, more

SOURCE = Source(
    "dataflow",
    "Google Cloud: Performance characteristics of Pub/Sub to BigQuery pipelines",
    "https://docs.cloud.google.com/dataflow/docs/guides/pubsub-bigquery-performance",
    "Messages of 1,005 bytes. Pub/Sub and BigQuery are fakes on this machine; Kafka and Delta are "
    "real. A worker has two cores; ours is assumed to be as busy as theirs was.",
)

row = partial(model.Row, SOURCE)
unmeasured = partial(model.unmeasured, SOURCE)

EXPERIMENTS = (
    Experiment(
        "map-only",
        "map-only --messages 500000 --repeat 1",
        "map-only --messages 5000000 --repeat 3",
    ),
    Experiment(
        "bigquery",
        "bigquery --messages 300000 --repeat 1",
        "bigquery --messages 2000000 --repeat 3",
    ),
    Experiment(
        "map-only-latency",
        "map-only --latency --rate 10000 --seconds 10 --repeat 1",
        "map-only --latency --rate 20000 --seconds 60 --repeat 3",
    ),
    Experiment(
        "windowed-lists",
        "windowed --only list --messages 400000 --repeat 1",
        "windowed --only list --messages 2000000 --repeat 3",
    ),
    Experiment(
        "windowed-lists-latency",
        "windowed --latency --only list --window-seconds 60 --rate 2000 --seconds 130 --repeat 1",
        "windowed --latency --only list --window-seconds 60 --rate 6000 --seconds 610 --repeat 3",
    ),
)

MB_PER_GIB = 1_073.741_824
CORES_OF_A_WORKER = 2


@dataclass(frozen=True)
class Pipeline:
    """What is published of one pipeline."""

    mb_per_worker: int
    part_busy: float
    workers: int

    @property
    def mb_per_core(self) -> float:
        """What a busy core carries."""
        return self.mb_per_worker / (CORES_OF_A_WORKER * self.part_busy)


EXACTLY_ONCE = Pipeline(17, 0.65, 57)
AT_LEAST_ONCE = Pipeline(21, 0.69, 48)
LISTS = Pipeline(6, 0.80, 169)


def busy(configuration: str):
    """Million bytes of messages for each second of processor time."""
    return value("mb_per_busy_core_second", line="summary", configuration=configuration)


def workers(configuration: str, part_busy: float, gib_per_s: float = 1.0):
    """Workers of two cores, busy to a part, for so many GiB a second."""
    a_worker = CORES_OF_A_WORKER * part_busy
    return change(busy(configuration), lambda mb: gib_per_s * MB_PER_GIB / (mb * a_worker))


def throughput(experiment: str, configuration: str, form: str, published: Pipeline) -> list[Row]:
    """What a core carries, and what follows for 1 GiB/s."""
    per_core = f"{published.mb_per_core:.3g} MB/s (from {published.mb_per_worker} for each worker)"
    return [
        row(f"{form}: for each busy core",
            more(per_core, published.mb_per_core, "MB/s"), experiment, busy(configuration)),
        row(f"{form}: workers for 1 GiB/s, busy to {published.part_busy:.0%}",
            less(str(published.workers), published.workers, "workers"), experiment,
            workers(configuration, published.part_busy)),
    ]


def latency(experiment: str, configuration: str, form: str, published: tuple, note: str = ""):
    """P50, P95 and P99 of all stages."""
    return [
        row(f"{form}: p{quantile}", less(f"{figure:,} ms", figure, "ms"), experiment,
            value(f"p{quantile}_ms", line="summary", configuration=configuration), note=note)
        for quantile, figure in zip((50, 95, 99), published)
    ]


ROWS = (
    *throughput("map-only", "delta", "map-only, exactly once, Kafka to Delta", EXACTLY_ONCE),
    *throughput("map-only", "kafka-at-least-once", "map-only, at least once, Kafka to Kafka",
                AT_LEAST_ONCE),
    *throughput("bigquery", "pubsub-exactly-once", "map-only, exactly once, Pub/Sub to BigQuery",
                EXACTLY_ONCE),
    *throughput("bigquery", "pubsub-at-least-once", "map-only, at least once, Pub/Sub to BigQuery",
                AT_LEAST_ONCE),
    *throughput("windowed-lists", "list", "lists by key and minute, exactly once, to Delta", LISTS),
    row("estimate: workers for 100 MiB/s, map-only, exactly once",
        less("5.7", 5.7, "workers"), "map-only",
        workers("delta", EXACTLY_ONCE.part_busy, 100 / 1024)),
    *latency("map-only-latency", "delta", "map-only, exactly once, to Delta", (800, 2000, 2800),
             "the table commits each second"),
    *latency("map-only-latency", "kafka-exactly-once", "map-only, exactly once, to Kafka",
             (800, 2000, 2800)),
    *latency("map-only-latency", "kafka-at-least-once", "map-only, at least once, to Kafka",
             (160, 250, 410)),
    *latency("windowed-lists-latency", "list", "lists by key and minute", (3400, 13000, 25000),
             "without the wait for a window's end, as theirs"),
    unmeasured("map-only into BigQuery: p50, p95, p99", "800, 2,000, 2,800 ms",
               "`bigquery` has no `--latency`, and a fake's latency would say nothing of the real "
               "service"),
    unmeasured("SECU an hour: map-only exactly once, at least once, lists", "125, 46, 354",
               "a unit of that service's bills"),
    unmeasured("1,000,000 messages/s for a day, three runs", "1 GiB/s",
               "a machine of two cores carries less; `windowed --soak` is the longest run here"),
    unmeasured("twice the input needs twice the workers, small jobs apart", "",
               "one machine; no benchmark adds workers"),
    unmeasured("machines, sizes of messages, own code, aggregation, keys and windows "
               "change the result", "", "named without figures; `windowed --curve` varies keys"),
    unmeasured("costs by region, hours, workers, machine and disk", "",
               "what that service asks for; this one has no price"),
    unmeasured("busier workers cost less, and the slowest messages take longer", "",
               "no benchmark varies how busy the engine is at one latency"),
    unmeasured("streams of the Storage Write API; a flush every", "200 and 500; 5 s",
               "settings, without a figure of their own; the fake has no limit of streams"),
    unmeasured("workers at the start and at most", "70, 30, 180; 100, 100, 250",
               "the set-up of a service that adds workers"),
    unmeasured("the generator: 1,000,000 messages/s by 70 to 100 workers", "",
               "the topic is filled beforehand; its filling is not timed"),
)

"""An OLAP database that borrows executors from AWS Lambda.

Here runners are processes of one machine, each with a network card of its own, of a bandwidth and a
latency that are given. Processors are shared, so what is gained is gained from cards and memory.
"""

from functools import partial

from .. import model
from ..lines import change, value
from ..model import Experiment, Figure, Source, less, more

SOURCE = Source(
    "luft",
    "Luft, Airbridge's OLAP database, with executors on AWS Lambda",
    "https://www.airbridge.io/blog/introducing-luft",
    "The link introduces Luft; we know of no public address of the report on Lambda. Its queries, "
    "nodes, bytes and formats are not published. Here 8 or 16 runners stand for 512 functions.",
)

row = partial(model.Row, SOURCE)
unmeasured = partial(model.unmeasured, SOURCE)

EXPERIMENTS = (
    Experiment(
        "luft-scan",
        "olap --experiment scan --rows 300000 --runners 8,16 --repeat 3 --bandwidth-mb 0.5",
        "olap --experiment scan --rows 2000000 --runners 16,32,64 --repeat 5",
    ),
    Experiment(
        "luft-group-by",
        "olap --experiment group-by --rows 300000 --runners 8 --repeat 2 --bandwidth-mb 20 "
        "--latency-ms 5",
        "olap --experiment group-by --rows 4000000 --runners 8 --repeat 5 --bandwidth-mb 50 "
        "--latency-ms 5",
    ),
    Experiment(
        "luft-small",
        "olap --experiment small --rows 300000 --runners 8 --repeat 5 --bandwidth-mb 20 "
        "--latency-ms 5",
        "olap --experiment small --rows 2000000 --runners 8 --repeat 20 --bandwidth-mb 20 "
        "--latency-ms 5",
    ),
)


def scan(path: str, scale: float = 1.0):
    """Of the scan with 16 runners."""
    return value(path, scale, line="summary", experiment="scan", runners=16)


def group_by(path: str):
    """Of the grouping with 8 runners."""
    return value(path, line="summary", experiment="group-by", runners=8)


def in_percent_more(ratio: float) -> float:
    """A ratio as a change."""
    return 100.0 * (ratio - 1.0)


ROWS = (
    row("a heavy scan with runners: how many times as fast",
        more("68 s to 44 s: 1.55", 68 / 44, "times"), "luft-scan", scan("speedup"),
        note="16 runners"),
    row("response times of it vary: p95 over p50", less("up to 1.3", 1.3, "times"),
        "luft-scan", scan("p95_to_p50"), note="16 runners"),
    row("of the bytes that were read, those that were needed", more("1.46 %", 1.46, "%"),
        "luft-scan", change(scan("bytes_to_needed"), lambda ratio: 100.0 / ratio)),
    row("cost of the example query", less("about 0.03 USD", 0.03, "USD"), "luft-scan",
        scan("cost_usd"), note="computed from prices, for 16 functions"),
    row("processor time of the node in the scan", Figure("falls", unit="%"), "luft-scan",
        change(scan("node_cpu_to_local"), in_percent_more), note="change"),
    row("network traffic of the scan", Figure("a little more", unit="%"), "luft-scan",
        change(scan("bytes_to_local"), in_percent_more), note="change"),
    row("memory of a node, grouping by user with runners: of what it is without",
        less("47 GiB and more to about 23: 0.49", 23 / 47, "times"), "luft-group-by",
        group_by("node_rss_to_local"), note="8 runners"),
    row("processor time of the node in the grouping", Figure("falls", unit="%"),
        "luft-group-by", change(group_by("node_cpu_to_local"), in_percent_more), note="change"),
    row("a small query: how many times as fast", more("nothing gained: 1", 1.0, "times"),
        "luft-small", value("speedup", line="summary", experiment="small", runners=8),
        note="8 runners, of which the node may use none"),
    unmeasured("512 functions on AWS Lambda", "512",
               "runners are processes here; no benchmark has an account of AWS"),
    unmeasured("a whole node as a function: not addressable, and out of descriptors",
               "1,024 descriptors", "an attempt that failed; a runner here connects to one node, "
               "and no benchmark counts its descriptors"),
    unmeasured("runners spare a node the encoding and decoding of messages", "",
               "no benchmark counts messages or the time of their encoding"),
    unmeasured("two virtual processors need so much memory", "1,770 MiB",
               "a property of AWS Lambda"),
    unmeasured("a file of 1 GiB is downloaded and processed by a function", "20 to 30 s",
               "runners read the ranges that they need, and no benchmark downloads whole files"),
    unmeasured("a call finds no data of an earlier one; S3 Express did not help", "",
               "no benchmark has a store of S3 Express"),
    unmeasured("functions for every query would be dearer than machines", "",
               "no trace of queries is published"),
    unmeasured("time until more capacity helps",
               "a machine tens of seconds, a function a few",
               "neither nodes nor functions are started in a cloud here"),
    unmeasured("load that peaks at certain hours; nodes by load and by time of day", "",
               "no benchmark has a load that changes, or adds nodes"),
)

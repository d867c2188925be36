"""Whole runs, with a stand-in that prints recorded lines."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from runner import main, place, work
from runner.experiments import EXPERIMENTS, ROWS
from runner.model import REDUCED
from runner.results import result
from runner.state import Kept
from runner.tests.case import Case

FAKE = Path(__file__).resolve().parent / "fake_bench"


class Run(Case):
    """A directory, and the environment of one run."""

    def setUp(self):
        self.directory = Path(self.enter(tempfile.TemporaryDirectory()))
        self.calls = self.directory / "calls"
        environment = {"FAKE_CALLS": str(self.calls), "FAKE_FAIL": ""}
        self.enter(mock.patch.dict(os.environ, environment))
        here = {"kernel": "Linux 6.1", "java": 'openjdk version "17.0.9"'}
        self.enter(mock.patch.object(place, "system", lambda: here))
        self.enter(mock.patch.object(work, "engines", lambda: "/engines"))
        self.commit("abc1234")

    def commit(self, name: str):
        """The tree is at this commit."""
        self.enter(mock.patch.object(place, "commit", lambda root: name))

    def run_sources(self, *flags: str) -> int:
        """Gives the exit status."""
        self.said = io.StringIO()
        places = ["--out", str(self.directory), "--state", str(self.directory / "state")]
        with contextlib.redirect_stderr(self.said), contextlib.redirect_stdout(self.said):
            return main.main(["sources", "--bench", str(FAKE), *places, *flags])

    def called(self) -> list[str]:
        """The command lines so far."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def page(self) -> str:
        """The page."""
        return (self.directory / "sources.md").read_text()

    def row(self, what: str) -> str:
        """The line of the page that begins with this."""
        return next(it for it in self.page().splitlines() if it.startswith(f"| {what}"))


class Sources(Run):
    """`bench/run sources`."""

    def test_the_page_has_every_row_with_its_figure_and_where_it_comes_from(self):
        self.assertEqual(self.run_sources(), 0, self.said.getvalue())
        self.assertEqual(len(self.called()), len(EXPERIMENTS))
        page = self.page()
        for row in ROWS:
            self.assertIn(f"| {row.what}", page)
        self.assertNotIn("FAILED", page)
        lists = self.row("lists by key and minute, exactly once, to Delta: for each busy core")
        self.assertIn("| 63.9 MB/s | 17 (more is better) |", lists)
        command = "`windowed --only list --messages 400000 --repeat 1`"
        self.assertRegex(lists, rf"\| {command} \| abc1234 \| [A-Z] \|$")
        self.assertIn("- A: 2 cores (", page)
        self.assertIn('Linux 6.1, Java: openjdk version "17.0.9", broker: Apache Kafka', page)
        saved = self.row("rate to stats, 100,000 rows/s: p50 saved by both improvements")
        self.assertIn("| 99.6 % | 1.17 (more is better) |", saved)
        purge = self.row("rate to stats: p50 saved by asynchronous purge alone")
        self.assertIn("| 33.3 % | 0.667 (more is better) |", purge)
        bill = self.row("SECU an hour: map-only exactly once, at least once, lists")
        self.assertIn("| not measured: a unit of that service's bills |", bill)
        three = "Kafka to Kafka, three brokers, 40 partitions"
        full = self.row(f"{three}, 1,000,000 records/s: p99 before")
        self.assertIn("| not measured: only with --full |", full)
        late = self.row("Kafka to Kafka, 1,000,000 records/s: p99 before")
        self.assertIn("| not measured: the machine does not sustain this rate |", late)

    def test_the_page_for_browsers_is_whole_and_loads_nothing(self):
        self.run_sources()
        html = (self.directory / "sources.html").read_text()
        for loads in ("<script", "<img", "src=", "@import", "url("):
            self.assertNotIn(loads, html)
        self.assertEqual(html.count("<svg"), 4)
        begin = html.index("<svg")
        svg = ElementTree.fromstring(html[begin:html.index("</svg>") + len("</svg>")])
        bars = [it for it in svg.iter("rect")]
        self.assertGreater(len(bars), 8)
        self.assertTrue(all(float(bar.get("width")) >= 1.0 for bar in bars))
        self.assertEqual(html.count("<tr>"), len(ROWS) + 4)

    def test_lines_are_kept_with_their_experiment(self):
        self.run_sources("--only", "redis")
        lines = (self.directory / "sources.jsonl").read_text().splitlines()
        recorded = (FAKE.parent / "recorded/redis.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines]
        self.assertEqual({line.pop("experiment") for line in told}, {"redis"})
        self.assertEqual(told, [json.loads(line) for line in recorded])

    def test_a_run_that_is_told_to_end_leaves_nothing_running(self):
        command = [sys.executable, "-B", str(place.ROOT / "bench/run"), "sources", "--bench",
                   str(FAKE), "--out", str(self.directory), "--only", "redis",
                   "--state", str(self.directory / "state")]
        process = self.directory / "calls.pid"
        environment = dict(os.environ, FAKE_WAIT="redis")
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as run:
            while run.poll() is None and not (process.exists() and process.read_text()):
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(), 128 + signal.SIGTERM)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(process.read_text()), signal.SIGTERM)

    def test_what_has_finished_is_not_run_again_at_the_same_commit(self):
        self.run_sources("--only", "redis", "cassandra")
        self.assertEqual(len(self.called()), 2)
        self.run_sources("--only", "redis", "pulsar")
        self.assertEqual([line.split()[0] for line in self.called()],
                         ["redis", "cassandra", "pulsar"])
        self.assertIn("within a second", self.row("operational pipelines write to Cassandra"))
        self.assertIn("not run yet", self.row("a heavy scan with runners"))
        self.run_sources("--only", "redis", "--again")
        self.assertEqual(len(self.called()), 4)
        self.run_sources("--only", "redis", "--full")
        self.assertEqual(self.called()[-1], "redis --rate 1000,10000 --seconds 30 --repeat 3")
        self.assertNotIn("Kafka to Kafka, 10,000 records/s", self.page())
        self.commit("def5678")
        self.run_sources("--only", "redis")
        self.assertEqual(len(self.called()), 6)
        self.assertIn("| def5678 |", self.row("operational pipelines write to Redis"))
        self.assertIn("| abc1234 |", self.row("operational pipelines write to Cassandra"))

    def test_a_failed_experiment_is_named_and_the_others_run(self):
        os.environ["FAKE_FAIL"] = "cassandra"
        names = ("--only", "redis", "cassandra", "pulsar")
        self.assertEqual(self.run_sources(*names), 1)
        self.assertEqual(len(self.called()), 3)
        failed = "exit status 1: the server did not answer"
        self.assertIn(f"FAILED: cassandra failed: {failed}",
                      self.row("operational pipelines write to Cassandra"))
        self.assertIn(f"\n- cassandra failed: {failed}\n", self.page())
        self.assertIn(f"failed: cassandra failed: {failed}\n", self.said.getvalue())
        os.environ["FAKE_FAIL"] = ""
        self.assertEqual(self.run_sources(*names), 0)
        self.assertEqual([line.split()[0] for line in self.called()[3:]], ["cassandra"])

    def test_the_other_engines_directory_is_handed_on(self):
        self.run_sources("--only", "delta-peers")
        self.assertTrue(self.called()[0].endswith("--engines /engines"), self.called())
        row = self.row("delta-spark on this machine, one file")
        self.assertIn('--engines "$(tests/lake/install)"`', row)

    def test_an_experiment_that_does_not_exist_is_refused(self):
        self.assertEqual(self.run_sources("--only", "nothing"), 2)
        self.assertEqual(self.called(), [])
        self.assertIn("no experiment nothing", self.said.getvalue())


class Rows(unittest.TestCase):
    """Rows without a figure."""

    def test_a_rate_that_is_not_sustained_is_not_measured_and_no_failure(self):
        row = next(row for row in ROWS if row.experiment == "freshness")
        line = {"line": "round", "rate": 10_000, "p99_ms": 5_000.0, "kept_up": False}
        late = result(row, Kept("abc1234", "freshness", lines=[line]), REDUCED)
        self.assertEqual((late.ours, late.failed), (None, False))
        self.assertIn("does not sustain", late.reason)
        del line["p99_ms"]
        renamed = result(row, Kept("abc1234", "freshness", lines=[line]), REDUCED)
        self.assertTrue(renamed.failed)
        self.assertIn("no line has p99_ms", renamed.reason)


class Output(unittest.TestCase):
    """What a benchmark printed."""

    def test_what_is_no_result_is_refused(self):
        good = '{"line": "round", "versions": {"build": "release"}}\n'
        self.assertEqual(len(work.parse(good * 2)), 2)
        for text, problem in ((good + "half a li", "line 2 .* is not JSON"),
                              ("7\n", "line 1 .* is no object"),
                              ("", "it printed no line"),
                              (good.replace('"round"', '"round", "line": {}'), "key line twice"),
                              (good.replace("release", "debug"), "debug build")):
            with self.assertRaisesRegex(work.Failed, problem):
                work.parse(text)

    def test_a_program_that_does_not_end_is_ended(self):
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory, "log")
            with self.assertRaisesRegex(work.Failed, "did not end within"):
                work.output(["sleep", "60"], "abc1234", log, 0.05)
            with self.assertRaisesRegex(work.Failed, "does not start"):
                work.output([str(Path(directory, "none"))], "abc1234", log, 1.0)

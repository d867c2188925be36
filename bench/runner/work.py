"""Runs experiments, one after the other, and keeps what they give."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from . import place
from .model import FULL, Experiment
from .state import Kept, State

# After which a run that does not end is given up.
LIMIT_S = {FULL: 12 * 3600}
LIMIT_REDUCED_S = 3600
# What a process that was told to end may take for that.
ENDING_S = 20
# What stands for the directory of the other engines, and how a person would write it.
ENGINES = "{engines}"
INSTALL = '"$(tests/lake/install)"'


class Failed(Exception):
    """An experiment gave nothing that can be used."""


def say(text: str) -> None:
    """Tells the person who waits."""
    print(text, file=sys.stderr, flush=True)


def build() -> Path:
    """Builds both programs; gives the benchmark's."""
    command = ["cargo", "build", "--release", "-p", "millstream", "-p", "millstream-bench"]
    subprocess.run(command, cwd=place.ROOT, check=True)
    target = Path(place.ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
    return target / "release" / "millstream-bench"


def engines() -> str:
    """The directory of the other engines that write Delta tables; installs them the first time."""
    done = subprocess.run([place.ROOT / "tests/lake/install"], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Failed("tests/lake/install failed")
    return done.stdout.decode().strip()


def stop(process: subprocess.Popen) -> None:
    """Ends a process and what it has started in its group: first by asking, then by force, as
    what it started may be there when it has gone itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(ENDING_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def output(command: list[str], commit: str, log: Path, limit_s: float) -> str:
    """What a program prints; its standard error goes to `log`."""
    environment = dict(os.environ, MILLSTREAM_COMMIT=commit)
    with open(log, "wb") as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=errors, env=environment, start_new_session=True)
        except OSError as error:
            raise Failed(f"{command[0]} does not start: {error.strerror}") from error
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            stop(process)
            raise Failed(f"it did not end within {limit_s:.0f} s") from None
        except BaseException:
            stop(process)
            raise
        finally:
            process.stdout.close()
    if process.returncode != 0:
        raise Failed(f"exit status {process.returncode}: {last_words(log)}")
    return said.decode(errors="replace")


def last_words(log: Path) -> str:
    """The last error that a program printed, or its last line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error: ")]
    return (told or lines or ["it said nothing"])[-1].removeprefix("error: ").strip()


def once(pairs: list[tuple]) -> dict:
    """An object. Of a key that is there twice a reader would see one value, and not know which."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Failed(f"a line of its output has the key {twice} twice")
    return found


def parse(text: str) -> list[dict]:
    """Result lines of a release build."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            found = json.loads(line, object_pairs_hook=once)
        except ValueError as error:
            raise Failed(f"line {number} of its output is not JSON") from error
        if not isinstance(found, dict):
            raise Failed(f"line {number} of its output is no object")
        if found.get("versions", {}).get("build") != "release":
            raise Failed("figures of a debug build mean nothing: build with --release")
        lines.append(found)
    if not lines:
        raise Failed("it printed no line")
    return lines


class Runner:
    """Experiments of one size, at one commit."""

    def __init__(self, program: Path, state: State, commit: str, size: str):
        self.program = program
        self.state = state
        self.commit = commit
        self.size = size
        self.system = place.system()

    def run(self, experiment: Experiment, again: bool) -> None:
        """Runs it unless it is kept from this commit; keeps what it gave, or why it gave nothing.

        What another command line gave is not what this one asks for.
        """
        arguments = experiment.arguments(self.size)
        command = " ".join(["millstream-bench", *arguments]).replace(ENGINES, INSTALL)
        kept = self.state.read(experiment.name)
        is_same = kept and (kept.commit, kept.command) == (self.commit, command)
        if is_same and not kept.error and not again:
            say(f"{experiment.name}: kept from {kept.when}")
            return
        say(f"{experiment.name}: {command}")
        began = time.monotonic()
        kept = Kept(self.commit, command, datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M"),
                    system=self.system)
        try:
            kept.lines = self.lines(experiment, arguments)
        except Failed as error:
            kept.error = str(error)
            say(f"{experiment.name}: FAILED: {error}")
        kept.seconds = round(time.monotonic() - began, 1)
        self.state.write(experiment.name, kept)

    def lines(self, experiment: Experiment, arguments: list[str]) -> list[dict]:
        """Its result lines."""
        if ENGINES in arguments:
            directory = engines()
            arguments = [directory if word == ENGINES else word for word in arguments]
        log = self.state.path(experiment.name, "log")
        log.parent.mkdir(parents=True, exist_ok=True)
        limit_s = LIMIT_S.get(self.size, LIMIT_REDUCED_S)
        return parse(output([str(self.program), *arguments], self.commit, log, limit_s))

"""`bench/run sources`: runs the experiments of the sources and writes their page."""

import json
import subprocess
import sys
from pathlib import Path

from . import page, place, web, words, work
from .experiments import EXPERIMENTS, ROWS, SOURCES
from .model import FULL, REDUCED
from .results import lines_of, results
from .state import State
from .work import Runner, say


def add_flags(parser) -> None:
    """Its flags."""
    parser.add_argument("--full", action="store_true",
                        help="the sources' rates and sizes, in hours; without it minutes")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[],
                        help="run these experiments; the page still has all that is kept")
    parser.add_argument("--again", action="store_true",
                        help="run what is kept from this commit, too")
    parser.add_argument("--list", action="store_true", help="print the experiments, and run none")
    parser.add_argument("--out", type=Path, default=place.ROOT / "bench/results", metavar="DIR",
                        help="where sources.md, sources.html and sources.jsonl go")
    parser.add_argument("--state", type=Path, default=place.ROOT / "target/bench-sources",
                        metavar="DIR", help="where lines of finished experiments are kept")
    parser.add_argument("--bench", type=Path, metavar="PROGRAM",
                        help="a millstream-bench that was built from this tree already")


def run(flags) -> int:
    """Gives the exit status."""
    size = FULL if flags.full else REDUCED
    if flags.list:
        for experiment in EXPERIMENTS:
            print(f"{experiment.name}: {' '.join(experiment.arguments(size))}")
        return 0
    unknown = set(flags.only) - {experiment.name for experiment in EXPERIMENTS}
    if unknown:
        say(f"error: no experiment {', '.join(sorted(unknown))}; see --list")
        return 2
    commit = place.commit(place.ROOT)
    try:
        program = flags.bench.resolve() if flags.bench else work.build()
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"error: building failed: {error}")
        return 2
    state = State(flags.state, size)
    runner = Runner(program, state, commit, size)
    for experiment in EXPERIMENTS:
        if not flags.only or experiment.name in flags.only:
            runner.run(experiment, flags.again)
    return write(flags.out, state, size)


def write(directory: Path, state: State, size: str) -> int:
    """Writes the page; gives 1 if an experiment failed, or a figure could not be taken."""
    found = results(ROWS, state, size)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sources.md").write_text(page.markdown(SOURCES, found, size))
    (directory / "sources.html").write_text(web.html(SOURCES, found, size))
    lines = "".join(json.dumps(line) + "\n" for line in lines_of(found, state))
    (directory / "sources.jsonl").write_text(lines)
    say(f"{directory / 'sources.md'}, sources.html, sources.jsonl")
    failed = words.failures(found)
    for text in failed:
        print(f"failed: {text}", file=sys.stderr)
    return 1 if failed else 0

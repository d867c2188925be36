"""Rows with our figures, from what is kept."""

from dataclasses import dataclass
from typing import Optional

from . import place
from .lines import NotKeptUp, Untaken
from .model import FULL, Row
from .state import Kept, State


@dataclass(frozen=True)
class Result:
    """A row of the page. Without `ours` there is a `reason`."""

    row: Row
    ours: Optional[float] = None
    reason: str = ""
    # Something went wrong, in contrast to what cannot be measured.
    failed: bool = False
    command: str = ""
    commit: str = ""
    machine: str = ""

    @property
    def ratio(self) -> Optional[float]:
        """Ours over theirs."""
        value = self.row.figure.value
        return None if self.ours is None or not value else self.ours / value

    @property
    def times_better(self) -> Optional[float]:
        """How many times better ours is; None where neither is better."""
        better = self.row.figure.better
        if self.ratio is None or self.ratio <= 0 or better is None:
            return None
        return self.ratio if better == "more" else 1.0 / self.ratio


def result(row: Row, kept: Optional[Kept], size: str) -> Result:
    """Our figure for a row."""
    if row.reason:
        return Result(row, reason=row.reason)
    if row.size == FULL and size != FULL:
        return Result(row, reason="only with --full")
    if kept is None:
        return Result(row, reason="not run yet", command=row.experiment)
    if kept.error:
        return Result(row, reason=f"{row.experiment} failed: {kept.error}", failed=True,
                      command=kept.command, commit=kept.commit)
    machine = place.machine(kept.lines, kept.system)
    facts = {"command": kept.command, "commit": kept.commit, "machine": machine}
    try:
        return Result(row, row.take(kept.lines), **facts)
    except NotKeptUp as error:
        return Result(row, reason=str(error), **facts)
    except (Untaken, ZeroDivisionError, KeyError) as error:
        return Result(row, reason=f"{row.experiment}: {error}", failed=True, **facts)


def results(rows: tuple[Row, ...], state: State, size: str) -> list[Result]:
    """All rows of a page. Those of the other size that stand for a smaller rate are left out."""
    shown = [row for row in rows if size != FULL or row.size in ("", FULL)]
    kept = {name: state.read(name) for name in {row.experiment for row in shown} if name}
    return [result(row, kept.get(row.experiment), size) for row in shown]


def lines_of(rows: list[Result], state: State) -> list[dict]:
    """The lines behind the figures, each with its experiment."""
    names = dict.fromkeys(found.row.experiment for found in rows if found.row.experiment)
    kept = {name: state.read(name) for name in names}
    return [{"experiment": name, **line} for name, it in kept.items() if it for line in it.lines]

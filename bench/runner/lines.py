"""Figures from result lines.

Each function here gives a function from the lines of an experiment to one number. What a line has
to have is named, so that a field that was renamed is an error and never a figure of something else.
"""

from statistics import median
from typing import Callable

Take = Callable[[list[dict]], float]


class Untaken(Exception):
    """The lines do not have the figure."""


class NotKeptUp(Exception):
    """The machine did not sustain the rate, so that latency means nothing."""


def field(line: dict, path: str):
    """The value at a path such as `steady.checkpoint_ms_median`, or None."""
    found = line
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def words(path: str, where: dict) -> str:
    """A request in words, for errors."""
    conditions = ", ".join(f"{name} = {value}" for name, value in where.items())
    return f"{path} where {conditions}" if where else path


def matching(lines: list[dict], path: str, where: dict) -> list[dict]:
    """The lines that have a number at a path, among those with the given values."""
    same = [line for line in lines if all(field(line, key) == it for key, it in where.items())]
    found = [line for line in same if isinstance(field(line, path), (int, float))]
    if not found:
        raise Untaken(f"no line has {words(path, where)}")
    if len(found) > 1 and any(line.get("line") == "summary" for line in found):
        raise Untaken(f"{len(found)} lines have {words(path, where)}: which of them?")
    return found


def value(path: str, scale: float = 1.0, **where) -> Take:
    """The median over the rounds."""

    def take(lines: list[dict]) -> float:
        found = matching(lines, path, where)
        late = [line for line in found if line.get("kept_up") is False]
        if 2 * len(late) > len(found):
            raise NotKeptUp("the machine does not sustain this rate")
        return scale * median(field(line, path) for line in found)

    return take


def sustained(path: str, **where) -> Take:
    """As `value`, for lines that tell their throughput and not whether it was enough."""

    def take(lines: list[dict]) -> float:
        for line in matching(lines, path, where):
            if line["throughput_rows_per_s"] < 0.9 * line["rate"]:
                raise NotKeptUp("the machine does not sustain this rate")
        return value(path, **where)(lines)

    return take


def change(take: Take, of: Callable[[float], float]) -> Take:
    """A figure that is computed from another one."""
    return lambda lines: of(take(lines))


def saving(before: Take, after: Take) -> Take:
    """How much less, in the same unit."""
    return lambda lines: before(lines) - after(lines)


def reduction(before: Take, after: Take) -> Take:
    """How much less, in percent of what it was."""
    return lambda lines: 100.0 * (1.0 - after(lines) / before(lines))

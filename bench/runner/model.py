"""What an experiment is, and what a row of the page is."""

from dataclasses import dataclass
from typing import Callable, Optional

REDUCED = "reduced"
FULL = "full"


@dataclass(frozen=True)
class Source:
    """A public text whose experiments are repeated."""

    key: str
    title: str
    link: str = ""
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """One call of `millstream-bench`, in two sizes.

    `{engines}` in an argument stands for the directory that tests/lake/install prints.
    """

    name: str
    reduced: str
    full: str

    def arguments(self, size: str) -> list[str]:
        """The arguments of one size."""
        return (self.full if size == FULL else self.reduced).split()


@dataclass(frozen=True)
class Figure:
    """What a source states. `value` is what ours is divided by; some statements have none."""

    text: str
    value: Optional[float] = None
    unit: str = ""
    # "less" or "more": which is better. None where neither is.
    better: Optional[str] = None


@dataclass(frozen=True)
class Row:
    """A statement of a source, with the way to our figure, or with the reason why there is none."""

    source: Source
    what: str
    figure: Figure
    experiment: str = ""
    take: Optional[Callable[[list[dict]], float]] = None
    # Some are only of one size: the smaller one cannot have the rates of the larger.
    size: str = ""
    note: str = ""
    reason: str = ""


def less(text: str, value: float, unit: str) -> Figure:
    """A figure of which less is better."""
    return Figure(text, value, unit, "less")


def more(text: str, value: float, unit: str) -> Figure:
    """A figure of which more is better."""
    return Figure(text, value, unit, "more")


def not_said(unit: str) -> Figure:
    """A figure that the source does not tell."""
    return Figure("not said", unit=unit)


def unmeasured(source: Source, what: str, text: str, reason: str) -> Row:
    """A statement that no benchmark of ours measures."""
    return Row(source, what, Figure(text), reason=reason)

"""Numbers and texts as both pages show them."""

from math import floor, log10

from .results import Result

DIGITS = 3
HEADS = ("what", "source", "here", "ratio", "command", "commit", "machine")


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    decimals = max(0, DIGITS - 1 - floor(log10(abs(value))))
    text = f"{round(value, DIGITS - 1 - floor(log10(abs(value)))):,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ours(found: Result) -> str:
    """Our figure, or why there is none."""
    if found.ours is None:
        return f"{'FAILED' if found.failed else 'not measured'}: {found.reason}"
    unit = found.row.figure.unit
    return f"{number(found.ours)} {unit}".strip()


def ratio(found: Result) -> str:
    """Ours over theirs, and which way is better."""
    if found.ratio is None:
        return ""
    better = found.row.figure.better
    return number(found.ratio) + (f" ({better} is better)" if better else "")


def what(found: Result) -> str:
    """The statement, with what should be known of our figure."""
    note = found.row.note
    return f"{found.row.what} ({note})" if note else found.row.what


def cells(found: Result, letters: dict[str, str]) -> list[str]:
    """A row of a table, under `HEADS`."""
    return [what(found), found.row.figure.text, ours(found), ratio(found), found.command,
            found.commit, letters.get(found.machine, "")]


def failures(found: list[Result]) -> list[str]:
    """What has failed, each once; a reason begins with the experiment."""
    return list(dict.fromkeys(it.reason for it in found if it.failed))


def machines(found: list[Result]) -> dict[str, str]:
    """A letter for each machine."""
    names = dict.fromkeys(it.machine for it in found if it.machine)
    return {name: chr(ord("A") + index) for index, name in enumerate(names)}


def counts(found: list[Result]) -> str:
    """How many rows have a figure."""
    measured = sum(it.ours is not None for it in found)
    failed = sum(it.failed for it in found)
    rest = len(found) - measured - failed
    return f"{len(found)} rows: {measured} measured, {failed} failed, {rest} not measured"


ABOUT = (
    "What the sources of this project report, and what is measured here. Their figures come from "
    "other machines, mostly from clusters, so a ratio is no claim about one machine: it says "
    "whether the same experiment gives the same picture. The ratio is ours over theirs. Lines of "
    "all runs are in sources.jsonl."
)


def size(full: bool) -> str:
    """What the page was made from."""
    if full:
        return "Full size."
    return "Reduced size: minutes on two cores, one round each; --full has the source's rates."

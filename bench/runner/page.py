"""The page as Markdown."""

from . import words
from .model import FULL, Source
from .results import Result

COMMAND = words.HEADS.index("command")


def cell(text: str) -> str:
    """Text that does not end a cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def line(found: Result, letters: dict[str, str]) -> str:
    """A row of a table."""
    cells = words.cells(found, letters)
    if found.command:
        cells[COMMAND] = f"`{found.command.removeprefix('millstream-bench ')}`"
    return "| " + " | ".join(cell(text) for text in cells) + " |"


def section(source: Source, found: list[Result], letters: dict[str, str]) -> str:
    """A source with its rows."""
    title = f"[{source.title}]({source.link})" if source.link else source.title
    rows = [line(it, letters) for it in found if it.row.source == source]
    head = [f"| {' | '.join(words.HEADS)} |", "|---" * len(words.HEADS) + "|"]
    name = f"## {source.key.capitalize()}"
    return "\n".join([name, "", title, "", source.note, "", *head, *rows])


def failures(found: list[Result]) -> list[str]:
    """What has failed."""
    told = [f"- {reason}" for reason in words.failures(found)]
    return ["", "Failed:", "", *told] if told else []


def markdown(sources: tuple[Source, ...], found: list[Result], size: str) -> str:
    """The whole page."""
    letters = words.machines(found)
    machines = [f"- {letter}: {name}" for name, letter in letters.items()]
    head = ["# Experiments of the sources", "",
            f"Written by `bench/run sources{' --full' if size == FULL else ''}`; not to be edited.",
            words.ABOUT, "", f"{words.size(size == FULL)} {words.counts(found)}."]
    head += ["", "Machines:", "", *machines] if machines else []
    sections = [section(source, found, letters) for source in sources]
    return "\n".join(head + failures(found)) + "\n\n" + "\n\n".join(sections) + "\n"

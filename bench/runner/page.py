"""The page as Markdown."""

from . import words
from .model import FULL, Source
from .results import Result

HEAD = ("| what | source | here | ratio | command | commit | machine |\n"
        "|---|---|---|---|---|---|---|")


def cell(text: str) -> str:
    """Text that does not end a cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def line(found: Result, letters: dict[str, str]) -> str:
    """A row of a table."""
    command = f"`{found.command.removeprefix('millstream-bench ')}`" if found.command else ""
    cells = [words.what(found), found.row.figure.text, words.ours(found), words.ratio(found),
             command, found.commit, letters.get(found.machine, "")]
    return "| " + " | ".join(cell(text) for text in cells) + " |"


def section(source: Source, found: list[Result], letters: dict[str, str]) -> str:
    """A source with its rows."""
    title = f"[{source.title}]({source.link})" if source.link else source.title
    rows = [line(it, letters) for it in found if it.row.source == source]
    return "\n".join([f"## {source.key.capitalize()}", "", title, "", source.note, "", HEAD, *rows])


def failures(found: list[Result]) -> list[str]:
    """The failed experiments, by name."""
    told = dict.fromkeys(f"- {it.row.experiment}: {it.reason}" for it in found if it.failed)
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

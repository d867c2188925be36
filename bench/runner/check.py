"""`bench/run check`: are the figures of README.md measured, and not too old?

Behind each table of figures stands a comment that names where they come from:

    <!-- figures: bench/results/FILE.jsonl at COMMIT, summary lines, columns p50_ms, p99_ms -->

`summary lines of NAME` are those of one experiment, of a file that has several. Figures of a row must all be in one line of that kind, rounded as they are written; `4.3; 3.3` in
each column are those of two lines. A table of figures without such a comment is a complaint.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Optional

from . import place
from .lines import field

COMMITS_MAX = 100
NUMBER = r"\d[\d,]*(?:\.\d+)?"
FIGURES = re.compile(rf"\**({NUMBER}(?:; {NUMBER})*)\**")
COMMENT = re.compile(
    r"<!-- figures: (?P<file>\S+) at (?P<commit>[0-9a-f]+), (?P<kind>\w+) lines"
    r"(?: of (?P<experiment>[\w-]+))?, columns (?P<columns>[\w., ]+) -->"
)


def figures(cell: str) -> list[str]:
    """The numbers of a cell that has nothing else; none otherwise."""
    found = FIGURES.fullmatch(cell.strip())
    return found.group(1).split("; ") if found else []


def cells(line: str) -> list[str]:
    """The cells of a row."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[tuple[int, list[str], str]]:
    """Tables with figures: the number of the first line, the rows, and what follows them."""
    lines = text.splitlines() + [""]
    found, begin = [], None
    for number, line in enumerate(lines):
        if line.startswith("|"):
            begin = number if begin is None else begin
        elif begin is not None:
            rows = lines[begin + 2:number]
            following = next((later for later in lines[number:] if later.strip()), "")
            if any(figures(cell) for row in rows for cell in cells(row)):
                found.append((begin + 1, rows, following.strip()))
            begin = None
    return found


def is_written(text: str, value) -> bool:
    """Whether a stored value is written as this text, to its last digit."""
    if not isinstance(value, (int, float)):
        return False
    decimals = len(text.partition(".")[2])
    return abs(float(text.replace(",", "")) - value) <= 0.5 * 10.0 ** -decimals + 1e-9


def is_stored(wanted: list[str], lines: list[dict], columns: list[str]) -> bool:
    """Whether one line has all figures."""
    pairs = list(zip(wanted, columns))
    return any(all(is_written(text, field(line, name)) for text, name in pairs) for line in lines)


def check_row(row: str, lines: list[dict], columns: list[str]) -> list[str]:
    """Complaints about one row."""
    found = [figures(cell) for cell in cells(row)]
    found = [cell for cell in found if cell]
    if not found:
        return []
    if len(found) != len(columns) or len({len(cell) for cell in found}) != 1:
        return [f"{len(columns)} columns are named, and as many figures must be in each: {row}"]
    return [f"{' and '.join(wanted)} are in no line: {row}"
            for wanted in zip(*found) if not is_stored(list(wanted), lines, columns)]


def check_age(root: Path, commit: str) -> list[str]:
    """Complaints about a commit."""
    try:
        age = int(place.git(root, "rev-list", "--count", f"{commit}..HEAD"))
    except (subprocess.CalledProcessError, ValueError):
        return [f"git does not know the commit {commit}"]
    if age > COMMITS_MAX:
        return [f"measured {age} commits ago, at {commit}; {COMMITS_MAX} are the most"]
    return []


def read(path: Path, kind: str, experiment: Optional[str]) -> list[dict]:
    """The lines of a kind, and of one experiment if one is named."""
    found = [json.loads(line) for line in path.read_text().splitlines() if line]
    return [line for line in found if line.get("line") == kind
            and experiment in (None, line.get("experiment"))]


def check_commit(comment: re.Match, lines: list[dict]) -> list[str]:
    """Complaints if the lines are not of the commit that the comment names."""
    told = {line["commit"] for line in lines if isinstance(line.get("commit"), str)}
    commit = comment["commit"]
    wrong = [it for it in told if it != commit]
    if wrong:
        return [f"{comment['file']} has lines of {', '.join(sorted(wrong))}, not of {commit}"]
    # Older lines have no commit; the name of their file has.
    if not told and commit not in Path(comment["file"]).name:
        return [f"{comment['file']} does not tell that it is of {commit}"]
    return []


def check_table(root: Path, rows: list[str], following: str) -> list[str]:
    """Complaints about a table."""
    comment = COMMENT.fullmatch(following)
    if comment is None:
        return ["no comment behind it names the lines: <!-- figures: FILE at COMMIT, ... -->"]
    path = root / comment["file"]
    if not path.is_file():
        return [f"{comment['file']} does not exist"]
    lines = read(path, comment["kind"], comment["experiment"])
    columns = [name.strip() for name in comment["columns"].split(",")]
    complaints = [text for row in rows for text in check_row(row, lines, columns)]
    return complaints + check_commit(comment, lines) + check_age(root, comment["commit"])


def complaints(root: Path, name: str = "README.md") -> list[str]:
    """All complaints about a file."""
    found = tables((root / name).read_text())
    if not found:
        return [f"{name} has no table of figures"]
    return [f"{name}:{number}: {text}"
            for number, rows, following in found for text in check_table(root, rows, following)]


def run(root: Path) -> int:
    """Gives the exit status."""
    found = complaints(root)
    print("\n".join(found) if found else "all figures are stored, and new enough")
    return 1 if found else 0

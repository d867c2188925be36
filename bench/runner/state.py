"""What earlier runs gave: one file for each experiment of a size.

A file is replaced as a whole, so that a run that is cut off leaves the one before.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Optional


@dataclass
class Kept:
    """A run of an experiment. `error` is empty if it went well."""

    commit: str
    command: str
    when: str = ""
    seconds: float = 0.0
    system: dict = field(default_factory=dict)
    lines: list[dict] = field(default_factory=list)
    error: str = ""


class State:
    """A directory of such files."""

    def __init__(self, directory: Path, size: str):
        self.directory = directory / size

    def path(self, name: str, ending: str = "json") -> Path:
        """The file of an experiment."""
        return self.directory / f"{name}.{ending}"

    def read(self, name: str) -> Optional[Kept]:
        """What is kept. A file that cannot be read is none: the experiment runs again."""
        try:
            return Kept(**json.loads(self.path(name).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, name: str, kept: Kept) -> None:
        """Keeps it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self.path(name, "new")
        new.write_text(json.dumps(asdict(kept)))
        os.replace(new, self.path(name))

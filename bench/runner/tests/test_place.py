"""The commit of a tree."""

import subprocess
import tempfile
from pathlib import Path

from runner import place
from runner.tests.case import Case


class Commit(Case):
    """Trees that differ have different names."""

    def setUp(self):
        self.root = Path(self.enter(tempfile.TemporaryDirectory()))
        self.git("init", "--quiet")
        self.write("code", "one")
        self.write("bench/results/sources.md", "a page")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "all")

    def git(self, *arguments: str):
        """Runs git."""
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", self.root, *who, *arguments], check=True)

    def write(self, name: str, text: str):
        """A file of the tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_a_tree_is_named_by_its_commit_and_by_what_differs(self):
        clean = place.commit(self.root)
        self.assertRegex(clean, "^[0-9a-f]{7,}$")
        self.write("bench/results/sources.md", "another page")
        self.write("bench/results/sources.html", "a new one")
        self.assertEqual(place.commit(self.root), clean)
        self.write("code", "two")
        changed = place.commit(self.root)
        self.assertRegex(changed, f"^{clean}-dirty-[0-9a-f]{{8}}$")
        self.write("code", "three")
        self.assertNotEqual(place.commit(self.root), changed)
        self.write("code", "one")
        self.write("more", "")
        self.assertRegex(place.commit(self.root), "-dirty-")

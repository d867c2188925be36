"""Figures of README.md and the lines behind them."""

import json
import tempfile
from pathlib import Path
from unittest import mock

from runner import check, place
from runner.tests.case import Case

TABLE = """# How fast

| | p50 | p99 |
|---|---|---|
| the client | 1.2 | 7.8 |
| **ours** | **1.8** | **1,012** |
| two of another | 75; 532 | 130; 1,022 |

"""
LINES = [(1.219, 7.833), (1.831, 1011.5), (75.262, 129.791), (531.632, 1022.066)]
COMMENT = ("<!-- figures: bench/results/peers.jsonl at abc1234, summary lines, "
           "columns p50_ms, p99_ms -->\n")


class Check(Case):
    """A README.md, and a file of lines."""

    def setUp(self):
        self.root = Path(self.enter(tempfile.TemporaryDirectory()))
        (self.root / "bench/results").mkdir(parents=True)
        self.store()
        self.age = 3
        git = mock.patch.object(place, "git", lambda *arguments: f"{self.age}\n")
        self.enter(git)

    def store(self, commit="abc1234", name="peers"):
        """Stores the lines."""
        lines = [{"line": "summary", "commit": commit, "p50_ms": p50, "p99_ms": p99}
                 for p50, p99 in LINES]
        lines.append({"line": "round", "commit": commit, "p50_ms": 4.2, "p99_ms": 4.2})
        text = "\n".join(json.dumps(line) for line in lines)
        (self.root / f"bench/results/{name}.jsonl").write_text(text)

    def complaints(self, text: str) -> list[str]:
        """What is said of a README.md."""
        (self.root / "README.md").write_text(text)
        return check.complaints(self.root)

    def test_figures_that_are_stored_are_in_order(self):
        self.assertEqual(self.complaints(TABLE + COMMENT), [])

    def test_a_figure_that_is_not_stored_is_found(self):
        for old, new in (("1.2 |", "1.3 |"), ("7.8", "7.9"), ("1,012", "1,013"), ("75;", "76;"),
                         ("130; 1,022", "1,022; 130"), ("1.2 | 7.8", "4.2 | 4.2")):
            changed = TABLE.replace(old, new)
            self.assertNotEqual(changed, TABLE)
            self.assertIn("in no line", "".join(self.complaints(changed + COMMENT)), new)

    def test_figures_may_be_those_of_one_experiment(self):
        path = self.root / "bench/results/peers.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for name, is_found in (("peers", True), ("recovery", False)):
            told = "\n".join(json.dumps({"experiment": name, **line}) for line in lines)
            path.write_text(told)
            of_peers = COMMENT.replace("summary lines", "summary lines of peers")
            self.assertEqual(not self.complaints(TABLE + of_peers), is_found, name)

    def test_columns_must_be_whole(self):
        for old, new in (("75; 532", "75"), ("| 7.8 |", "| |"), ("| 7.8 |", "| 7.8 | 9 |")):
            found = self.complaints(TABLE.replace(old, new) + COMMENT)
            self.assertIn("columns are named", found[0])

    def test_a_table_of_figures_needs_its_comment(self):
        self.assertIn("README.md:3: no comment", self.complaints(TABLE)[0])
        self.assertIn("does not exist", self.complaints(TABLE + COMMENT.replace("peers", "x"))[0])
        words = "| a | b |\n|---|---|\n| 7 of them | each row once |\n"
        self.assertEqual(self.complaints(words + "\n" + TABLE + COMMENT), [])
        self.assertEqual(self.complaints(words), ["README.md has no table of figures"])

    def test_old_figures_are_found(self):
        self.age = 100
        self.assertEqual(self.complaints(TABLE + COMMENT), [])
        self.age = 101
        self.assertIn("101 commits ago", self.complaints(TABLE + COMMENT)[0])

    def test_lines_must_be_of_the_commit(self):
        self.store(commit="fff0000-dirty")
        self.assertIn("lines of fff0000-dirty", self.complaints(TABLE + COMMENT)[0])
        self.store(commit=None)
        self.assertIn("does not tell", self.complaints(TABLE + COMMENT)[0])
        self.store(commit=None, name="peers-abc1234")
        named = COMMENT.replace("peers", "peers-abc1234")
        self.assertEqual(self.complaints(TABLE + named), [])

    def test_the_real_figures_are_stored(self):
        found = check.complaints(Path(__file__).resolve().parents[3])
        # Their age is for `bench/run check`: a copy without all commits cannot tell it.
        of_age = ("commits ago", "git does not know")
        self.assertEqual([text for text in found if not any(it in text for it in of_age)], [])

"""The table of experiments."""

import unittest

from runner.experiments import EXPERIMENTS, ROWS, SOURCES
from runner.model import FULL, REDUCED


class Table(unittest.TestCase):
    """That it is whole."""

    def test_names_are_unique_and_each_is_used(self):
        names = [experiment.name for experiment in EXPERIMENTS]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(set(names), {row.experiment for row in ROWS if row.experiment})

    def test_each_row_has_a_figure_or_a_reason(self):
        for row in ROWS:
            self.assertNotEqual(bool(row.reason), row.take is not None, row.what)
            self.assertEqual(row.take is not None, bool(row.experiment), row.what)
            self.assertIn(row.source, SOURCES)
            if row.figure.better:
                self.assertTrue(row.figure.value and row.figure.unit, row.what)

    def test_rows_tell_each_other_apart(self):
        rows = [(row.source.key, row.what) for row in ROWS]
        self.assertEqual(len(rows), len(set(rows)))

    def test_each_source_has_a_link(self):
        for source in SOURCES:
            self.assertRegex(source.link, "^https://")

    def test_each_experiment_has_two_sizes(self):
        for experiment in EXPERIMENTS:
            self.assertNotEqual(experiment.arguments(REDUCED), experiment.arguments(FULL))
            self.assertEqual(experiment.arguments(REDUCED)[0], experiment.arguments(FULL)[0])

"""Figures from lines."""

import unittest

from runner.lines import NotKeptUp, Untaken, change, reduction, saving, sustained, value


def round_of(configuration: str, p50_ms: float, **more) -> dict:
    """A line of a round."""
    return {"line": "round", "configuration": configuration, "p50_ms": p50_ms, **more}


class Figures(unittest.TestCase):
    """What is taken, and what is refused."""

    def test_a_figure_is_the_median_of_the_lines_that_match(self):
        lines = [round_of("a", 3.0), round_of("a", 1.0), round_of("a", 9.0), round_of("b", 70.0)]
        self.assertEqual(value("p50_ms", configuration="a")(lines), 3.0)
        self.assertEqual(value("p50_ms", 0.001, configuration="b")(lines), 0.07)

    def test_a_path_leads_into_a_line(self):
        lines = [round_of("a", 1.0, steady={"checkpoint_ms_median": 5.0}), round_of("b", 1.0)]
        self.assertEqual(value("steady.checkpoint_ms_median")(lines), 5.0)
        with self.assertRaises(Untaken):
            value("steady.checkpoint_ms_median", configuration="b")(lines)

    def test_a_field_that_is_not_there_is_an_error_that_names_it(self):
        with self.assertRaisesRegex(Untaken, "p99_ms where configuration = a"):
            value("p99_ms", configuration="a")([round_of("a", 1.0)])
        with self.assertRaises(Untaken):
            value("p50_ms")([round_of("a", None)])

    def test_two_summaries_are_not_mixed(self):
        lines = [{"line": "summary", "rate": rate, "p50_ms": 1.0} for rate in (10, 20)]
        with self.assertRaises(Untaken):
            value("p50_ms")(lines)
        self.assertEqual(value("p50_ms", rate=20)(lines), 1.0)

    def test_latency_means_nothing_where_the_rate_was_not_sustained(self):
        late = round_of("a", 900.0, kept_up=False)
        with self.assertRaises(NotKeptUp):
            value("p50_ms")([late, late, round_of("a", 1.0, kept_up=True)])
        kept = [late, round_of("a", 1.0, kept_up=True), round_of("a", 1.0, kept_up=True)]
        self.assertEqual(value("p50_ms")(kept), 1.0)
        slow = round_of("a", 1.0, rate=1000, throughput_rows_per_s=600.0)
        with self.assertRaises(NotKeptUp):
            sustained("p50_ms")([slow])
        self.assertEqual(sustained("p50_ms")([dict(slow, throughput_rows_per_s=990.0)]), 1.0)

    def test_figures_are_computed_from_others(self):
        lines = [round_of("before", 200.0), round_of("after", 50.0)]
        before, after = value("p50_ms", configuration="before"), value("p50_ms",
                                                                       configuration="after")
        self.assertEqual(saving(before, after)(lines), 150.0)
        self.assertEqual(reduction(before, after)(lines), 75.0)
        self.assertEqual(change(after, lambda it: it / 2)(lines), 25.0)

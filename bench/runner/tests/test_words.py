"""Numbers as they are shown."""

import unittest

from runner.words import number


class Numbers(unittest.TestCase):
    """Three digits."""

    def test_numbers_have_three_digits_and_no_exponent(self):
        shown = {0: "0", 0.000843: "0.000843", 0.0996: "0.0996", 1.2: "1.2", 1.553: "1.55",
                 99.61: "99.6", 100.4: "100", 999.9: "1,000", 12_345.0: "12,300", -3.21: "-3.21",
                 2.0: "2"}
        for value, text in shown.items():
            self.assertEqual(number(value), text)

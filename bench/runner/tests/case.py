"""What the tests share."""

import unittest


class Case(unittest.TestCase):
    """A test with what is undone behind it; `enterContext` is not in every Python."""

    def enter(self, manager):
        """Enters a context until the test has ended."""
        entered = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return entered

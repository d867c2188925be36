"""Tests of the runner; `python3 -m unittest discover -s runner/tests -t .` in bench/ runs them."""

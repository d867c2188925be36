"""The program behind `bench/run`.

`experiments` is data: which experiments there are, and how each figure of a source is taken from
the lines that `millstream-bench` prints. `work` runs them one after the other, `state` keeps the
lines of those that have finished, `page` and `web` write what came of it. `check` ties the figures
of README.md to lines that are stored.
"""

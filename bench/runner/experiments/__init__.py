"""The experiments and rows of all sources."""

from . import dataflow, delta, luft, subsecond

SOURCES = (subsecond.SOURCE, delta.SOURCE, dataflow.SOURCE, luft.SOURCE)
EXPERIMENTS = subsecond.EXPERIMENTS + delta.EXPERIMENTS + dataflow.EXPERIMENTS + luft.EXPERIMENTS
ROWS = subsecond.ROWS + delta.ROWS + dataflow.ROWS + luft.ROWS

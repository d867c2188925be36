"""What differs between two runs of one query, in words that show the rows."""

import difflib
import json
from collections import Counter
from itertools import zip_longest


def plain(value):
    """Doubles to nine digits, which is what sums in another order leave the same."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, dict):
        return {key: plain(element) for key, element in value.items()}
    return value


def row_text(row):
    return json.dumps(plain(row), sort_keys=True, ensure_ascii=False)


def multiset(rows):
    """Rows as texts, with how often each is there."""
    return Counter(map(row_text, rows))


def rows_differ(spark, ours):
    """Lines for the rows that only one side has."""
    spark, ours = multiset(spark), multiset(ours)
    only = [("Spark only", spark - ours), ("here only ", ours - spark)]
    return [f"  {side} {row}" for side, rows in only for row in sorted(rows.elements())]


def with_rows(run):
    """The micro-batches that have rows, in or out.

    Spark runs one without input whenever the watermark has moved; here one is run when something
    comes of it.
    """
    return [one for one in run if one.input_rows or one.rows]


def micro_batches_differ(spark, ours):
    """Lines for what differs, micro-batch by micro-batch."""
    found = []
    for theirs, own in zip_longest(with_rows(spark), with_rows(ours)):
        if theirs is None or own is None:
            side, only = ("Spark", theirs) if own is None else ("here", own)
            found.append(f"micro-batch {only.id}: {side} only, with {only.input_rows} rows in, "
                         f"watermark {only.watermark}, {only.dropped} rows late, "
                         f"rows {sorted(only.rows, key=json.dumps)}")
            continue
        number = own.id
        for fact in ("watermark", "dropped"):
            of_spark, of_ours = getattr(theirs, fact), getattr(own, fact)
            # Spark names no watermark where the query has none, here it is that of 1970.
            if of_spark != of_ours and of_spark != "":
                found.append(f"micro-batch {number}: {fact} is {of_spark} in Spark, "
                             f"{of_ours} here")
        rows = rows_differ(theirs.rows, own.rows)
        if rows:
            found.append(f"micro-batch {number}, watermark {own.watermark}:")
            found += rows
    return found


def all_rows(run):
    """The rows of all micro-batches."""
    return [row for one in run for row in one.rows]


def answer_lines(answer):
    """All that an answer of Spark says, a fact to a line."""
    yield f"columns {answer.columns}"
    for number, run in enumerate(answer.runs):
        if isinstance(run, str):
            yield f"run {number} is refused: {run}"
            continue
        for one in run:
            yield (f"run {number}, micro-batch {one.id}: {one.input_rows} rows in, watermark "
                   f"{one.watermark}, {one.dropped} rows late")
            yield from sorted(map(row_text, one.rows))


def answers_differ(stored, fresh):
    """Lines for what Spark answers otherwise than before. Both are Spark's, so everything counts,
    micro-batches without rows among it."""
    both = (list(answer_lines(answer)) for answer in (stored, fresh))
    return list(difflib.unified_diff(*both, "stored", "fresh", n=0, lineterm=""))

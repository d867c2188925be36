"""Seeded input for both engines: lists of files, each file a list of lines of JSON.

Event times mostly grow. How far they stray is what tells the kinds apart: `punctual` ones stay
within the delay of the watermark, so that no row is late and the cut into files must not matter;
`unruly` ones have late rows, rows without a time, malformed lines and an empty file.
"""

import json
import random
from datetime import datetime, timedelta, timezone

# Both engines read these columns.
COLUMNS = "ts TIMESTAMP, k STRING, i INT, d DOUBLE, s STRING, gap STRING"
ORIGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
# The time that one file covers, in seconds, and the rows in it.
FILE_SECONDS = 14
FILE_ROWS = 14
FILES = 5
# In one file of `many`.
MANY_ROWS, MANY_KEYS = 9000, 400
# Rows stray less than the delay of every watermark in the cases, 5 seconds at least.
STRAY_SECONDS = 4.5


def time_text(seconds):
    """The moment `seconds` after the origin, with microseconds."""
    moment = ORIGIN + timedelta(microseconds=round(seconds * 1_000_000))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def line(seconds, **fields):
    """A row as a line; without a time if `seconds` is None. Fields that are None are left out."""
    row = {} if seconds is None else {"ts": time_text(seconds)}
    row.update({name: value for name, value in fields.items() if value is not None})
    return json.dumps(row)


def fields(draw):
    """Values of a row. Doubles are quarters: their sums are exact in any order."""
    return {
        "k": draw.choice(["a", "b", "c", None]),
        "i": draw.choice([None, *range(-3, 12)]),
        "d": draw.choice([None, draw.randrange(-40, 40) / 4]),
        "s": draw.choice([None, "", "x", "xy", "Zürich", "line\nbreak"]),
        "gap": draw.choice(["2 seconds", "3 seconds", "6 seconds", None]),
    }


def row_time(draw, newest):
    """A moment some way behind `newest`, and now and then on a whole ten seconds."""
    moment = newest - draw.random() * STRAY_SECONDS
    edge = 10 * (newest // 10)
    return edge if newest - edge < STRAY_SECONDS and draw.random() < 0.2 else max(moment, 0)


def punctual(seed, files=FILES):
    """No row is late. The last one is so far on that it closes all windows before it."""
    draw = random.Random(f"punctual {seed}")
    count = files * FILE_ROWS
    pace = files * FILE_SECONDS / count
    lines = [line(row_time(draw, at * pace), **fields(draw)) for at in range(count)]
    lines.append(line(files * FILE_SECONDS + 60, k="a", i=1))
    return cut(lines, [FILE_ROWS * at for at in range(1, files)])


def unruly(seed, files=FILES):
    """Late rows, rows without a time, lines that are no JSON, and an empty file.

    The largest time of each file is that of a row of its own, so a watermark moves in each.
    """
    draw = random.Random(f"unruly {seed}")
    written = []
    for number in range(files):
        begin = number * FILE_SECONDS
        lines = []
        for at in range(FILE_ROWS):
            newest = begin + at * FILE_SECONDS / FILE_ROWS
            late = number > 0 and draw.random() < 0.15
            seconds = max(0, newest - draw.uniform(12, 45)) if late else row_time(draw, newest)
            lines.append(line(None if draw.random() < 0.06 else seconds, **fields(draw)))
        draw.shuffle(lines)
        written.append(lines)
    written[1].append("{ this is no JSON")
    written[2].append(json.dumps({"ts": "yesterday", "k": "a", "i": 1}))
    written[3].append(json.dumps({"ts": time_text(20), "k": "b", "i": "seven"}))
    written[-1].append(line(files * FILE_SECONDS + 60, k="b", i=2))
    return [*written[:3], [], *written[3:]]


def many(seed):
    """More rows than one record batch holds, with keys enough that each window has hundreds."""
    draw = random.Random(f"many {seed}")
    written = []
    for number in range(3):
        times = [number * FILE_SECONDS + draw.uniform(0, FILE_SECONDS) for _ in range(MANY_ROWS)]
        written.append([line(seconds, **fields(draw) | {"s": f"key {draw.randrange(MANY_KEYS)}"})
                        for seconds in times])
    return [*written, [line(3 * FILE_SECONDS + 60, k="a")]]


def cut(lines, at):
    """`lines` in pieces that begin at these numbers."""
    bounds = [0, *at, len(lines)]
    return [lines[begin:end] for begin, end in zip(bounds, bounds[1:])]


def cut_otherwise(files, seed):
    """The same lines in the same order, in another number of files."""
    lines = [text for file in files for text in file]
    draw = random.Random(f"cut {seed}")
    pieces = draw.choice([1, 2, 3, len(files) + 3, 2 * len(files)])
    return cut(lines, sorted(draw.sample(range(1, len(lines)), pieces - 1)))

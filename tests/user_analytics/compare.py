"""Functions of user analytics beside ClickHouse's and beside plain SQL in DuckDB, over random events.

Times are whole numbers, and no two events of a user have the same: for equal times ClickHouse's answers
depend on the order of rows. Prints a line for each comparison. Exit status 1 if any answers differ.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys

import chdb
import duckdb

USERS = 3_000
FUNNEL = "event = 'view', event = 'cart', event = 'buy'"
# The first view of each funnel, and what comes after it within the length.
DUCKDB_FUNNEL = """
SELECT u.user_id, CASE WHEN bool_or(b."at" IS NOT NULL) THEN 3 WHEN bool_or(c."at" IS NOT NULL) THEN 2
  WHEN bool_or(v."at" IS NOT NULL) THEN 1 ELSE 0 END
FROM (SELECT DISTINCT user_id FROM events) u
LEFT JOIN events v ON v.user_id = u.user_id AND v.event = 'view'
LEFT JOIN events c ON c.user_id = u.user_id AND c.event = 'cart' AND c."at" BETWEEN v."at" AND v."at" + {length}
LEFT JOIN events b ON b.user_id = u.user_id AND b.event = 'buy' AND b."at" BETWEEN c."at" AND v."at" + {length}
GROUP BY u.user_id"""
DUCKDB_SESSIONS = """
SELECT user_id, min("at"), max("at") + {gap}, count(*) FROM (
  SELECT user_id, "at", sum(begins) OVER (PARTITION BY user_id ORDER BY "at") AS session FROM (
    SELECT user_id, "at", CASE WHEN "at" - lag("at") OVER (PARTITION BY user_id ORDER BY "at") <= {gap}
      THEN 0 ELSE 1 END AS begins FROM events))
GROUP BY user_id, session"""
DUCKDB_TOUCH = """
SELECT user_id, {first}(channel, "at") FILTER (WHERE channel IS NOT NULL AND "at" BETWEEN bought - 60 AND bought)
FROM (SELECT *, min("at") FILTER (WHERE event = 'buy') OVER (PARTITION BY user_id) AS bought FROM events)
GROUP BY user_id"""


def write_events(path, seed):
    source = random.Random(seed)
    rows = []
    for user in range(USERS):
        for at in source.sample(range(400), source.randint(1, 40)):
            event = source.choice(["view", "view", "cart", "buy", "other"])
            rows.append({"user_id": user, "at": at, "event": event,
                         "channel": source.choice(["ads", "mail", "search", None])})
    source.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def ours(millstream, path, select):
    text = f"SELECT user_id, {select} AS answer FROM json.`{path}` GROUP BY user_id"
    return run(millstream, text)


def run(millstream, text):
    done = subprocess.run([millstream, "query", "--format", "json", text],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{text}: {done.stderr.strip()}")
    return [tuple(json.loads(line).values()) for line in done.stdout.splitlines()]


def clickhouse(path, select):
    text = (f"SELECT user_id, {select} AS answer FROM file('{path}', JSONEachRow, "
            "'user_id UInt32, at UInt32, event String, channel Nullable(String)') GROUP BY user_id")
    lines = str(chdb.query(text, "JSONCompactEachRow")).splitlines()
    return [tuple(json.loads(line)) for line in lines]


def comparisons(millstream, path):
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE events AS SELECT * FROM read_json('{path}')")
    for length in (0, 10, 60, 400):
        mine = ours(millstream, path, f"window_funnel({length}, at, {FUNNEL})")
        theirs = clickhouse(path, f"windowFunnel({length})(at, {FUNNEL})")
        yield f"funnel within {length}, ClickHouse", mine, theirs
        theirs = connection.execute(DUCKDB_FUNNEL.format(length=length)).fetchall()
        yield f"funnel within {length}, DuckDB", mine, theirs
        mine = ours(millstream, path, f"window_funnel({length}, 'strict_increase', at, {FUNNEL})")
        theirs = clickhouse(path, f"windowFunnel({length}, 'strict_increase')(at, {FUNNEL})")
        yield f"funnel within {length}, strict_increase, ClickHouse", mine, theirs
    # ClickHouse looks no further than the first row out of order, where a longer chain may follow; and it
    # takes such a row for one in order where a chain whose time is over could have gone on with it.
    mine = ours(millstream, path, f"window_funnel(100, 'strict_order', at, {FUNNEL})")
    theirs = dict(clickhouse(path, f"windowFunnel(100, 'strict_order')(at, {FUNNEL})"))
    same = sum(answer == theirs[user] for user, answer in mine)
    longer = sum(answer < theirs[user] for user, answer in mine)
    found = [(len(mine), same > USERS / 2, longer < USERS / 100)]
    yield f"funnel, strict_order: {same} as ClickHouse's, {longer} shorter", found, [(USERS, True, True)]
    # ClickHouse passes rows over of which a condition is NULL.
    conditions = "event = 'buy', coalesce(channel, '') = 'ads', at < 50, event = 'nothing'"
    mine = ours(millstream, path, f"retention({conditions})")
    mine = [(user, [int(met) for met in answer]) for user, answer in mine]
    yield "retention, ClickHouse", mine, clickhouse(path, f"retention({conditions})")
    for pattern in ("(?1)(?2)", "(?1).*(?2)", "(?1)(?2)(?3)", "(?1).*(?2).*(?3)", "(?1).(?3)",
                    "(?1)(?t>=20)(?3)", "(?1)(?t>60)(?2)", "(?1)(?t>=20)(?2).*(?3)", "(?1)(?t<=20)(?3)", "(?1)(?t<30)(?2)(?t>5)(?3)"):
        for function, name in (("sequence_match", "sequenceMatch"), ("sequence_count", "sequenceCount")):
            mine = ours(millstream, path, f"{function}('{pattern}', at, {FUNNEL})")
            mine = [(user, int(answer)) for user, answer in mine]
            yield f"{name} {pattern}, ClickHouse", mine, clickhouse(path, f"{name}('{pattern}')(at, {FUNNEL})")
    for gap in (5, 30):
        mine = run(millstream, "SELECT user_id, s.start, s.end, s.events FROM (SELECT user_id, "
                   f"explode(sessions(at, {gap})) AS s FROM json.`{path}` GROUP BY user_id)")
        theirs = connection.execute(DUCKDB_SESSIONS.format(gap=gap)).fetchall()
        yield f"sessions with a gap of {gap}, DuckDB", mine, theirs
    for function, first in (("first_touch", "min_by"), ("last_touch", "max_by")):
        mine = ours(millstream, path, f"{function}(channel, at, event = 'buy', 60)")
        mine = [row if len(row) == 2 else (*row, None) for row in mine]
        theirs = connection.execute(DUCKDB_TOUCH.format(first=first)).fetchall()
        yield f"{function}, DuckDB", mine, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millstream")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    path = arguments.directory / "events.json"
    write_events(path, arguments.seed)
    failed = 0
    for what, mine, theirs in comparisons(arguments.millstream, path):
        mine, theirs = sorted(mine, key=str), sorted(map(tuple, theirs), key=str)
        differing = [pair for pair in zip(mine, theirs) if pair[0] != pair[1]]
        if len(mine) != len(theirs) or differing:
            failed += 1
            print(f"{what}: {len(mine)} and {len(theirs)} rows, {len(differing)} differ, {differing[:3]}")
        else:
            print(f"{what}: {len(mine)} rows are equal")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

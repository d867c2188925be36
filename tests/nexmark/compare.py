"""Compares what the streams have written with the answers of DuckDB, as multisets of rows.

    compare.py DIRECTORY

`DIRECTORY` has the events and, for each query, the directory that it has written. Ends with status
1 if anything differs, and says which rows are missing and which are too many. It prints how many
rows each query has.
"""

import importlib.resources
import os
import sys
import time
from pathlib import Path

import duckdb

QUERIES = [*(f"q{number}" for number in range(23)), "q18_by_day", "q19_by_day"]
# Of windows of the clock it is not known how the bids are distributed over them.
BY_CLOCK = "q12"
IN_DELTA = "q10"
SHOWN = 5
WINDOW_MS = 10_000


class Comparison:
    def __init__(self):
        # The side input is written last, before any query runs.
        self.clock_start_ms = int(Path("side_input.csv").stat().st_mtime * 1_000)
        self.clock_end_ms = int(time.time() * 1_000)
        # Without the network: what is not loaded here is not looked for elsewhere.
        off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        self.database = duckdb.connect(config=off)
        package = importlib.resources.files("duckdb_extension_delta")
        file = package / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
        self.database.execute(f"LOAD '{file}'")
        for extension in ["icu", "json", "parquet"]:
            self.database.execute(f"LOAD {extension}")
        self.database.execute("SET TimeZone = 'UTC'")
        self.database.execute((Path(__file__).parent / "answers.sql").read_text("utf-8"))

    def rows(self, sql):
        """With values as text: Python's own times need a package for their zones."""
        found = self.database.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({sql})")
        return found.fetchall()

    def compare(self, query):
        """What is wrong, in lines; and how many rows there are."""
        self.database.execute(f"CREATE VIEW written_{query} AS {written(query)}")
        if query == BY_CLOCK:
            return self.windows_of_the_clock(), self.count(f"written_{query}")
        wrong = self.columns(query)
        if not wrong:
            self.database.execute(f"CREATE TABLE answer_{query} AS FROM {query}")
            wrong = self.difference(query, "missing", f"answer_{query}", f"written_{query}")
            wrong += self.difference(query, "too many", f"written_{query}", f"answer_{query}")
            if self.count(f"answer_{query}") == 0:
                wrong.append(f"{query}: the answer has no rows, so that nothing is compared")
        return wrong, self.count(f"written_{query}")

    def count(self, table):
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def columns(self, query):
        shape = "SELECT column_name, column_type FROM (DESCRIBE {})"
        answer, found = (self.rows(shape.format(name)) for name in [query, f"written_{query}"])
        return [] if answer == found else [f"{query}: columns {found}, but {answer} expected"]

    def difference(self, query, name, these, those):
        rows = self.rows(f"FROM {these} EXCEPT ALL FROM {those} ORDER BY ALL")
        shown = [f"    {row}" for row in rows[:SHOWN]]
        return [f"{query}: {len(rows)} rows are {name}, the first of them:", *shown] if rows else []

    def windows_of_the_clock(self):
        """Each bid is in one window of the time when the query ran."""
        table = f"written_{BY_CLOCK}"
        wrongs = {
            "bidders whose bids in all windows are not those that they made": f"""
                SELECT bidder, sum(bid_count) FROM {table} GROUP BY bidder
                EXCEPT ALL SELECT bidder, count(*) FROM bid GROUP BY bidder
                UNION ALL (SELECT bidder, count(*) FROM bid GROUP BY bidder
                EXCEPT ALL SELECT bidder, sum(bid_count) FROM {table} GROUP BY bidder)""",
            "windows without a bid": f"FROM {table} WHERE bid_count < 1",
            "windows that are published twice": f"""
                SELECT bidder, starttime FROM {table} GROUP BY ALL HAVING count(*) > 1""",
            "windows that are not ten seconds of the clock": f"""
                FROM {table} WHERE epoch_ms(starttime) % {WINDOW_MS} <> 0
                OR epoch_ms(endtime) - epoch_ms(starttime) <> {WINDOW_MS}""",
            "windows of a time when the query did not run": f"""
                FROM {table} WHERE epoch_ms(endtime) <= {self.clock_start_ms}
                OR epoch_ms(starttime) > {self.clock_end_ms}""",
        }
        wrong = []
        for name, sql in wrongs.items():
            rows = self.rows(sql)
            if rows:
                wrong += [f"{BY_CLOCK}: {len(rows)} {name}:"]
                wrong += [f"    {row}" for row in rows[:SHOWN]]
        windows = self.count(f"(SELECT DISTINCT starttime FROM {table})")
        if windows < 2:
            wrong.append(f"{BY_CLOCK}: {windows} windows, though it ran longer than one takes")
        return wrong


def written(query):
    if query == IN_DELTA:
        return f"FROM delta_scan('{query}')"
    if query == BY_CLOCK:
        columns = "bidder: 'BIGINT', bid_count: 'BIGINT', starttime: 'TIMESTAMPTZ'"
        columns = f"{{{columns}, endtime: 'TIMESTAMPTZ'}}"
        return f"FROM read_json('{query}/*.json', columns = {columns})"
    return f"FROM read_parquet('{query}/*.parquet')"


def main():
    os.chdir(sys.argv[1])
    comparison = Comparison()
    wrong, counts = [], []
    for query in QUERIES:
        try:
            lines, count = comparison.compare(query)
            wrong += lines
            counts.append(f"{query} {count}")
        except duckdb.Error as error:
            wrong.append(f"{query}: {error}")
    print("rows:", ", ".join(counts))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

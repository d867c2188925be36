"""Makes a table of hits on web pages, for the 43 queries of `hits.sql`.

The columns that the queries read have names, types and frequencies like those of the table that
the queries were first asked of: skewed users, many empty phrases, few phones, one counter with a
month of views. The others make rows as wide as such rows are. The same rows for the same count.
"""

import argparse

import duckdb

PLAIN = 40
"""Columns that no query names."""


def statement(rows, path):
    draw = lambda salt: f"(hash(i * 64 + {salt}) % 1000003) / 1000003.0"
    skewed = lambda salt, count: f"floor({count} * pow({draw(salt)}, 3))::BIGINT"
    id_of = lambda number, salt: f"(hash({number} * 64 + {salt}) >> 1)::BIGINT"
    user = skewed(1, max(rows // 6, 10))
    page = skewed(2, max(rows // 5, 10))
    phrase = skewed(3, max(rows // 15, 10))
    fillers = ", ".join(
        f"(hash(i * 64 + {number}) % {2 + number * number})::INTEGER AS Plain{number}"
        for number in range(PLAIN))
    return f"""
COPY (
  WITH drawn AS (
    SELECT i, {user} AS user_number, {page} AS page, {phrase} AS phrase,
      {draw(4)} AS kind, {draw(5)} AS device, {draw(6)} AS time, {draw(7)} AS counter,
      {draw(8)} AS engine, {draw(9)} AS flag FROM range({rows}) AS numbers(i))
  SELECT {id_of('i', 20)} AS WatchID,
    'Page ' || page || CASE WHEN page % 50 = 3 THEN ' - Google search' ELSE ' of the shop' END
      AS Title,
    TIMESTAMP '2013-07-01' + to_seconds((time * 31 * 86400)::BIGINT) AS EventTime,
    (TIMESTAMP '2013-07-01' + to_seconds((time * 31 * 86400)::BIGINT))::DATE AS EventDate,
    CASE WHEN counter < 0.01 THEN 62 ELSE (100 + 5000 * pow(counter, 4))::INTEGER END AS CounterID,
    ((hash(user_number * 64 + 21) % 4000000000)::BIGINT - 2000000000)::INTEGER AS ClientIP,
    (pow({draw(10)}, 5) * 5000)::INTEGER AS RegionID,
    CASE user_number WHEN 7 THEN 435090932899640449 ELSE {id_of('user_number', 22)} END AS UserID,
    CASE WHEN page % 97 = 5 THEN '' WHEN page % 200 = 9
      THEN 'http://www.google.com/search?q=' || page
      ELSE 'http://shop-' || page % 300 || '.example/goods/' || page || '/view.html' END AS URL,
    CASE WHEN kind < 0.2 THEN '' WHEN kind < 0.4 THEN 'https://www.google.com/url/' || page
      ELSE 'http://portal-' || page % 40 || '.example/list/' || page END AS Referer,
    (ARRAY[1024, 1280, 1366, 1440, 1600, 1920])[1 + (hash(i * 64 + 23) % 6)::INTEGER]::SMALLINT
      AS ResolutionWidth,
    CASE WHEN engine < 0.006 THEN 2 + (hash(i) % 40)::INTEGER ELSE 0 END::SMALLINT AS AdvEngineID,
    CASE WHEN device < 0.06 THEN (hash(i) % 80)::INTEGER ELSE 0 END::SMALLINT AS MobilePhone,
    CASE WHEN device < 0.06 THEN 'model-' || hash(user_number) % 160 ELSE '' END
      AS MobilePhoneModel,
    CASE WHEN kind < 0.87 THEN '' ELSE 'how to find ' || phrase END AS SearchPhrase,
    CASE WHEN kind < 0.87 THEN 0 ELSE 1 + (hash(i) % 30)::INTEGER END::SMALLINT AS SearchEngineID,
    (flag < 0.12)::INTEGER::SMALLINT AS IsRefresh,
    (flag > 0.9)::INTEGER::SMALLINT AS IsLink,
    (flag > 0.99)::INTEGER::SMALLINT AS IsDownload,
    (flag BETWEEN 0.5 AND 0.55)::INTEGER::SMALLINT AS DontCountHits,
    ((hash(i * 64 + 24) % 10)::INTEGER - 1)::SMALLINT AS TraficSourceID,
    CASE WHEN page % 60 = 1 THEN 3594120000172545465 ELSE {id_of('page', 25)} END AS RefererHash,
    CASE WHEN page % 70 = 2 THEN 2868770270353813622 ELSE {id_of('page', 26)} END AS URLHash,
    (hash(i * 64 + 27) % 1920)::SMALLINT AS WindowClientWidth,
    (hash(i * 64 + 28) % 1080)::SMALLINT AS WindowClientHeight,
    {fillers}
  FROM drawn)
TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 122880)"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="the Parquet file")
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    duckdb.connect().execute(statement(arguments.rows, arguments.path))


if __name__ == "__main__":
    main()

"""Queries a coordinator as Python's programs do: adbc.py URI TOKEN AUTHORITY.pem OTHER.pem ROWS

AUTHORITY is trusted by the coordinator's clients, OTHER is not. ROWS is the number of rows of the
table `numbers`, whose column `id` counts from 1. Fails where an answer is not what it should be.
"""

import datetime
import decimal
import sys
import time

import adbc_driver_flightsql.dbapi
from adbc_driver_flightsql import DatabaseOptions

URI, TOKEN, AUTHORITY, OTHER, ROWS = sys.argv[1:]
HEADER = DatabaseOptions.AUTHORIZATION_HEADER.value
ROOTS = DatabaseOptions.TLS_ROOT_CERTS.value


def connect(uri=URI, authority=AUTHORITY, **options):
    with open(authority, encoding="ascii") as file:
        options[ROOTS] = file.read()
    return adbc_driver_flightsql.dbapi.connect(uri, db_kwargs=options, autocommit=True)


def by_token():
    return connect(**{HEADER: f"Bearer {TOKEN}"})


def rows(cursor, text):
    cursor.execute(text)
    return cursor.fetchall()


def fails(what, *expected):
    try:
        what()
    except Exception as error:  # each kind of failure has a class of its own
        text = str(error)
        for word in expected:
            assert word in text, f"{word!r} is not in: {text}"
        assert TOKEN not in text, text
        return
    raise AssertionError(f"it was to fail with {expected}")


TYPES = """
SELECT CAST(1.50 AS DECIMAL(10, 2)) AS d, TIMESTAMP '2026-11-23 12:34:56.789012' AS t,
  DATE '2026-11-23' AS day, array(1, 2, 3) AS a, named_struct('x', 1, 'y', 'ä') AS s, NULL AS n,
  CAST(7 AS TINYINT) AS tiny, CAST(1.5 AS DOUBLE) AS f, true AS b, X'00FF' AS bin
"""


def types(cursor):
    ((d, t, day, a, s, n, tiny, f, b, binary),) = rows(cursor, TYPES)
    assert d == decimal.Decimal("1.50"), d
    assert t.replace(tzinfo=None) == datetime.datetime(2026, 11, 23, 12, 34, 56, 789012), t
    assert day == datetime.date(2026, 11, 23), day
    assert a == [1, 2, 3], a
    assert s == {"x": 1, "y": "ä"}, s
    assert (n, tiny, f, b, binary) == (None, 7, 1.5, True, b"\x00\xff"), (n, tiny, f, b, binary)


def tables(connection):
    found = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    (catalog,) = found
    (schema,) = catalog["catalog_db_schemas"]
    names = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert catalog["catalog_name"] == "spark_catalog" and schema["db_schema_name"] == "default"
    assert set(names) == {"numbers", "people"}, names
    columns = [column["column_name"] for column in names["people"]["table_columns"]]
    assert columns == ["id", "name"], columns
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_get_info()["vendor_name"] == "Millstream"


def many(connection, cursor):
    expected = int(ROWS)
    start = time.monotonic()
    cursor.execute("SELECT id FROM numbers")
    count, total = 0, 0
    for part in cursor.fetch_record_batch():
        count += part.num_rows
        total += sum(part.column(0).to_pylist())
    assert (count, total) == (expected, expected * (expected + 1) // 2), (count, total)
    print(f"{count} rows in {time.monotonic() - start:.2f} s")
    # An answer that is not read to its end keeps nobody waiting.
    for _ in range(100):
        with connection.cursor() as abandoned:
            abandoned.execute("SELECT id FROM numbers")
            abandoned.fetchone()


def main():
    with by_token() as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT 1 + 1 AS two") == [(2,)]
        assert rows(cursor, "SELECT name FROM people WHERE id = 2") == [("zwei",)]
        assert rows(cursor, "SELECT p.name FROM spark_catalog.default.people p ORDER BY 1 LIMIT 1") == [("eins",)]
        assert rows(cursor, "SELECT people.id FROM default.people WHERE id = 1") == [(1,)]
        setting = "SET millstream.remote.stages = 'none'; "
        assert rows(cursor, setting + "SELECT count(*) FROM numbers") == [(int(ROWS),)]
        assert rows(cursor, "SHOW TABLES") == [("numbers",), ("people",)]
        assert rows(cursor, "DESCRIBE people") == [("id", "BIGINT"), ("name", "STRING")]
        assert "people" in str(rows(cursor, "EXPLAIN SELECT * FROM people"))
        types(cursor)
        tables(connection)
        many(connection, cursor)
        cursor.adbc_prepare("SELECT count(*) AS n FROM people")
        for _ in range(2):
            assert rows(cursor, "SELECT count(*) AS n FROM people") == [(2,)]
        fails(lambda: rows(cursor, "SELECT nmae FROM people"), "nmae", "query:1:8")
        fails(lambda: rows(cursor, "SELECT * FROM poeple"), "did you mean `people`", "query:1:15")
        fails(lambda: rows(cursor, "SELECT 1 / (id - 1) FROM people"), "zero")
        fails(lambda: rows(cursor, "INSERT INTO people SELECT 1, 'x'"), "writes nothing")
        fails(lambda: rows(cursor, "SELECT 1; SELECT 2"), "one at a time")
        fails(lambda: rows(cursor, "SET millstream.remote.stages = 'none'"), "in front of the query")
        fails(lambda: cursor.execute("SELECT ?", (1,)), "no parameters")
        assert rows(cursor, "SELECT 3 AS three") == [(3,)], "errors end nothing"
    # By a password, and by none or a wrong one.
    with connect(username="anybody", password=TOKEN) as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT 1 AS one") == [(1,)]

    def asks(**options):
        with connect(**options) as connection, connection.cursor() as cursor:
            rows(cursor, "SELECT 1 AS one")

    refused = "the token is missing or wrong"
    fails(lambda: asks(), refused)
    fails(lambda: asks(**{HEADER: "Bearer wrong"}), refused)
    fails(lambda: asks(username="anybody", password="wrong"), refused)
    fails(lambda: asks(authority=OTHER, **{HEADER: f"Bearer {TOKEN}"}))
    plain = URI.replace("grpc+tls:", "grpc:")
    fails(lambda: asks(uri=plain, **{HEADER: f"Bearer {TOKEN}"}))


main()

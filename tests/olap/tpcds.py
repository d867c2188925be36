"""TPC-DS: its queries as Spark's tests have them, and its tables as DuckDB's generator makes them.

    python tpcds.py DATA --scale 1

writes a Parquet file for each of the 24 tables into DATA. The texts of the queries are in Spark's
jar of tests, which the tests of this repository unpack into a cache
(`testkit/src/spark_inputs.rs`): `tpcds` has 103 after version 1.4 of the specification, variants
among them, and `tpcds-v2.7.0` the 32 that are others in version 2.7; these are called `v2.7-q...`
here. They are asked as they stand.
DuckDB is asked the same but for what `DUCKDB` lists, since its SQL would mean something else by it.
"""

import argparse
import importlib.resources
import os
import pathlib
import re

import duckdb

TABLES = [
    "call_center", "catalog_page", "catalog_returns", "catalog_sales", "customer",
    "customer_address", "customer_demographics", "date_dim", "household_demographics",
    "income_band", "inventory", "item", "promotion", "reason", "ship_mode", "store",
    "store_returns", "store_sales", "time_dim", "warehouse", "web_page", "web_returns", "web_sales",
    "web_site",
]
DIRECTORIES = {"tpcds": "", "tpcds-v2.7.0": "v2.7-"}

# Columns that Spark's queries call by another name than the generator does. In the specification's
# versions before 2 it was the text of a date.
NAMES = {"customer": {"c_last_review_date_sk": "c_last_review_date"}}

# What DuckDB is asked in place of a pattern in a text, and why.
DUCKDB = [
    # Spark quotes names by backticks.
    (r"`([^`]*)`", r'"\1"'),
    # Names that are keywords to DuckDB; as an alias they need AS.
    (r"(coalesce\(returns, 0\)) returns", r"\1 AS returns"),
    (r"\) at,", r') AS "at",'),
    # A cast of a number to an integer rounds in DuckDB, and cuts off in Spark.
    (r"cast\(\((revenue / 50)\) AS INT\)", r"cast(trunc(\1) AS INT)"),
    # concat skips what is NULL in DuckDB, and is NULL then in Spark.
    (r"concat\(([^(),]+|'[^']*'), ([^(),]+)\)", r"(\1 || \2)"),
    (r"concat\(([^(),]+), (', '|','), ([^(),]+)\)", r"(\1 || \2 || \3)"),
]
# NULL is the least of all values in Spark, where the order does not say otherwise.
DUCKDB_SETTINGS = "SET default_null_order = 'nulls_first_on_asc_last_on_desc'"


def cache():
    """The directory with the texts that the tests have unpacked."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "millstream" / "spark-inputs-4.2.0"


def queries(texts):
    """By name, in the order of their numbers, the texts below the directory `texts`."""
    found = {}
    for directory, prefix in DIRECTORIES.items():
        files = sorted((texts / directory).glob("q*.sql"), key=number)
        if not files:
            raise SystemExit(f"{texts / directory} has no queries: cargo test -p millstream --test "
                             "end_to_end tpcds unpacks them")
        found.update({prefix + file.stem: file.read_text() + "\n;\n" for file in files})
    return found


def number(file):
    digits, variant = re.fullmatch(r"q(\d+)(\w*)", file.stem).groups()
    return int(digits), variant


def for_duckdb(text):
    for pattern, replacement in DUCKDB:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    return text


def write(data, scale):
    """Writes all tables at a scale, of which 1 is about a gigabyte of text."""
    # Without the network: the extension is in a package, and no other is looked for.
    off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config=off)
    package = importlib.resources.files("duckdb_extension_tpcds")
    file = package / "extensions" / f"v{duckdb.__version__}" / "tpcds.duckdb_extension"
    connection.execute(f"LOAD '{file}'")
    connection.execute(f"CALL dsdgen(sf = {scale})")
    data.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        renamed = ", ".join(f"{old} AS {new}" for old, new in NAMES.get(table, {}).items())
        columns = f"* RENAME ({renamed})" if renamed else "*"
        path = data / f"{table}.parquet"
        connection.execute(f"COPY (SELECT {columns} FROM {table}) TO '{path}' (FORMAT parquet)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1)
    arguments = parser.parse_args()
    write(arguments.data, arguments.scale)


if __name__ == "__main__":
    main()

"""Runs sqllogictest files on Spark and says where its answers are not theirs.

    slt.py FILE...

Records after `onlyif millstream` are left out: there the answers differ on purpose. Values are
shown as `CAST(x AS STRING)` shows them. Ends with status 1 if an answer differs.
"""

import os
import re
import sys

from pyspark.sql import SparkSession

LETTERS = {
    "boolean": "B", "tinyint": "I", "smallint": "I", "int": "I", "bigint": "L", "float": "R",
    "double": "R", "string": "T", "date": "D", "timestamp": "P", "timestamp_ntz": "P",
    "binary": "X",
}
CREATE = re.compile(r"CREATE TABLE (\w+)\s*(?:\((.*?)\)\s*)?AS\s+(VALUES.*|SELECT.*)", re.S)


def make_session():
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", os.path.join(os.getcwd(), "warehouse"))
        .getOrCreate()
    )


def records(path):
    """The file's records: line number, header, SQL, expected lines (None without `----`)."""
    number, skipped = 0, False
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    while number < len(lines):
        start = number
        block = []
        while number < len(lines) and lines[number].strip():
            block.append(lines[number])
            number += 1
        number += 1
        block = [line for line in block if not line.startswith("#")]
        if block and block[0] == "onlyif millstream":
            skipped, block = True, block[1:]
        if block and not skipped:
            header, rest = block[0], block[1:]
            cut = rest.index("----") if "----" in rest else len(rest)
            expected = rest[cut + 1:] if cut < len(rest) else None
            yield start + 1, header, "\n".join(rest[:cut]), expected
        skipped = False


def as_view(sql):
    """`CREATE TABLE ... AS VALUES` in words for a temporary view, which needs no files."""
    name, columns, query = CREATE.match(sql).groups()
    if columns is None:
        return f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}"
    split, depth = [""], 0
    for char in columns:
        depth += (char in "(<") - (char in ")>")
        if char == "," and depth == 0:
            split.append("")
        else:
            split[-1] += char
    pairs = [column.split(None, 1) for column in split]
    casts = ", ".join(f"CAST(col{at + 1} AS {kind}) AS {name}"
                      for at, (name, kind) in enumerate(pairs))
    return f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT {casts} FROM {query}"


def letter(kind):
    return "N" if kind.startswith("decimal") else LETTERS.get(kind, "?")


def answer(spark, sql):
    """Types and rows of a query."""
    frame = spark.sql(sql)
    types = "".join(letter(field.dataType.simpleString()) for field in frame.schema.fields)
    names = [f"c{at}" for at in range(len(frame.columns))]
    texts = frame.toDF(*names).selectExpr(*[f"CAST({name} AS STRING)" for name in names])
    shown = {None: "NULL", "": "(empty)"}
    return types, [[shown.get(value, value) for value in row] for row in texts.collect()]


def difference(spark, header, sql, expected):
    """What is not as expected; None if all is."""
    words = header.split()
    fails = words[1] == "error"
    try:
        if words[0] == "statement" and not fails:
            spark.sql(as_view(sql))
            return None
        types, rows = answer(spark, sql)
    except Exception as error:  # whatever Spark and Py4J raise
        return None if fails else "Spark: " + str(error).split("\n\nJVM")[0][:600]
    lines = [" ".join(" ".join(row).split()) for row in (sorted(rows) if "rowsort" in words else rows)]
    if fails:
        return "Spark gives rows:\n" + "\n".join(lines)
    wanted = [" ".join(line.split()) for line in expected or []]
    if types != words[1] or lines != wanted:
        return f"Spark gives {types}:\n" + "\n".join(lines)
    return None


def main():
    spark = make_session()
    spark.sparkContext.setLogLevel("OFF")
    different = run = 0
    for path in sys.argv[1:]:
        for line, header, sql, expected in records(path):
            run += 1
            found = difference(spark, header, sql, expected)
            if found:
                different += 1
                print(f"{os.path.basename(path)}:{line}: {sql}\n{found}\n")
    print(f"{run} records, {different} different", flush=True)
    spark.stop()
    sys.exit(1 if different or not run else 0)


if __name__ == "__main__":
    main()

"""Runs sqllogictest files on Spark and says where its answers are not theirs.

    slt.py JARS FILE...

JARS is a directory of jars that Spark needs for them.
Records after `onlyif millstream` are left out: there the answers differ on purpose, and what Spark
answers is a record after `onlyif spark`, or a comment says why Spark is not asked: `# Spark: another
clock`. A record that has to fail says with which error: of `onlyif spark` in the record itself, of
others in a comment `# Spark: CONDITION`, since the record has our words. Values are shown as
`CAST(x AS STRING)` shows them, in the session's time zone. A statement `SET TIME ZONE` changes it for
the rest of the file, and `SET spark.sql.ansi.enabled` the ANSI mode. Ends with status 1 if an answer
differs.
"""

import glob
import os
import re
import sys

from pyspark.sql import SparkSession

LETTERS = {
    "boolean": "B", "tinyint": "I", "smallint": "I", "int": "I", "bigint": "L", "float": "R",
    "double": "R", "string": "T", "date": "D", "timestamp": "P", "timestamp_ntz": "P",
    "binary": "X",
}
SAYS = "# Spark: "
# Why nothing is asked of Spark.
REASONS = ["another clock", "out of memory"]
CREATE = re.compile(r"CREATE TABLE (\w+)\s*(?:\((.*?)\)\s*)?AS\s+(VALUES.*|SELECT.*)", re.S)


def make_session(directory=None):
    """A session of Spark; with a directory also with the jars that are there."""
    jars = ",".join(sorted(glob.glob(os.path.join(directory, "*.jar")))) if directory else ""
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
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
    """The file's records: line number, header, SQL, expected lines (None without `----`), and the
    condition of the error that Spark has to give."""
    number, after_ours = 0, None
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    while number < len(lines):
        start = number
        block = []
        while number < len(lines) and lines[number].strip():
            block.append(lines[number])
            number += 1
        number += 1
        says = [line.removeprefix(SAYS) for line in block if line.startswith(SAYS)]
        block = [line for line in block if not line.startswith("#")]
        if not block:
            continue
        only = block.pop(0).removeprefix("onlyif ") if block[0].startswith("onlyif ") else None
        if after_ours and only != "spark":
            yield after_ours, "", "", None, "there is no record `onlyif spark` after this one"
        after_ours = start + 1 if only == "millstream" and not set(says) & set(REASONS) else None
        if only == "millstream":
            continue
        header, rest = block[0], block[1:]
        cut = rest.index("----") if "----" in rest else len(rest)
        expected = rest[cut + 1:] if cut < len(rest) else None
        words = header.split(None, 2)
        if only == "spark" and words[1] == "error":
            says = words[2:]
        yield start + 1, header, "\n".join(rest[:cut]), expected, " ".join(says)
    if after_ours:
        yield after_ours, "", "", None, "there is no record `onlyif spark` after this one"


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
    if kind.startswith("decimal"):
        return "N"
    # A STRING may have a collation behind its name.
    return LETTERS.get("string" if kind.startswith("string ") else kind, "?")


def answer(spark, sql):
    """Types and rows of a query."""
    frame = spark.sql(sql)
    types = "".join(letter(field.dataType.simpleString()) for field in frame.schema.fields)
    names = [f"c{at}" for at in range(len(frame.columns))]
    texts = frame.toDF(*names).selectExpr(*[f"CAST({name} AS STRING)" for name in names])
    shown = {None: "NULL", "": "(empty)"}
    return types, [[shown.get(value, value) for value in row] for row in texts.collect()]


def condition(error):
    """The name of the condition that Spark raises, or of the exception that has none. An error of
    a task, which PySpark has no exception for, is the one at its root."""
    name = error.getCondition() if hasattr(error, "getCondition") else None
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        said = re.match(r"\[([A-Z0-9_.]+)\]", cause.getMessage() or "")
        name = said[1] if said else cause.getClass().getSimpleName()
        cause = cause.getCause()
    return name or type(error).__name__


def difference(spark, header, sql, expected, says):
    """What is not as expected; None if all is."""
    if not header:
        return says
    words = header.split()
    fails = words[1] == "error"
    try:
        if words[0] == "statement" and not fails:
            spark.sql(sql if sql.startswith("SET ") else as_view(sql))
            return None
        types, rows = answer(spark, sql)
    except Exception as error:  # whatever Spark and Py4J raise
        found = condition(error)
        if fails and found == says:
            return None
        wanted = f"# Spark: {says}" if says else "no `# Spark: CONDITION`"
        expects = f" where the file has {wanted}" if fails else ""
        return f"Spark: {found}{expects}: " + str(error).split("\n\nJVM")[0][:600]
    lines = [" ".join(" ".join(row).split()) for row in (sorted(rows) if "rowsort" in words else rows)]
    if fails:
        return "Spark gives rows:\n" + "\n".join(lines)
    wanted = [" ".join(line.split()) for line in expected or []]
    if types != words[1] or lines != wanted:
        return f"Spark gives {types}:\n" + "\n".join(lines)
    return None


def main():
    spark = make_session(sys.argv[1])
    spark.sparkContext.setLogLevel("OFF")
    different = run = 0
    for path in sys.argv[2:]:
        # A file may have set others.
        spark.sql("SET TIME ZONE 'UTC'")
        spark.sql("SET spark.sql.ansi.enabled = true")
        for line, header, sql, expected, says in records(path):
            run += 1
            found = difference(spark, header, sql, expected, says)
            if found:
                different += 1
                print(f"{os.path.basename(path)}:{line}: {sql}\n{found}\n")
    print(f"{run} records, {different} different", flush=True)
    spark.stop()
    sys.exit(1 if different or not run else 0)


if __name__ == "__main__":
    main()

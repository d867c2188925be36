"""Runs the queries of examples on Spark, as batch queries, and compares what they write.

    examples.py EXAMPLE...

An example is a directory with `pipeline.sql`, one flow of which is run over the files beside it, and
`expected`. Ends with status 1 if a line differs.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from slt import make_session

TABLE = re.compile(r"CREATE TABLE (\w+)\s*(?:\((.*?)\)\s*)?USING (\w+)\s+OPTIONS \((.*)\)", re.S)
FLOW = re.compile(r"CREATE FLOW \w+ AS INSERT INTO (\w+)\s+(SELECT.*)", re.S)
OPTION = re.compile(r"'([^']*)' = '([^']*)'")


def lines_of(directory):
    """The lines of all files, sorted."""
    files = [file for file in Path(directory).iterdir() if not file.name.startswith((".", "_"))]
    return sorted(line for file in files for line in file.read_text("utf-8").splitlines())


def compare(spark, example):
    """Whether Spark writes the lines that are expected of an example."""
    text = re.sub(r"--.*", "", (example / "pipeline.sql").read_text("utf-8"))
    tables, flows = {}, []
    for statement in map(str.strip, text.split(";")):
        if table := TABLE.fullmatch(statement):
            name, columns, kind, options = table.groups()
            options = dict(OPTION.findall(options))
            tables[name] = (kind, options)
            if columns:
                options["path"] = str(example / options["path"])
                reader = spark.read.schema(columns).format(kind).options(**options)
                reader.load().createOrReplaceTempView(name)
        elif flow := FLOW.fullmatch(statement):
            flows.append(flow.groups())
        elif statement:
            raise ValueError(f"{example.name}: what is {statement!r}?")
    [(target, query)] = flows
    kind, options = tables[target]
    with tempfile.TemporaryDirectory() as directory:
        written = os.path.join(directory, "out")
        rows = spark.sql(re.sub(r"\bSTREAM ", "", query)).coalesce(1)
        rows.write.format(kind).options(header=options.get("header", "false")).save(written)
        found = lines_of(written)
    expected = lines_of(example / "expected" / options["path"])
    if not found or found != expected:
        print(f"{example.name}: Spark writes\n" + "\n".join(found) + "\nexpected is\n"
              + "\n".join(expected), flush=True)
    return bool(found) and found == expected


def main():
    spark = make_session()
    spark.sparkContext.setLogLevel("OFF")
    good = [compare(spark, Path(example)) for example in sys.argv[1:]]
    print(f"{len(good)} examples, {good.count(False)} different", flush=True)
    spark.stop()
    sys.exit(0 if good and all(good) else 1)


if __name__ == "__main__":
    main()

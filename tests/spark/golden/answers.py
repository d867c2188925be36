"""What Spark answers to the statements of its own test inputs.

    answers.py INPUTS JARS DIRECTORY [FILE...]

INPUTS has `sql-tests/inputs` and `test-data` of Spark's test jar, JARS the jars that Spark needs
besides. For each input file, or each FILE of them, `DIRECTORY/FILE.jsonl.gz` is written; one that
is there is left alone, so a run that was ended goes on where it was. A file that ended Spark itself
leaves `DIRECTORY/FILE.started`, and is passed over the next time.

A line is one of:

- `{"n", "file", "at": [start, end], "sum", "columns": [[name, type]], "rows"}`: a query. `n` counts
  the statements of the file from 0, `at` is where it stands in the bytes of `file` (an imported
  one, where it is named) and `sum` their CRC-32. `keys` are the columns that the rows are sorted
  by, `cut` says that LIMIT or OFFSET took a part of the rows, `varies` that the rows are not the
  same in each run: then there is only their number, `count`. `unshown` says why there are no rows.
- the same with `error`, the condition of Spark's error, in place of columns and rows.
- `{"table", "columns", "rows"}`: what a table or view holds from here on that is read by the next
  query; `{"table", "gone": true}`: it is not there any more. `view` is the place of the query of a
  view, and its columns' names, where it has a list of these.
- `{"set": {key: value}}`: the settings that are not the default from here on.

Values are written as `values.py` says. Rows that no ORDER BY sorts are in the order of their text.
"""

import gzip
import json
import os
import re
import sys

import inputs
import session
from values import Unshowable, expression, plain

ROWS_MAX = 3_000
# What makes rows depend on when, where and by whom a query is run; as plans call it.
VARYING = re.compile(
    r"\b(current_date|current_timestamp|current_time|localtimestamp|now|current_timezone"
    r"|current_user|current_database|current_catalog|current_schema|version|input_file_name"
    r"|input_file_block_start|input_file_block_length|spark_partition_id|uuid)\(", re.I)
# Rows that were written on one day are read on another one.
OF_A_DAY = re.compile(r"\bFROM\b.*\btimestamp\s*'(now|today|tomorrow|yesterday)\b", re.I | re.S)
QUERY = {"SELECT", "WITH", "VALUES", "FROM", "TABLE"}
CREATED = re.compile(
    r"(CREATE|REPLACE)\s+(OR\s+REPLACE\s+)?(GLOBAL\s+)?(TEMP\s+|TEMPORARY\s+)?(VIEW|TABLE)\s+"
    r"(IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w.`]+)(\s*(?P<columns>\([\w\s,`]*\)))?", re.I)
TOUCHED = re.compile(
    r"(DROP\s+(VIEW|TABLE)|TRUNCATE\s+TABLE|ALTER\s+(VIEW|TABLE)|UPDATE|DELETE\s+FROM|MERGE\s+INTO"
    r"|INSERT\s+(INTO|OVERWRITE)(\s+TABLE)?|CACHE\s+TABLE)\s+(IF\s+EXISTS\s+)?(?P<name>[\w.`]+)",
    re.I)
SET = re.compile(r"SET\s+(?P<key>spark[\w.]+)\s*=\s*(?P<value>.*)", re.I | re.S)
ZONE = re.compile(r"SET\s+TIME\s+ZONE\s+(?P<value>.*)", re.I | re.S)


class Tables:
    """The tables and views that a file has made."""

    def __init__(self, spark):
        self.spark = spark
        # By name in lower case: the statement that made it, and what was last written of it.
        self.made, self.written, self.changed = {}, {}, set()

    def note(self, statement):
        """Takes note of a statement that makes or changes a table: then all may have changed, as
        views read tables."""
        created = CREATED.match(statement.bare)
        found = created or TOUCHED.match(statement.bare)
        if found is None:
            return
        name = plain_name(found["name"])
        self.made[name] = statement if created else self.made.get(name)
        self.changed = set(self.made)

    def lines(self, statement):
        """What has changed of the tables that a query names."""
        words = set(re.findall(r"\w+", statement.bare.lower()))
        for name in sorted(self.changed):
            if name not in words:
                continue
            self.changed.discard(name)
            line = self.line(name)
            if line != self.written.get(name):
                self.written[name] = line
                yield line

    def line(self, name):
        try:
            frame = self.spark.sql(f"SELECT * FROM `{name}`")
            columns, rows = columns_and_rows(frame)
            line = {"table": name, "columns": columns, "rows": rows}
        except Unshowable:
            line = {"table": name}
        except Exception:  # there is no such table, or it cannot be read
            return {"table": name, "gone": True}
        view = view_query(self.made[name]) if self.made.get(name) else None
        return line | ({"view": view} if view else {})


def plain_name(name):
    name = name.replace("`", "").lower()
    return re.sub(r"^(spark_catalog\.)?default\.", "", name)


def view_query(statement):
    """Where the query of `CREATE VIEW name AS query` stands; None if it is another statement."""
    text = statement.text
    created = CREATED.search(text)
    if created is None or created[5].upper() != "VIEW":
        return None
    begin = re.compile(r"\s+AS\s+", re.I).match(text, created.end())
    if begin is None:
        return None
    offset = statement.start + len(text[:begin.end()].encode("utf-8"))
    names = [name.strip() for name in (created["columns"] or "").strip("()").split(",")]
    columns = [name for name in names if name]
    return {"file": statement.file, "at": [offset, statement.end], "columns": columns}


def columns_and_rows(frame):
    """Names and types, and all rows. None for the rows where there are too many."""
    try:
        fields = frame.schema.fields
    except Exception as error:  # PySpark has no such type
        raise Unshowable(session.condition(error)) from error
    columns = [[field.name, field.dataType.simpleString()] for field in fields]
    names = [f"c{at}" for at in range(len(fields))]
    shown = [expression(name, field.dataType) for name, field in zip(names, fields)]
    try:
        # Most rows are shown as they are, and need not be planned again.
        texts = frame if shown == names else frame.toDF(*names).selectExpr(*shown)
    except Exception as error:  # it is not the query that is wrong
        raise Unshowable(session.condition(error)) from error
    rows = plain(texts.take(ROWS_MAX + 1))
    return columns, rows if len(rows) <= ROWS_MAX else None


def answer(spark, statement):
    """Columns and rows of a query, or the condition of its error."""
    try:
        with session.Limit(spark):
            frame = spark.sql(statement.text)
            keys, is_cut = session.sort_keys(spark, frame)
            varies = is_varying(frame, keys, is_cut) or bool(OF_A_DAY.search(statement.text))
            columns, rows = columns_and_rows(frame)
    except Unshowable as reason:
        return {"unshown": str(reason)}
    except Exception as error:  # whatever Spark and Py4J raise
        if not is_alive(spark):
            raise
        return {"error": session.condition(error)}
    if rows is None:
        return {"columns": columns, "unshown": f"more than {ROWS_MAX} rows"}
    found = {"columns": columns}
    if varies:
        return found | {"varies": True, "count": len(rows)}
    found |= {"keys": keys} if keys is not None else {}
    found |= {"cut": True} if is_cut else {}
    return found | {"rows": rows if keys is not None else sorted(rows, key=json.dumps)}


def is_alive(spark):
    try:
        return spark.sparkContext._jsc.sc().isStopped() is False
    except Exception:  # the process is gone
        return False


def is_varying(frame, keys, is_cut):
    plan = frame._jdf.queryExecution().analyzed()
    is_any = is_cut and keys is None
    return is_any or not plan.deterministic() or bool(VARYING.search(plan.toString()))


def is_query(statement):
    word = re.split(r"[^\w]+", statement.bare.lstrip("( \n\t"))[0].upper()
    writes = re.search(r"\bINSERT\s+(INTO|OVERWRITE)\b", statement.bare, re.I)
    return word in QUERY and not (word in ("FROM", "WITH") and writes)


def lines_of(spark, directory, name):
    """The lines about a file."""
    own = session.of_file(spark, inputs.settings(directory, name))
    tables, before = Tables(own), {}
    for number, statement in enumerate(inputs.statements(directory, name)):
        if not is_query(statement):
            change(own, statement, tables)
            now = setting_after(statement, before)
            if now != before:
                yield {"set": now}
            before = now
            continue
        yield from tables.lines(statement)
        place = {"n": number} | ({"file": statement.file} if statement.file != name else {})
        place |= {"at": [statement.start, statement.end], "sum": statement.checksum}
        yield place | answer(own, statement)


def change(spark, statement, tables):
    """Runs a statement that is no query, unless it only shows something."""
    if re.match(r"(EXPLAIN|DESC|DESCRIBE|SHOW)\b", statement.bare, re.I):
        return
    try:
        with session.Limit(spark):
            spark.sql(statement.text).collect()
    except Exception:  # it has no effect then
        if not is_alive(spark):
            raise
    tables.note(statement)


def setting_after(statement, before):
    found, zone = SET.match(statement.bare), ZONE.match(statement.bare)
    if found and found["key"] not in inputs.HARMLESS:
        return before | {found["key"]: found["value"].strip()}
    if zone:
        return before | {"spark.sql.session.timeZone": zone["value"].strip()}
    reset = re.match(r"RESET\s*(?P<key>[\w.]*)", statement.bare, re.I)
    if reset:
        return {key: value for key, value in before.items() if reset["key"] not in ("", key)}
    return before


def write(spark, directory, name, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lines = [json.dumps(line, separators=(",", ":")) for line in lines_of(spark, directory, name)]
    text = "".join(f"{line}\n" for line in lines).encode("ascii")
    with open(f"{path}.new", "wb") as file:
        # Without a time, so that the same answers are the same bytes.
        file.write(gzip.compress(text, 9, mtime=0))
    os.rename(f"{path}.new", path)


def main():
    where, jars, out, *wanted = sys.argv[1:]
    where, jars, out = (os.path.abspath(path) for path in (where, jars, out))
    directory, data = os.path.join(where, "sql-tests/inputs"), os.path.join(where, "test-data")
    spark, crashed = None, []
    for name in wanted or inputs.names(directory):
        path = os.path.join(out, f"{name}.jsonl.gz")
        started = path.replace(".jsonl.gz", ".started")
        if os.path.exists(path):
            continue
        if os.path.exists(started):
            crashed.append(name)
            continue
        spark = spark or session.start(jars)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(started, "w").close()
        session.make_tables(spark, data)
        write(spark, directory, name, path)
        os.remove(started)
        print(name, flush=True)
        session.clean(spark)
    if crashed:
        sys.exit("Spark ended in: " + ", ".join(crashed))


if __name__ == "__main__":
    main()

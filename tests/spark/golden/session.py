"""Spark as its `SQLQueryTestSuite` has it: tables that all files read, and one session a file."""

import glob
import logging
import os
import re
import threading

from py4j.java_gateway import is_instance_of
from pyspark.sql import SparkSession

# What stands in test-data/postgresql; `onek` and `tenk1` have the same columns.
WIDE = ", ".join(
    [f"{name} INT" for name in
     "unique1 unique2 two four ten twenty hundred thousand twothousand fivethous tenthous odd even"
     .split()]
    + [f"{name} STRING" for name in "stringu1 stringu2 string4".split()])
FILES = {"aggtest": ("agg.data", "a INT, b FLOAT"), "onek": ("onek.data", WIDE),
         "tenk1": ("tenk.data", WIDE)}
VALUES = {
    "testdata": "SELECT CAST(id AS INT) AS key, CAST(id AS STRING) AS value FROM range(1, 101)",
    "arraydata": "SELECT * FROM VALUES (array(1, 2, 3), array(array(1, 2, 3))),"
                 " (array(2, 3, 4), array(array(2, 3, 4))) AS t(arraycol, nestedarraycol)",
    "mapdata": "SELECT map_from_arrays(sequence(1, n), transform(sequence(1, n),"
               " i -> concat(substr('abcde', i, 1), CAST(6 - n AS STRING)))) AS mapcol"
               " FROM (SELECT 5 - CAST(id AS INT) AS n FROM range(0, 5))",
}
QUERY_LIMIT_S = 60


def start(directory):
    """A session of Spark on one core, with the jars that are in a directory."""
    jars = sorted(glob.glob(os.path.join(directory, "*.jar")))
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1500m")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", os.path.join(os.getcwd(), "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    # An error is an answer here.
    logging.disable()
    return spark


def of_file(spark, settings):
    """The session of a file. It computes without generated code, which is one of the suite's
    configurations: a query that is run once is not worth compiling."""
    own = spark.newSession()
    plain = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for key, value in (plain | settings).items():
        own.conf.set(key, value)
    own.sql("USE spark_catalog.default")
    return own


def make_tables(spark, data):
    """Makes those of the common tables that are not there."""
    there = {table.name for table in spark.catalog.listTables("default")}
    for name, query in VALUES.items():
        if name not in there:
            spark.sql(f"CREATE TABLE {name} USING parquet AS {query}")
    for name, (file, columns) in FILES.items():
        if name not in there:
            path = os.path.join(data, "postgresql", file)
            rows = spark.read.option("delimiter", "\t").schema(columns).csv(path)
            rows.write.format("parquet").saveAsTable(name)


def clean(spark):
    """Removes what a file has made, but for the common tables."""
    spark.sql("USE spark_catalog.default")
    for database in [row[0] for row in spark.sql("SHOW DATABASES").collect()]:
        if database != "default":
            spark.sql(f"DROP DATABASE IF EXISTS `{database}` CASCADE")
    for table in spark.catalog.listTables("default"):
        if table.isTemporary:
            continue
        kind = "VIEW" if table.tableType == "VIEW" else "TABLE"
        if table.name not in FILES and table.name not in VALUES:
            spark.sql(f"DROP {kind} IF EXISTS `{table.name}`")
    for row in spark.sql("SHOW USER FUNCTIONS").collect():
        spark.sql(f"DROP FUNCTION IF EXISTS {row[0]}")


class Limit:
    """Ends what runs within it after a time."""

    def __init__(self, spark):
        self.timer = threading.Timer(QUERY_LIMIT_S, spark.sparkContext.cancelAllJobs)

    def __enter__(self):
        self.timer.daemon = True
        self.timer.start()

    def __exit__(self, *_):
        self.timer.cancel()


def condition(error):
    """The name of the condition that Spark raises, or of the exception that has none. An error of
    a task is the one at its root."""
    name = error.getCondition() if hasattr(error, "getCondition") else None
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        said = re.match(r"\[([A-Z0-9_.]+)\]", cause.getMessage() or "")
        name = said[1] if said else name or cause.getClass().getSimpleName()
        cause = cause.getCause()
    return name or type(error).__name__


def is_a(spark, thing, name):
    gateway = spark.sparkContext._gateway
    return is_instance_of(gateway, thing, f"org.apache.spark.sql.catalyst.{name}")


def children(plan):
    found = plan.children()
    return [found.apply(at) for at in range(found.size())]


def sort_keys(spark, frame):
    """The places of the columns that the rows are sorted by, up to the first that is no column of
    the result; None if the query does not sort its rows. And whether it takes a part of them."""
    plan, is_cut = frame._jdf.queryExecution().analyzed(), False
    output = plan.output()
    places = {output.apply(at).exprId().id(): at for at in range(output.size())}
    while not is_a(spark, plan, "plans.logical.Sort"):
        name = plan.getClass().getSimpleName()
        is_cut = is_cut or name in ("GlobalLimit", "LocalLimit", "Offset", "Tail")
        below = children(plan)
        if name not in ("GlobalLimit", "LocalLimit", "Offset", "Project", "WithCTE") or not below:
            return None, is_cut
        plan = below[-1] if name != "WithCTE" else plan.plan()
    if not getattr(plan, "global")():
        return None, is_cut
    keys, order = [], plan.order()
    for at in range(order.size()):
        key = order.apply(at).child()
        if not is_a(spark, key, "expressions.Attribute") or key.exprId().id() not in places:
            break
        keys.append(places[key.exprId().id()])
    return keys, is_cut

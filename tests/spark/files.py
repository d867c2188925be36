"""What Spark reads of a directory that Millstream writes to.

    files.py DIRECTORY...

Prints a line of JSON per directory: the rows, and how many different texts they have.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, count_distinct


def make_session():
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", os.path.join(os.getcwd(), "warehouse"))
        .getOrCreate()
    )


def main():
    spark = make_session()
    spark.sparkContext.setLogLevel("ERROR")
    for directory in sys.argv[1:]:
        rows = spark.read.schema("text STRING, partition INT").json(directory)
        facts = rows.agg(
            count("*").alias("rows"), count_distinct("text", "partition").alias("distinct")
        )
        print(json.dumps(facts.first().asDict()), flush=True)


main()

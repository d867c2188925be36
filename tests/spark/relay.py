"""A Spark query from one Kafka topic to another, driven line by line through standard input.

    relay.py JARS SERVERS TOPIC_IN TOPIC_OUT CHECKPOINT OFFSETS_PER_TRIGGER

Commands: `available` runs the query with availableNow to its end; `start` starts it back-to-back,
`start_async` with asynchronous progress tracking; `stop` lets a started query finish what is there and stops it; `quit` ends. Every command is
answered with one line, `ok COMMAND` or `failed COMMAND: reason`.
"""

import glob
import os
import sys

from pyspark.sql import SparkSession

JARS, SERVERS, TOPIC_IN, TOPIC_OUT, CHECKPOINT, OFFSETS_PER_TRIGGER = sys.argv[1:7]


def make_session():
    jars = ",".join(sorted(glob.glob(os.path.join(JARS, "*.jar"))))
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", os.path.join(os.getcwd(), "warehouse"))
        .getOrCreate()
    )


def make_writer(spark):
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", TOPIC_IN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )
    rows = source.selectExpr("key", "concat(CAST(value AS STRING), '|spark') AS value")
    return (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("topic", TOPIC_OUT)
        .option("checkpointLocation", CHECKPOINT)
    )


def run(spark, command):
    if command == "available":
        make_writer(spark).trigger(availableNow=True).start().awaitTermination()
    elif command == "start":
        make_writer(spark).trigger(processingTime="0 seconds").start()
    elif command == "start_async":
        writer = make_writer(spark).option("asyncProgressTrackingEnabled", "true")
        # So long that only the first micro-batch of a run gets entries.
        writer = writer.option("asyncProgressTrackingCheckpointIntervalMs", "3600000")
        writer.trigger(processingTime="0 seconds").start()
    elif command == "stop":
        query = spark.streams.active[0]
        query.processAllAvailable()
        query.stop()
    else:
        raise ValueError(f"unknown command {command}")


def main():
    spark = make_session()
    spark.sparkContext.setLogLevel("ERROR")
    print("ok session", flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            break
        try:
            run(spark, command)
            print(f"ok {command}", flush=True)
        except Exception as error:  # the reason belongs into the test's message, whatever it is
            print(f"failed {command}: {' '.join(str(error).split())}", flush=True)
    spark.stop()


main()

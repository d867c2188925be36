"""A Spark query from one Kafka topic to another, for `millstream-bench peers`.

    spark.py MODE JARS SERVERS FROM TO CHECKPOINT PARTITIONS

MODE is `micro-batch`, `async` (asynchronous progress tracking) or `real-time:INTERVAL`, where the
interval is that of Spark's checkpoints, for example `real-time:5 minutes`. Runs until interrupted.
"""

import glob
import os
import signal
import sys

from pyspark.sql import SparkSession

MODE, JARS, SERVERS, FROM, TO, CHECKPOINT, PARTITIONS = sys.argv[1:8]


def session():
    # Real-Time Mode runs the tasks of all partitions at once.
    cores = max(2, int(PARTITIONS))
    builder = SparkSession.builder.master(f"local[{cores}]")
    settings = {
        "spark.jars": ",".join(sorted(glob.glob(os.path.join(JARS, "*.jar")))),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": os.path.join(os.getcwd(), "warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def query(spark):
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", FROM)
        .option("startingOffsets", "latest")
        .load()
    )
    writer = (
        records.select("key", "value")
        .where("value IS NOT NULL")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("kafka.linger.ms", "0")
        .option("topic", TO)
        .option("checkpointLocation", CHECKPOINT)
        .outputMode("update")
    )
    mode, _, interval = MODE.partition(":")
    if mode == "real-time":
        return writer.trigger(realTime=interval)
    if mode == "async":
        writer = writer.option("asyncProgressTrackingEnabled", "true")
    return writer.trigger(processingTime="0 seconds")


def main():
    # The Java process behind this one ends when this one does.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    query(spark).start().awaitTermination()


main()

"""Asks a real Spark what it answers to a case. Nothing else here needs PySpark."""

import json
from pathlib import Path

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json

from .compare import row_text
from .engines import Answer, EngineError, Input, MicroBatch
from .events import COLUMNS
from .store import SETTINGS, VERSION

# What Spark refuses a query with, before it reads a row.
REFUSALS = (AnalysisException, IllegalArgumentException)
# What answers do not depend on. Each query runs for seconds: code that is compiled well comes too
# late for it.
SURROUNDINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}


class Spark:
    """The session that all cases share."""

    def __init__(self, work):
        self.session = make_session(work)

    def ask(self, key, case, directory, steps):
        """What Spark answers. `steps` gives a generator for an input, which fills it in steps."""
        data = Input(directory, case.tables)
        run = SparkRun(self.session, case, directory, data.paths)
        runs = [run.answer() for _ in steps(data)]
        return Answer(key, run.columns(), runs)

    def stop(self):
        self.session.stop()


def make_session(work):
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(work / "warehouse"))
    for name, value in (SETTINGS | SURROUNDINGS).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    if session.version != VERSION:
        raise EngineError("Spark", f"this is {session.version}, requirements.txt has {VERSION}")
    return session


class SparkRun:
    """The query on Spark, in a session of its own, which shares the context."""

    def __init__(self, spark, case, directory, paths):
        self.session = spark.newSession()
        self.case, self.directory = case, Path(directory)
        policy = "spark.sql.streaming.multipleWatermarkPolicy"
        self.session.conf.set(policy, case.options.get("multipleWatermarkPolicy", "min"))
        for table, path in paths.items():
            files = self.session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", case.files)
            files.json(str(path)).createOrReplaceTempView(table)

    def frame(self):
        """The query, analyzed."""
        try:
            return self.case.frame(self.session)
        except REFUSALS as error:
            raise EngineError("Spark", first_line(error), refused=True) from error

    def columns(self):
        """The names of the query's columns; none if Spark refuses it."""
        try:
            return self.frame().columns
        except EngineError:
            return []

    def answer(self):
        """The micro-batches of a run, or the words of a refusal. What Spark fails with otherwise
        is no answer."""
        try:
            return self.run()
        except EngineError as error:
            if error.refused:
                return error.said
            raise

    def run(self):
        """Runs everything that is there; the micro-batches of this run."""
        rows = {}

        def keep(frame, number):
            text = to_json(struct("*")).alias("row")
            rows[number] = [json.loads(row.row) for row in frame.select(text).collect()]

        writer = self.frame().writeStream.outputMode(self.case.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.directory / "spark_checkpoint"))
        try:
            query = writer.foreachBatch(keep).start()
            query.awaitTermination()
        except REFUSALS as error:
            raise EngineError("Spark", first_line(error), refused=True) from error
        except Exception as error:  # whatever a query of Spark may fail with
            raise EngineError("Spark", str(error).split("\n\nJVM")[0][:2000]) from error
        ran = [self.micro_batch(progress, rows.pop(progress.batchId))
               for progress in query.recentProgress if progress.batchId in rows]
        if rows:
            raise EngineError("Spark", f"no progress is known of micro-batches {sorted(rows)}")
        return ran

    @staticmethod
    def micro_batch(progress, rows):
        """Its rows are sorted: Spark promises no order, and none is compared."""
        dropped = sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
        watermark = progress.eventTime.get("watermark", "")
        rows = sorted(rows, key=row_text)
        return MicroBatch(progress.batchId, rows, progress.numInputRows, watermark, dropped)


def first_line(error):
    return str(error).split("\n", maxsplit=1)[0]

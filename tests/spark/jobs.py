"""A Spark driver as a process of its own, on any master. `Jobs` is the test's side: a job and its result, as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamlog.spark.runtime.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPOSITORY = Path(__file__).parents[2]
RESULT = "result: "
TASKS = 3
"""At least: what is small would be read by one, and Spark runs none a second time before another has ended."""


class Jobs:
    """`with`; dead afterwards, with all that it has started."""

    def __init__(self, folder: Path, master: str, **conf: str) -> None:
        """`conf`: with __ for dots."""
        folder.mkdir(parents=True)
        self._errors = folder / "errors.log"
        self._conf = {"spark.master": master, "spark.local.dir": str(folder / "local")}
        self._conf["spark.executorEnv.PYTHONPATH"] = str(REPOSITORY)
        self._conf |= {name.replace("__", "."): text for name, text in conf.items()}

    def __enter__(self) -> Jobs:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable}
        ensure_java(environment)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.jobs", json.dumps(self._conf)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=self._errors.parent,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def run(self, job: str, **arguments: object) -> Any:
        """What it returns, or fails with: {"error": sentence}."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([job, arguments]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(RESULT):
                return json.loads(line.removeprefix(RESULT))
        raise AssertionError(f"the driver ended:\n{self._errors.read_text(errors='replace')[-3000:]}")


def executors(spark: SparkSession) -> int:
    """That run now, without the driver."""
    return len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # type: ignore[union-attr]


def _faulty(data: DataFrame, fault: dict[str, Any] | None) -> DataFrame:
    from pyspark.sql import functions as F

    from tests.spark.faults import in_the_middle

    if fault is None:
        return data
    return data.withColumn("value", F.udf(in_the_middle(**fault), "binary").asNondeterministic()("value"))


def read(spark: SparkSession, servers: str, topic: str, fault: dict[str, Any] | None = None) -> list[list[Any]]:
    """Partition, offset and the value's first ten bytes of each record, in a batch."""
    data = spark.read.format("streamlog").option("streamlog.bootstrap.servers", servers).option("subscribe", topic)
    data = data.option("minPartitions", TASKS)
    rows = _faulty(data.load().select("partition", "offset", "value"), fault)
    return [list(row) for row in rows.selectExpr("partition", "offset", "string(substr(value, 1, 10))").collect()]


def copy(
    spark: SparkSession, servers: str, topic: str, out: str, state: str, fault: dict[str, Any] | None = None
) -> int:
    """All that is in the topic, to another; how many micro-batches that were."""
    common = {"streamlog.bootstrap.servers": servers}
    reader = spark.readStream.format("streamlog").options(**common, subscribe=topic, startingOffsets="earliest")
    source = reader.option("minPartitions", TASKS).load()
    writer = _faulty(source.select("key", "value"), fault).writeStream.format("streamlog").options(**common, topic=out)
    query = writer.option("checkpointLocation", state).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(1 for one in query.recentProgress if one["numInputRows"])


JOBS: dict[str, Callable[..., Any]] = {"executors": executors, "read": read, "copy": copy}


def main() -> None:
    from pyspark.sql import SparkSession

    conf: dict[str, str] = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Small, so that rows go through a task piece by piece.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        **json.loads(sys.argv[1]),
    }
    builder = SparkSession.builder.appName("streamlog-tests")
    for name, text in conf.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            result = JOBS[name](spark, **arguments)
        except Exception as error:  # noqa: BLE001  the test decides what it means
            result = {"error": str(error)}
        print(RESULT + json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

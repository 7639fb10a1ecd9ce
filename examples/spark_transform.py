"""Transform a topic into another one with Spark Structured Streaming.

    python examples/spark_transform.py --bootstrap-server 127.0.0.1:9092 --source orders --target invoices

Each micro-batch is written exactly once. The nodes need the setting transaction.two.phase.commit.enable=true:
streamlogctl local start --override transaction.two.phase.commit.enable=true
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description="Transform a topic into another one with Spark.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="invoices")
    parser.add_argument("--checkpoint", default="spark-transform-state", help="folder for the query's progress")
    parser.add_argument("--once", action="store_true", help="process what is there, then stop")
    arguments = parser.parse_args()

    # Spark's Python processes start faster by it.
    os.environ.setdefault("PYSPARK_PYTHON", str(Path(sys.executable).with_name("streamlog-spark-python")))
    spark = SparkSession.builder.appName("streamlog-transform").config("spark.ui.enabled", "false").getOrCreate()
    records = (
        spark.readStream.format("streamlog")
        .option("streamlog.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        records.selectExpr("key", "upper(cast(value AS string)) AS value")
        .writeStream.format("streamlog")
        .option("streamlog.bootstrap.servers", arguments.bootstrap_server)
        .option("topic", arguments.target)
        .option("checkpointLocation", arguments.checkpoint)
    )
    query = writer.trigger(availableNow=True).start() if arguments.once else writer.start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

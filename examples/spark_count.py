"""Count the records of a topic by key with Spark Structured Streaming, and write the counts to another topic.

    python examples/spark_count.py --bootstrap-server 127.0.0.1:9092 --source orders --target counts

Each micro-batch is written exactly once. The nodes need the setting transaction.two.phase.commit.enable=true:
streamlogctl local start --override transaction.two.phase.commit.enable=true
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the records of a topic by key with Spark.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="counts")
    parser.add_argument("--checkpoint", default="spark-count-state", help="folder for the query's progress")
    parser.add_argument("--once", action="store_true", help="process what is there, then stop")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("streamlog-count").config("spark.ui.enabled", "false").getOrCreate()
    records = (
        spark.readStream.format("streamlog")
        .option("streamlog.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = records.groupBy("key").count()
    writer = (
        counts.selectExpr("key", "to_json(struct(*)) AS value")
        .writeStream.format("streamlog")
        .outputMode("update")
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

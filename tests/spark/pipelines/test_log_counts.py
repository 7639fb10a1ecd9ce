"""What the pipeline log-counts finds in a line, on one session."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.spark.failures import OptionError
from streamlog.spark.pipelines.log_counts import SETTINGS, check, parsed, start
from streamlog.spark.pipelines.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LINE = next(one.default for one in SETTINGS if one.name == "line.pattern") or ""
ZOOKEEPER = r"^(\S+ \S+) - ([A-Z]+) +\[([^\]:]*)"
KAFKA = r"^\[([^\]]+)\] ([A-Z]+) \[?([A-Za-z]+)"
STREAMLOGD = r"^(\S+ \S+) ([A-Z]+) +(node \d+):"
SPARK = r"^(\S+ \S+) ([A-Z]+) ([^:]+):"
SPARKS_TIME = "yy/MM/dd HH:mm:ss"
RECORDS_TIME = datetime(2026, 11, 21, tzinfo=UTC)


def settings(given: dict[str, str]) -> PipelineSettings:
    return PipelineSettings(SETTINGS, {"bootstrap.servers": "h:1", "checkpoint": "/state", "topics": "a"} | given)


def found(spark: SparkSession, line: str, pattern: str, time_format: str) -> tuple[str, str, str]:
    rows = spark.createDataFrame([(line.encode(), RECORDS_TIME)], "value binary, timestamp timestamp")
    (row,) = parsed(rows, pattern, time_format).selectExpr("cast(time AS string)", "level", "component").collect()
    return tuple(row)


@pytest.mark.parametrize(
    ("line", "pattern", "time_format", "expected"),
    [
        ("2026-11-21T14:59:11.407 INFO  [A:b c] x", LINE, "", ("2026-11-21 14:59:11.407", "INFO", "A:b c")),
        ("2026-11-21T14:59:11,407 WARN  [] x", LINE, "", ("2026-11-21 14:59:11.407", "WARN", "")),
        ("2015-07-29 17:41:44,747 - INFO  [QP:x] - a", ZOOKEEPER, "", ("2015-07-29 17:41:44.747", "INFO", "QP")),
        ("2026-11-23 00:53:00.985 INFO  node 2: x", STREAMLOGD, "", ("2026-11-23 00:53:00.985", "INFO", "node 2")),
        ("[2026-11-21 14:59:11,407] INFO [Broker id=1] x", KAFKA, "", ("2026-11-21 14:59:11.407", "INFO", "Broker")),
        ("26/11/23 00:58:00 INFO a.B: x: y", SPARK, SPARKS_TIME, ("2026-11-23 00:58:00", "INFO", "a.B")),
    ],
)
def test_a_lines_time_level_and_component(
    spark: SparkSession, line: str, pattern: str, time_format: str, expected: tuple[str, str, str]
) -> None:
    check(spark, settings({"line.pattern": pattern, "time.format": time_format}))
    assert found(spark, line, pattern, time_format) == expected


@pytest.mark.parametrize("line", ["", "    at Foo.java:3", "2026-13-41T14:59:11.407 INFO  [A] x", "\0"])
def test_what_is_not_found_has_the_records_time(spark: SparkSession, line: str) -> None:
    assert found(spark, line, LINE, "") == ("2026-11-21 00:00:00", "UNKNOWN", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("line.pattern", "^(a"),
        ("line.pattern", "(a)(b)"),
        ("time.format", "qqq"),
        ("time.format", "{"),
        ("window", "10 foo"),
        ("window", "-10 seconds"),
        ("watermark", "ten"),
        ("watermark", "-1 minute"),
        ("trigger", "soon"),
        ("trigger", "-1 second"),
    ],
)
def test_what_spark_would_refuse_later_is_refused_by_name(
    spark: SparkSession, cluster: InProcessCluster, topic: str, tmp_path: Path, name: str, text: str
) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "topics": topic}
    folders = {"checkpoint": f"{tmp_path}/state", "out.path": f"{tmp_path}/out"}
    with pytest.raises(OptionError, match=f"option {name}: .*{re.escape(text)}"):
        start(spark.newSession(), settings(servers | folders | {name: text}))

"""A cluster for the tests of this folder, and a Spark session; each is made once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlog.pytest_plugin.cluster import InProcessCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    # Records may be of any time; a topic that is to lose some says so, and is waited for.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "100",
    # Fewer files for a cluster that lives for a minute.
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "2",
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: InProcessCluster) -> str:
    """A new one, of three partitions."""
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)[:100]
    cluster.create_topic(name, partitions=3)
    return name


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], as small as it goes."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install 'streamlog[spark]'")
    folder: Path = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("streamlog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

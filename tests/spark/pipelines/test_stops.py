"""How a pipeline ends by signals, or when one of its processes ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.drivers import Driver, batches, parquet_rows
from tests.spark.records import write

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.rounds]


def test_a_pipeline_whose_java_is_stopped_with_it_or_killed(
    cluster: InProcessCluster, topic: str, tmp_path: Path
) -> None:
    servers, state, out = cluster.bootstrap_servers, tmp_path / "state", tmp_path / "out"
    write(servers, topic, [b"a"])
    confs = {"topics": topic, "path": str(out), "checkpoint": str(state), "spark__master": "local[1]"}
    with Driver(tmp_path / "driver", "archive", servers, **confs) as driver:
        driver.start()
        driver.until(lambda: 0 in batches(state / "archive", "commits"), "batch 0 is done")
        assert driver.stop(whole=True) == 0, driver.said()[-3000:]
        assert "archive: stopped" in driver.said()

        write(servers, topic, [b"b"])
        driver.start()
        driver.until(lambda: 1 in batches(state / "archive", "commits"), "batch 1 is done")
        driver.kill_java()
        assert driver.wait() == 1, driver.said()[-3000:]
        assert driver.said().splitlines()[-1].startswith("Error: Spark's Java process has ended")
        assert "Traceback" not in driver.said()
    assert Counter(row["value"] for row in parquet_rows(out, ["value"])) == Counter([b"a", b"b"])

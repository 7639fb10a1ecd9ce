"""Executors as processes of their own, and tasks that fail: killed, slow, tried again. Rows are exact, once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.client import Producer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.jobs import Jobs
from tests.spark.records import committed
from tests.spark.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.rounds]

# Of the first partition so many, of a KiB: more than the pipes between Spark and its Python workers hold, so that what
# comes before and after in the task is in the middle too.
ROWS, MIDDLE = 6_000, 1_000


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Two executors of one core. A task that takes longer than others do is run a second time."""
    speculation = {
        "spark__speculation": "true",
        "spark__speculation__interval": "50ms",
        "spark__speculation__multiplier": "1.1",
        "spark__speculation__quantile": "0.1",
        "spark__speculation__minTaskRuntime": "1s",
    }
    folder = tmp_path_factory.mktemp("executors")
    with Standalone(folder / "spark") as spark, Jobs(folder / "jobs", spark.master, **speculation) as running:
        yield running


@pytest.fixture
def written(cluster: InProcessCluster, topic: str) -> Counter[str]:
    """What is in the topic."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(ROWS):
            producer.send(topic, b"%06d" % number + b"x" * 1_000, partition=0)
        for number in range(ROWS, ROWS + 20):
            producer.send(topic, b"%06d" % number + b"x" * 1_000, partition=1 + number % 2)
    return Counter(f"{number:06}xxxx" for number in range(ROWS + 20))


def fault(name: str, tmp_path: Path, servers: str = "") -> dict[str, Any]:
    return {"name": name, "folder": str(tmp_path), "middle": MIDDLE, "last": ROWS, "servers": servers}


def check_read_and_copy(cluster: InProcessCluster, topic: str, jobs: Jobs, state: Path) -> None:
    """A batch and a stream; of the executors that Spark was asked for, at least one."""
    servers, out = cluster.bootstrap_servers, f"{topic}-out"
    cluster.create_topic(out, partitions=2)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(300):
            producer.send(topic, b"%06d" % number, partition=number % 3)
    rows = jobs.run("read", servers=servers, topic=topic)
    assert sorted(rows) == sorted([number % 3, number // 3, f"{number:06}"] for number in range(300))
    assert jobs.run("copy", servers=servers, topic=topic, out=out, state=str(state)) == 1
    assert sorted(one.value or b"" for one in committed(servers, out)) == [b"%06d" % one for one in range(300)]
    assert jobs.run("executors") >= 1


def test_a_standalone_cluster(cluster: InProcessCluster, topic: str, jobs: Jobs, tmp_path: Path) -> None:
    check_read_and_copy(cluster, topic, jobs, tmp_path / "state")


def test_a_local_cluster(cluster: InProcessCluster, topic: str, tmp_path: Path) -> None:
    with Jobs(
        tmp_path / "jobs", "local-cluster[2,1,1024]", spark__python__unix__domain__socket__enabled="true"
    ) as jobs:
        check_read_and_copy(cluster, topic, jobs, tmp_path / "state")


@pytest.mark.parametrize("name", ["kill-workers", "kill-executor"])
def test_a_read_whose_executor_dies(
    cluster: InProcessCluster, topic: str, written: Counter[str], jobs: Jobs, tmp_path: Path, name: str
) -> None:
    rows = jobs.run("read", servers=cluster.bootstrap_servers, topic=topic, fault=fault(name, tmp_path))
    assert (tmp_path / "done").exists(), str(rows)[:3000]
    assert Counter(row[2] for row in rows) == written
    assert len({(row[0], row[1]) for row in rows}) == len(rows), "none twice"


@pytest.mark.parametrize("name", ["fail", "kill-workers", "kill-executor", "overtaken"])
def test_a_micro_batch_whose_task_is_run_twice(
    cluster: InProcessCluster, topic: str, written: Counter[str], jobs: Jobs, tmp_path: Path, name: str
) -> None:
    """After some of its rows have been written; "overtaken": by Spark's speculation, while it runs."""
    servers, out = cluster.bootstrap_servers, f"{topic}-out"
    cluster.create_topic(out, partitions=2)
    faulty = fault(name, tmp_path, servers)
    done = jobs.run("copy", servers=servers, topic=topic, out=out, state=str(tmp_path / "state"), fault=faulty)
    assert done == 1, done
    assert (tmp_path / "done").exists()
    assert (name == "overtaken") == (tmp_path / "overtaken").exists()
    assert Counter((one.value or b"")[:10].decode() for one in committed(servers, out)) == written

"""A query of a plain session whose processes are started by streamlog-spark-python, or by streamlog-spark-native."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.client import Producer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.records import committed, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux"),
]

WITHIN_S: Final = 400.0
RECORDS: Final = 300
MARK: Final = "STREAMLOG_TEST_QUERY"
COPY: Final = """
import os, sys
from pyspark.sql import SparkSession
from tests.spark.launcher.test_query import processes

servers, source, sink, state, mark = sys.argv[1:]
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"streamlog.bootstrap.servers": servers}
read = session.readStream.format("streamlog").options(**options, subscribe=source, startingOffsets="earliest").load()
writer = read.select("value").writeStream.format("streamlog").options(**options, topic=sink, checkpointLocation=state)
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
names, parents = zip(*processes(mark).values())
programs = [os.readlink(f"/proc/{one}/exe") for one in processes(mark)]
print("native:", sum(one.endswith("/streamlog-spark-native") for one in programs), end=";")
print("forked:", max(parents.count(one) for one, (name, _) in processes(mark).items() if name == "streamlog-spark"))
session.stop()
"""


def processes(mark: str) -> dict[int, tuple[str, int]]:
    """Names (of 15 characters) and parents, by process id, of those that have the mark in their environment."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (one / "environ").read_bytes():
                name, _, rest = (one / "stat").read_text().partition("(")[2].rpartition(")")
                found[int(one.name)] = name, int(rest.split()[1])
        except OSError:
            continue  # ended, or another user's
    return found


@pytest.mark.parametrize("program", ["streamlog-spark-python", "streamlog-spark-native"])
def test_its_rows_are_copied_by_processes_that_are_forked_and_end(
    cluster: InProcessCluster, topic: str, tmp_path: Path, program: str
) -> None:
    launcher = Path(sys.executable).with_name(program)
    if not launcher.exists():
        pytest.skip(f"{program} is not installed: make kernel")
    cluster.create_topic(f"{topic}-copy", partitions=3)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send(topic, str(number).encode())
    mark = uuid.uuid4().hex
    given = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}  # streamlog's own
    ran = subprocess.run(
        [sys.executable, "-c", COPY, cluster.bootstrap_servers, topic, f"{topic}-copy", str(tmp_path / "state"), mark],
        env={**given, "PYSPARK_PYTHON": str(launcher), MARK: mark},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.rpartition("forked: ")[2]) >= 4, "of the tasks, the plans, the commit"
    assert ("native: 0;" in ran.stdout) == (program != "streamlog-spark-native"), ran.stdout
    copied = committed(cluster.bootstrap_servers, f"{topic}-copy")
    assert sorted(int(record.value or b"") for record in copied) == list(range(RECORDS))
    until(lambda: not processes(mark), "all processes have ended")

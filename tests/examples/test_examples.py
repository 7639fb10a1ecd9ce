"""Each file of examples/, run as its documentation says, against a cluster of real processes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from streamlog.client import EARLIEST, Admin, Consumer, Producer
from streamlog.daemon.free_ports import free_ports
from streamlog.daemon.local_cluster import LocalCluster

pytestmark = pytest.mark.process

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TIMEOUT_S: Final = 180.0


@pytest.fixture(scope="module")
def bootstrap_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one process: enough for a program that uses any of its features."""
    cluster = LocalCluster(tmp_path_factory.mktemp("examples") / "cluster")
    cluster.create(
        1,
        0,
        {
            "transaction.two.phase.commit.enable": "true",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
        },
    )
    (node,) = cluster.nodes
    cluster.start(node)
    try:
        yield node.address
    finally:
        cluster.kill(node)


def run(example: str, *arguments: str, **environment: str) -> str:
    """Its standard output."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill(bootstrap_server: str, topic: str, values: list[bytes]) -> None:
    with Admin(bootstrap_servers=bootstrap_server) as admin:
        admin.create_topic(topic, partitions=2)
    with Producer(bootstrap_servers=bootstrap_server) as producer:
        producer.send_many(topic, values)
        producer.flush()


def read(bootstrap_server: str, topic: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    with Consumer(bootstrap_servers=bootstrap_server, isolation_level="read_committed") as consumer:
        consumer.assign_topics([topic], start=EARLIEST)
        deadline = time.monotonic() + TIMEOUT_S
        while len(values) < count and time.monotonic() < deadline:
            values += [record.value or b"" for record in consumer.poll(timeout_s=1)]
    return values


def test_every_example_is_documented_and_tested() -> None:
    here = Path(__file__).read_text()
    readme = (EXAMPLES / "README.md").read_text()
    for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb")):
        assert f"({path.name})" in readme
        assert f'"{path.name}"' in here


def test_produce_consume(bootstrap_server: str) -> None:
    out = run("produce_consume.py", "--bootstrap-server", bootstrap_server, "--topic", "sync")
    assert out.count("written: ") == out.count("read: ") == 10


def test_produce_consume_async(bootstrap_server: str) -> None:
    out = run("produce_consume_async.py", "--bootstrap-server", bootstrap_server, "--topic", "async")
    assert "read 1000 records, their sum is 499500" in out


def test_threads(bootstrap_server: str) -> None:
    out = run("threads.py", "--bootstrap-server", bootstrap_server)
    assert out.count(": the last offset is ") == 4
    assert [line for line in out.splitlines() if line.startswith("read")] == [
        f"read 250 records of writer {writer}" for writer in range(4)
    ]


# As Jupyter runs them: one after the other, in one event loop and one set of names.
NOTEBOOK: Final = """
import ast, asyncio, inspect, json, pathlib, sys

async def run(cells):
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        done = eval(compile(cell, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(done):
            await done

cells = json.loads(pathlib.Path(sys.argv[1]).read_text())["cells"]
asyncio.run(run(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]))
"""


def test_notebook(bootstrap_server: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", NOTEBOOK, str(EXAMPLES / "notebook.ipynb")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "STREAMLOG_BOOTSTRAP_SERVERS": bootstrap_server},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "the last offset is 99"
    assert second == "{'n': 99, 'square': 9801}"
    assert re.fullmatch(r"\d+ records, \d+ bytes of values", third)


def test_group_worker(bootstrap_server: str) -> None:
    fill(bootstrap_server, "work", [b"%d" % number for number in range(20)])
    arguments = ("--bootstrap-server", bootstrap_server, "--topic", "work", "--group", "workers")
    out = run("group_worker.py", *arguments, "--max-records", "20")
    assert sorted(map(int, re.findall(r"b'(\d+)'", out))) == list(range(20))
    with Producer(bootstrap_servers=bootstrap_server) as producer:
        producer.send("work", b"20").result(timeout_s=TIMEOUT_S)
    out = run("group_worker.py", *arguments, "--max-records", "1")
    assert re.findall(r"b'(\d+)'", out) == ["20"]  # it continues at what was committed


def test_exactly_once_worker(bootstrap_server: str) -> None:
    values = [b"order %d" % number for number in range(50)]
    fill(bootstrap_server, "source", values)
    with Admin(bootstrap_servers=bootstrap_server) as admin:
        admin.create_topic("target", partitions=2)
    arguments = ("--bootstrap-server", bootstrap_server, "--source", "source", "--target", "target")
    run("exactly_once_worker.py", *arguments, "--max-records", "50")
    assert sorted(read(bootstrap_server, "target", 50)) == sorted(value.upper() for value in values)


def test_fastapi_app(bootstrap_server: str) -> None:
    for package in ("fastapi", "uvicorn"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install fastapi uvicorn")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/events"
    command = [sys.executable, str(EXAMPLES / "fastapi_app.py"), "--bootstrap-server", bootstrap_server]
    server = subprocess.Popen([*command, "--port", str(port)])
    try:
        event = {"user": "anna", "action": "login"}
        request = urllib.request.Request(
            url, data=json.dumps(event).encode(), headers={"Content-Type": "application/json"}
        )
        written = _until_served(request, server)
        with urllib.request.urlopen(f"{url}/{written['partition']}/{written['offset']}", timeout=30) as response:
            assert json.load(response) == event
        for missing in (f"{written['partition']}/{written['offset'] + 7}", "99/0"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{url}/{missing}", timeout=30)
        with pytest.raises(urllib.error.HTTPError, match="422"):
            urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=30)
    finally:
        server.terminate()
        assert server.wait(TIMEOUT_S) in (0, -signal.SIGTERM)  # uvicorn stops in order, then ends by the signal


def _until_served(request: urllib.request.Request, server: subprocess.Popen[bytes]) -> dict[str, int]:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                written: dict[str, int] = json.load(response)
                return written
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from None
        except OSError:
            assert server.poll() is None, f"it ended with {server.returncode}"
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.1)


@pytest.mark.spark
def test_spark_transform(bootstrap_server: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'streamlog[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java: Spark needs version 17")
    fill(bootstrap_server, "words", [b"a", b"b", b"c"])
    with Admin(bootstrap_servers=bootstrap_server) as admin:
        admin.create_topic("transformed", partitions=1)
    run(
        "spark_transform.py",
        "--bootstrap-server",
        bootstrap_server,
        *("--source", "words", "--target", "transformed", "--checkpoint", str(tmp_path / "state"), "--once"),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    assert sorted(read(bootstrap_server, "transformed", 3)) == [b"A", b"B", b"C"]

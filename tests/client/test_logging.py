"""The client prints nothing, unless its program configures logging."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamlog.client
from streamlog.pytest_plugin.cluster import InProcessCluster

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]
CLIENT = Path(streamlog.client.__file__).parent

USE = """
import sys
{configure}
from streamlog.client import Consumer, Producer

servers, topic = sys.argv[1:]
with Producer(bootstrap_servers=servers) as producer:
    producer.send(topic, b"a line").result()
with Consumer(
    bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", max_poll_interval_ms={interval}
) as consumer:
    consumer.subscribe([topic])
    assert next(iter(consumer)).value == b"a line"
    {handle}
"""
# The consumer does not poll until the member has left the group, of which the client warns.
WAIT = """
    while consumer.member_id is not None:
        consumer.end_offsets([(topic, 0)])
"""
CONFIGURE = "import logging; logging.basicConfig(format='%(name)s|%(message)s')"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=1) as cluster:
        cluster.create_topic("t", partitions=1)
        yield cluster


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=True)


@pytest.mark.parametrize("handle", ["pass", WAIT], ids=["ordinary", "warned-of"])
def test_nothing_is_printed_unless_logging_is_configured(cluster: InProcessCluster, handle: str) -> None:
    interval = 300_000 if handle == "pass" else 1_000
    ended = run(USE.format(configure="", handle=handle, interval=interval), cluster.bootstrap_servers, "t")
    assert (ended.stdout, ended.stderr) == ("", "")


def test_warnings_reach_a_program_that_configures_logging(cluster: InProcessCluster) -> None:
    program = USE.format(configure=CONFIGURE, handle=WAIT, interval=1_000)
    ended = run(program, cluster.bootstrap_servers, "t")
    assert re.search(r"^streamlog\.client\.groups\.poll_watch\|.*this member leaves", ended.stderr, re.MULTILINE)


def test_an_import_configures_nothing() -> None:
    show = "import logging; import streamlog.client; print(logging.getLogger().handlers, logging.getLogger().level)"
    assert run(show).stdout == f"[] {logging.WARNING}\n"


def test_loggers_are_named_by_their_modules() -> None:
    named = [(path, path.read_text()) for path in CLIENT.rglob("*.py")]
    asked = [(path, call) for path, text in named for call in re.findall(r"getLogger\((.*?)\)", text)]
    assert len(asked) > 3
    assert [path for path, call in asked if call != "__name__"] == []


def test_lines_are_written_by_one_function_that_raises_nothing() -> None:
    """What a handler or filter of the program raises would end the client's tasks. Errors are logged at the end of a
    client, or of a callback.
    """
    direct = re.compile(r"\b_log\.(debug|info|warning|log)\(")
    assert [path.name for path in CLIENT.rglob("*.py") if direct.search(path.read_text())] == []

"""`streamlogctl top`: frames from samples, on screens of any size, and ended by Ctrl-C."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs
from rich.console import Console

from streamlog.aio.timeouts import timeout
from streamlog.cli.common.target import Target
from streamlog.cli.main import main
from streamlog.cli.top import command
from streamlog.cli.top.frame import Frame, frame_of
from streamlog.cli.top.screen import duration, number, screen, size, text
from streamlog.client import Admin, Producer
from streamlog.client.admin.group_values import GroupListing, GroupState
from streamlog.client.admin.values import ClusterDescription, PartitionDescription, TopicDescription
from streamlog.console.collection.sample import PartitionEnd, Sample
from streamlog.errors import BrokerNotAvailableError
from streamlog.model import BrokerId, PartitionId, TopicPartition
from streamlog.monitor import ClusterState
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.support.health_samples import cluster, state

AT = TopicPartition("orders", PartitionId(0))
HOSTILE = "g\x1b[2J\u202e" + "x" * 300


def topic(name: str) -> TopicDescription:
    partition = PartitionDescription(
        partition=PartitionId(0),
        leader=BrokerId(1),
        leader_epoch=1,  # type: ignore[arg-type]
        partition_epoch=1,  # type: ignore[arg-type]
        replicas=(BrokerId(1), BrokerId(2)),
        isr=(BrokerId(1),),
        elr=(),
        adding=(),
        removing=(),
        offline=(),
    )
    return TopicDescription(
        name=name,
        topic_id=b"i" * 16,  # type: ignore[arg-type]
        partition_count=1,
        replication_factor=2,
        internal=False,
        configs={},
        partitions=(partition,),
        error=None,
    )


def sample(second: float, end: int, committed: int, **more: Any) -> Sample:
    group = GroupListing(group=HOSTILE, state=GroupState.STABLE, member_count=2, coordinator=BrokerId(1))
    return Sample(
        at_s=second,
        monotonic_s=second,
        state=state(cluster(), topic("orders"), topic("idle")),
        ends={AT: PartitionEnd(0, end, end * 10)},
        groups=(group,),
        committed={HOSTILE: {AT: committed}},
        **more,
    )


def test_a_frame_has_rates_lags_and_the_time_to_catch_up() -> None:
    frame = frame_of(sample(10, 1_000, 100), sample(20, 1_100, 600))
    assert (frame.records_per_s, frame.bytes_per_s) == (10, 100)
    assert [one.topic for one in frame.topics] == ["orders", "idle"]
    (group,) = frame.groups
    assert (group.lag, group.records_per_s, group.catch_up_s) == (500, 50, 500 / 40)
    assert frame.nodes[0].records_per_s == 10
    assert frame.nodes[0].controller
    assert frame.nodes[1].records_per_s == 0


def test_a_first_frame_has_no_rates_and_a_slower_group_never_catches_up() -> None:
    first = frame_of(None, sample(10, 1_000, 100))
    assert first.records_per_s is first.nodes[0].records_per_s is first.groups[0].records_per_s is None
    assert first.groups[0].catch_up_s is None
    behind = frame_of(sample(10, 1_000, 100), sample(20, 2_000, 200))
    assert behind.groups[0].catch_up_s is None
    pace = frame_of(sample(10, 1_000, 960), sample(20, 1_100, 1_060))
    assert (pace.groups[0].lag, pace.groups[0].keeps_pace, pace.groups[0].catch_up_s) == (40, True, None)
    assert "keeps pace" in text(pace)
    done = frame_of(sample(10, 1_000, 100), sample(20, 1_000, 1_000))
    assert (done.groups[0].lag, done.groups[0].catch_up_s) == (0, 0)


def test_a_cluster_that_does_not_answer_is_a_frame_and_is_no_rate_afterwards() -> None:
    missing = {"the cluster's description": BrokerNotAvailableError("no node answers")}
    away = Sample(at_s=1, monotonic_s=1, state=ClusterState(cluster=None, missing=missing))
    assert "does not answer" in text(frame_of(None, away))
    assert frame_of(away, sample(20, 1_000, 100)).records_per_s is None


class SilentCluster:
    """Describes itself; its topics and groups are not answered."""

    async def describe_cluster(self) -> ClusterDescription:
        return cluster()

    async def sample(self, *_: object) -> Sample:
        await asyncio.Event().wait()
        raise AssertionError


LOST = "No metadata quorum: 1 of 3 voters answers (see: streamlogctl cluster quorum)"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def lost(_: object) -> str:
        return LOST

    found = SilentCluster()
    monkeypatch.setattr(command, "sample", found.sample)
    monkeypatch.setattr(command, "lost_quorum", lost)
    monkeypatch.setattr(command, "LOOK_S", 0.0)
    monkeypatch.setattr(command, "LOST_S", 0.0)
    return found


async def test_without_a_quorum_it_shows_what_it_knows_and_says_what_is_missing(silent: Any) -> None:
    target = Target(servers=("127.0.0.1:1",), request_timeout_ms=30_000)
    shown: list[Frame] = []
    async with timeout(30):
        await command._once(silent, target, 3_600, shown.append)
    [frame] = shown
    assert not frame.has_quorum
    assert [one.node for one in frame.nodes] == [1, 2, 3]
    assert frame.problems[0] == (
        "No metadata quorum: 1 of 3 voters answers; topics, sizes, groups could not be read "
        "(see: streamlogctl cluster quorum)."
    )
    async with timeout(30):
        frames = command._frames(silent, target, 3_600, at_once=True)
        assert (await anext(frames)).nodes == (await anext(frames)).nodes == frame.nodes


def test_groups_that_are_not_listed_or_not_answered_are_said() -> None:
    some = frame_of(None, structs.replace(sample(10, 1_000, 100), groups_complete=False, committed={}))
    assert some.problems[-1] == "Groups of nodes that do not answer are missing."
    assert (some.groups[0].lag, some.groups[0].catch_up_s, some.groups[0].keeps_pace) == (None, None, False)
    assert "\t-\t-\t-" in text(some).splitlines()[-1]


def rendered(frame: Frame, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None, force_terminal=True)
    with console.capture() as captured:
        console.print(screen(frame, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 10)])
def test_it_fits_the_terminal_and_does_nothing_to_it(width: int, height: int) -> None:
    lines = rendered(frame_of(sample(10, 10**12, 100), sample(20, 2 * 10**12, 600)), width, height)
    assert all(len(line) <= width for line in lines)
    assert not set("".join(lines)) & set("\x1b\u202e")
    shown = "\n".join(lines)
    for heading in ("RECORDS/S", "FREE%", "UNDER-REPL", "CATCH-UP", "LAG"):
        assert heading in shown


@pytest.mark.parametrize("width", [20, 30, 40, 60])
def test_a_narrow_terminal_keeps_names_and_leaves_out_other_columns(width: int) -> None:
    lines = rendered(frame_of(sample(10, 10**12, 100), sample(20, 10**12 + 50, 600)), width, 24)
    assert all(len(line) <= width for line in lines)
    for name in ("NODE", "1*", "TOPIC", "orders", "idle", "GROUP", "g\\x1b[2J"):
        assert any(line.startswith(name) for line in lines), name
    assert any("RECORDS/S" in line for line in lines)
    assert any("5.0" in line for line in lines if line.startswith("orders"))


def test_rows_that_do_not_fit_are_counted() -> None:
    many = Sample(
        at_s=1, monotonic_s=1, state=state(cluster(), *(topic(f"t{number:04}") for number in range(500))), ends={}
    )
    lines = rendered(frame_of(None, many), 80, 24)
    assert len(lines) <= 24
    assert any("TOPIC (+" in line for line in lines)


def test_numbers_are_short() -> None:
    assert [number(one) for one in (None, 0, 0.25, 12.6, 1_234_567)] == ["-", "0", "0.2", "13", "1,234,567"]
    assert [size(one) for one in (None, 0, 1023, 1536, 2**40 * 5)] == ["-", "0", "1023", "1.5K", "5.0T"]
    assert [duration(one) for one in (None, 5, 65, 3_700, 10**9)] == ["-", "5s", "1m05s", "1h01m", ">99h"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=1) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=1)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("orders", [b"x"] * 7).result(30)
        yield cluster


def test_one_frame_for_scripts(live: InProcessCluster) -> None:
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": live.bootstrap_servers}
    done = CliRunner().invoke(main, ["top", "--once", "--interval", "0.5", "--output", "json"], env=environment)
    assert done.exit_code == 0, done.output
    frame = json.loads(done.stdout)
    assert frame["topics"][0]["topic"] == "orders"
    assert frame["records_per_s"] == 0
    assert [one["state"] for one in frame["nodes"]] == ["active"]


def test_without_a_cluster_one_frame_is_an_error() -> None:
    done = CliRunner().invoke(main, ["top", "--once"], env={"STREAMLOG_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")


@pytest.mark.parametrize("output", ["text", "table"])
def test_a_closed_pipe_ends_it(live: InProcessCluster, output: str) -> None:
    options = ["--interval", "0.5", "--output", output]
    command = [sys.executable, "-c", "from streamlog.cli.main import main; main()", "top", *options]
    environment = os.environ | {"STREAMLOG_BOOTSTRAP_SERVERS": live.bootstrap_servers}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_ctrl_c_ends_it_and_gives_the_terminal_back(live: InProcessCluster) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-c", "from streamlog.cli.main import main; main()", "top", "--interval", "0.5"]
    environment = os.environ | {"STREAMLOG_BOOTSTRAP_SERVERS": live.bootstrap_servers, "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"RECORDS/S") < 4 or b"orders" not in seen:  # two frames
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:  # the other end is closed
            pass
        assert process.wait(30) == 0
    os.close(ours)
    assert b"\x1b[?1049h" in seen
    assert seen.rstrip().endswith((b"\x1b[?1049l\x1b[?25h", b"\x1b[?25h", b"\x1b[?1049l"))
    assert b"Traceback" not in seen

"""`streamlogctl local` with real streamlogd processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamlog.cli.main import main
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.daemon.local_console import LocalConsole
from streamlog.daemon.local_process import ProcessId, save_process_id
from tests.cli.served import USAGE, refused

Local = Callable[..., Result]

pytestmark = pytest.mark.process
TIMEOUT_S = "180"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """`streamlogctl local VERB --dir ...`; what it started is ended."""
    directory = tmp_path / "cluster"

    def run(verb: str, *arguments: str) -> Result:
        if verb in ("start", "restart", "stop"):
            arguments = (*arguments, "--timeout-s", TIMEOUT_S)
        return CliRunner().invoke(main, ["local", verb, "--dir", str(directory), *arguments])

    yield run
    cluster = LocalCluster(directory)
    LocalConsole(cluster).stop(60)
    for node in cluster.nodes:
        cluster.kill(node)


def nodes(local: Local) -> list[dict[str, str]]:
    return list(json.loads(local("status", "--output", "json").stdout))


def test_a_cluster_from_its_start_to_its_stop(local: Local) -> None:
    started = local("start", "--nodes", "3", "--port", "0")
    assert started.exit_code == 0, started.output
    assert started.stdout.startswith("Nodes 1, 2, 3 ready: 127.0.0.1:")
    servers = started.stdout.rpartition(" ")[2].strip()
    assert [node["state"] for node in nodes(local)] == ["running"] * 3
    described = CliRunner().invoke(main, ["cluster", "describe", "-o", "json", "--bootstrap-server", servers])
    assert [node["state"] for node in json.loads(described.stdout)["nodes"]] == ["active"] * 3

    assert local("kill", "2").stdout == "Node 2 killed.\n"
    assert local("stop", "2").stdout == "Node 2 was not running.\n"
    assert local("kill", "2").stdout == "Node 2 was not running.\n"
    assert [node["state"] for node in nodes(local)] == ["running", "stopped", "running"]
    assert local("start").exit_code == 0
    assert [node["state"] for node in nodes(local)] == ["running"] * 3

    pids = [node["pid"] for node in nodes(local)]
    assert local("restart", "1").stdout == "Node 1 restarted.\n"
    assert [before == after["pid"] for before, after in zip(pids, nodes(local), strict=True)] == [False, True, True]

    assert local("stop").stdout == "Nodes 1, 2, 3 stopped.\n"
    assert [node["state"] for node in nodes(local)] == ["stopped"] * 3
    again = local("stop")
    assert (again.exit_code, again.stdout) == (0, "Nodes 1, 2, 3 were not running.\n")


def test_the_console_is_started_shown_and_stopped_with_the_cluster(local: Local) -> None:
    pytest.importorskip("nicegui", reason="streamlog[console] is not installed")
    start = ("start", "--nodes", "1", "--port", "0", "--console", "--console-port", "0")
    started = local(*start)
    assert started.exit_code == 0, started.output
    url = started.stdout.splitlines()[-1].removeprefix("Console: ")
    with urllib.request.urlopen(url, timeout=60) as response:
        assert response.status == 200
    assert f"Console: {url}" in local("status").output
    assert local(*start).stdout.splitlines()[-1] == f"Console: {url}", "it runs already"
    assert local("stop", "1").stdout == "Node 1 stopped.\n", "a node alone"
    assert f"Console: {url}" in local("status").output
    assert local("stop").stdout == "Console stopped.\nNode 1 was not running.\n"
    assert "Console" not in local("status").output


def test_a_console_that_cannot_start_says_why(local: Local) -> None:
    pytest.importorskip("nicegui", reason="streamlog[console] is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started = local("start", "--nodes", "1", "--port", "0", "--console", "--console-port", port)
    assert started.exit_code == 1
    assert f"127.0.0.1 port {port}: Address already in use" in started.output
    assert [node["state"] for node in nodes(local)] == ["running"]


def test_health_says_what_is_wrong_and_what_to_do(local: Local) -> None:
    assert local("start", "--nodes", "3", "--port", "0", "--override", "broker.session.timeout.ms=3000").exit_code == 0
    servers = ",".join(node["address"] for node in nodes(local))

    def health() -> Result:
        return CliRunner().invoke(main, ["cluster", "health", "-o", "json", "--bootstrap-server", servers])

    well = health()
    assert (well.exit_code, json.loads(well.stdout)) == (0, [])
    described = CliRunner().invoke(main, ["cluster", "describe", "-o", "json", "--bootstrap-server", servers])
    killed = 2 if json.loads(described.stdout)["controller"] != 2 else 3  # with the controller the quorum is a finding
    local("kill", str(killed))
    deadline = time.monotonic() + 60
    while True:  # at first it does not answer, then it is fenced: one finding at any time
        found = health()
        assert found.exit_code == 3
        [finding] = json.loads(found.stdout)
        assert finding["subject"] == f"node {killed}"
        if "is fenced" in finding["problem"]:
            break
        assert "does not answer" in finding["problem"]
        assert time.monotonic() < deadline
    assert finding["remedy"].startswith("Start it; ")


def test_settings_are_made_once_and_then_the_users(local: Local, tmp_path: Path) -> None:
    assert local("start", "--nodes", "1", "--port", "0", "--override", "num.partitions=7").exit_code == 0
    file = tmp_path / "cluster" / "node-1" / "server.properties"
    text = file.read_text()
    assert "num.partitions=7\n" in text
    assert "node.id=1\n" in text
    local("stop")
    file.write_text(text.replace("num.partitions=7", "num.partitions=9"))
    said = refused(local("start", "--override", "num.partitions=7"))
    assert f"--override num.partitions=7 is not applied: {file} has num.partitions=9" in said
    assert "has no log.retention.hours" in refused(local("start", "--override", "log.retention.hours=3"))
    port = nodes(local)[0]["address"].rpartition(":")[2]
    other = "1024" if port != "1024" else "1025"
    assert f"--port {other}: the nodes in " in refused(local("start", "--port", other))
    assert local("start", "--override", "num.partitions=9", "--port", port).exit_code == 0
    assert "num.partitions=9\n" in file.read_text()
    assert "not of 3" in refused(local("start", "--nodes", "3"))


def test_a_node_that_cannot_start_says_why(local: Local, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused(local("start", "--nodes", "1", "--port", "0", "--override", f"log.dirs={tmp_path / 'file'}"))
    assert said.startswith("Error: node 1 (127.0.0.1:")
    assert "exited during its start: " in said
    assert "streamlogd.log" in said


def test_a_port_that_is_taken_is_named_and_nothing_is_made(local: Local) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(local("start", "--nodes", "1", "--port", str(port)))
    assert said.startswith(f"Error: another process listens on 127.0.0.1:{port}: ")
    assert "--port" in said


def test_the_nodes_of_another_cluster_are_not_taken_for_its_own(local: Local, tmp_path: Path) -> None:
    servers = local("start", "--nodes", "1", "--port", "0").stdout.rpartition(":")[2].strip()
    other = str(tmp_path / "other")
    said = refused(CliRunner().invoke(main, ["local", "start", "--nodes", "1", "--port", servers, "--dir", other]))
    assert f"another process listens on 127.0.0.1:{servers}" in said
    assert LocalCluster(Path(other)).nodes == ()


def test_an_override_without_effect_is_refused_and_nothing_is_made(local: Local) -> None:
    said = refused(
        local("start", "--nodes", "1", "--port", "0", "--override", "flush.messages=9", "--override", "bogus=1")
    )
    assert "flush.messages is a setting of topics: the nodes' default for it is log.flush.interval.messages" in said
    assert "--override bogus: 'bogus' is not a setting of nodes" in said
    assert nodes(local) == []


@pytest.mark.parametrize("secure", [(), ("--secure",)])
def test_an_override_that_cannot_be_is_named_and_nothing_is_made(
    local: Local, tmp_path: Path, secure: tuple[str, ...]
) -> None:
    start = ("start", "--nodes", "2", "--port", "0", *secure)
    assert "--override: num.partitions='x': must be a whole number" in refused(
        local(*start, "--override", "num.partitions=x")
    )
    said = refused(local(*start, "--override", "node.id=7", "--override", "log.dirs=/data"))
    assert "--override node.id: 'streamlogctl local start' numbers the nodes" in said
    assert "--override log.dirs: all 2 nodes would have the same value" in said
    assert nodes(local) == []
    assert not (tmp_path / "cluster").exists()


def test_a_setting_that_cannot_be_is_named_with_its_file(local: Local, tmp_path: Path) -> None:
    LocalCluster(tmp_path / "cluster").create(1, 0, {})
    file = tmp_path / "cluster" / "node-1" / "server.properties"
    file.write_text("num.partitions=x\n" + file.read_text())
    for verb in ("start", "restart", "status"):
        assert f"{file}:1: num.partitions='x': must be a whole number." in refused(local(verb))


def test_a_refused_start_leaves_directories_as_they_were(tmp_path: Path) -> None:
    for existed, above in ((tmp_path, tmp_path / "a" / "b"), (tmp_path / "c", tmp_path / "c")):
        existed.mkdir(exist_ok=True)
        start = ("local", "start", "--dir", str(above), "--override", "bogus=1")
        assert "'bogus' is not a setting of nodes" in refused(CliRunner().invoke(main, start))
        assert list(existed.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("local", "start", "--dir"),
        ("local", "stop", "--dir"),
        ("security", "init", "--nodes", "a", "--dir"),
        ("doctor", "--machine-only", "--dir"),
    ],
)
def test_an_empty_name_is_not_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """As of a variable of the shell that is not set."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*command, ""])
    assert done.exit_code == USAGE
    assert "Invalid value for '--dir': the name is empty; give a directory ('.' is the current one)" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    directory = tmp_path / "file" / "cluster"
    said = refused(CliRunner().invoke(main, ["local", "start", "--dir", str(directory)]))
    assert (
        said
        == f"Error: {directory} cannot be used (Not a directory): give a directory that you can write with --dir.\n"
    )


def test_a_stranger_under_a_remembered_number_is_left_alone(local: Local, tmp_path: Path) -> None:
    """The number of a node that is gone is this test's own now."""
    assert local("start", "--nodes", "1", "--port", "0").exit_code == 0
    assert local("stop").exit_code == 0
    me = ProcessId.of(int(Path("/proc/self").resolve().name))
    assert me is not None
    save_process_id(ProcessId(me.pid, "of an earlier boot"), tmp_path / "cluster" / "node-1" / "process")
    before = signal.getsignal(signal.SIGTERM)
    assert local("kill", "1").stdout == "Node 1 was not running.\n"
    assert local("stop", "1").exit_code == 0
    assert nodes(local)[0]["state"] == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_restart_starts_what_is_not_running_together(local: Local) -> None:
    """One of two nodes alone would wait for the other for ever."""
    assert local("start", "--nodes", "2", "--port", "0").exit_code == 0
    assert local("stop").exit_code == 0
    said = refused(local("restart", "2"))
    assert "no other node of" in said
    assert "'streamlogctl local start --dir " in said
    assert local("restart").stdout == "Nodes 1, 2 started.\n"
    assert local("kill", "2").exit_code == 0
    assert local("restart").stdout == "Node 2 started.\nNode 1 restarted.\n"
    assert local("kill", "2").exit_code == 0
    assert "no other node of" in refused(local("restart", "1"))
    assert [node["state"] for node in nodes(local)] == ["running", "stopped"], "it goes on"
    assert "there is no node 5" in refused(local("kill", "5"))


def test_no_cluster_and_no_such_node(local: Local, tmp_path: Path) -> None:
    assert "There is no cluster in" in local("status").stdout
    assert "there is no cluster in" in refused(local("stop"))
    assert "there is no cluster in" in refused(local("kill", "5"))
    assert "there is no cluster in" in refused(local("restart"))
    assert local("kill").exit_code == USAGE
    assert list(tmp_path.iterdir()) == [], "nothing is made where nothing is started"


def test_its_files_are_their_owners_alone(local: Local, tmp_path: Path) -> None:
    """Settings may hold secrets, logs hold records: whatever the umask is."""
    before = os.umask(0o022)
    try:
        started = local("start", "--nodes", "1", "--port", "0")
        assert started.exit_code == 0, started.output
    finally:
        os.umask(before)
    open_to_others = [
        (str(path.relative_to(tmp_path)), oct(path.stat().st_mode))
        for path in [tmp_path / "cluster", *(tmp_path / "cluster").rglob("*")]
        if path.stat().st_mode & 0o077
    ]
    assert open_to_others == []

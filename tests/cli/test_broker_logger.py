"""`streamlogctl broker-logger` on real nodes: reaches the named one, whichever answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from streamlog.cli.main import main
from streamlog.pytest_plugin.cluster import InProcessCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=3) as cluster:
        yield cluster


def run(cluster: InProcessCluster, *arguments: str) -> Result:
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers.split(",")[0]}
    return CliRunner().invoke(main, ("broker-logger", *arguments), env=environment)


def levels(cluster: InProcessCluster, node: int) -> dict[str, tuple[str, bool]]:
    done = run(cluster, "describe", "--broker", str(node), "--output", "json")
    assert done.exit_code == 0, done.output
    return {row["logger"]: (row["level"], row["set"]) for row in json.loads(done.stdout)}


def test_describe_alter_reset(cluster: InProcessCluster) -> None:
    for node in (1, 2, 3):
        done = run(cluster, "alter", "--broker", str(node), "--set", "streamlog.raft=warn,streamlog.requests=DEBUG")
        assert done.exit_code == 0, done.output
        assert f"Logger streamlog.raft of node {node} logs WARN and above.\n" in done.stdout
        assert levels(cluster, node)["streamlog.raft"] == ("WARN", True)
        done = run(cluster, "reset", "--entity-name", str(node), "streamlog.raft")
        assert done.stdout == f"Logger streamlog.raft of node {node} logs INFO and above.\n"
        assert levels(cluster, node)["streamlog.raft"] == ("INFO", False)
        assert levels(cluster, node)["streamlog.requests"] == ("DEBUG", True)
        assert run(cluster, "reset", "--broker", str(node)).exit_code == 0
        assert not any(is_set for _, is_set in levels(cluster, node).values())
    assert run(cluster, "reset", "--broker", "1").stdout == "No logger of node 1 has a level of its own.\n"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("alter", "--broker", "1", "--set", "streamlog.raft=LOUD"), 2, "must be one of DEBUG, INFO, WARN, ERROR"),
        (("alter", "--broker", "1", "--set", "no.such=INFO"), 1, "there is no logger 'no.such'"),
        (("alter", "--broker", "1"), 2, "Give a level"),
        (("alter", "--broker", "9", "--set", "root=INFO"), 1, "streamlogctl cluster describe"),
        (("describe",), 2, "--broker"),
        (("describe", "--broker", "1", "--logger", "no.such"), 2, "has no logger no.such"),
    ],
)
def test_what_is_refused(cluster: InProcessCluster, arguments: tuple[str, ...], exit_code: int, words: str) -> None:
    done = run(cluster, *arguments)
    assert done.exit_code == exit_code
    assert words in done.stderr
    assert "Traceback" not in done.output

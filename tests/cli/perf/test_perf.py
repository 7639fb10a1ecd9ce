"""`streamlogctl perf` on a real cluster: what is written and read is counted, whatever the times are."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamlog.cli.main import main
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.cli.commands import COMMAND, environment


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog")) as cluster:
        cluster.create_topic("perf", partitions=2)
        yield cluster


def perf(cluster: InProcessCluster, *arguments: str) -> Result:
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    return CliRunner().invoke(main, ["perf", *arguments], env=environment)


def facts(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_writing_and_reading(cluster: InProcessCluster) -> None:
    wrote = facts(
        perf(
            cluster,
            "produce",
            "perf",
            "--num-records",
            "3000",
            "--record-size",
            "50",
            "--warmup-records",
            "200",
            "--producer-props",
            "linger.ms=1",
            "-o",
            "json",
        )
    )
    assert (wrote["records"], wrote["errors"]) == (2_800, 0)
    assert (
        0 < wrote["p50_latency_ms"] <= wrote["p99_latency_ms"] <= wrote["p99.9_latency_ms"] <= wrote["max_latency_ms"]
    )
    assert wrote["records_per_sec"] > 0
    read = facts(perf(cluster, "consume", "perf", "--messages", "3000", "-o", "json"))
    assert read["records"] >= 3_000
    assert read["mb"] == pytest.approx(3_000 * 50 / (1 << 20), abs=0.01)


def test_what_was_measured_until_ctrl_c_is_shown(cluster: InProcessCluster) -> None:
    options = ["--num-records", "1000000", "--record-size", "9", "--throughput", "100", "--reporting-interval", "500"]
    command = [*COMMAND, "perf", "produce", "perf", *options, "-o", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment(cluster)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"records sent" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        found = json.loads(process.stdout.read())
        assert process.wait(60) == 130
    assert found["records"] > 0


def test_reading_the_topics_that_a_regular_expression_matches(cluster: InProcessCluster) -> None:
    for topic in ("region-eu", "region-us", "other-region-eu"):
        cluster.create_topic(topic)
        facts(perf(cluster, "produce", topic, "--num-records", "5", "--record-size", "9", "-o", "json"))
    assert facts(perf(cluster, "consume", "region-.*", "--messages", "10", "-o", "json"))["records"] == 10
    more = perf(cluster, "consume", "--topic", "region-.*", "--messages", "11", "--timeout", "500")
    assert "10 of 11 records arrived" in more.stderr, "the topics that it matches as a whole, and no others"
    unmatched = perf(cluster, "consume", "nothing-.*", "--messages", "1")
    assert (unmatched.exit_code, "no topic matches 'nothing-.*'" in unmatched.stderr) == (1, True)


def test_round_trips(cluster: InProcessCluster) -> None:
    found = facts(perf(cluster, "e2e", "perf", "--num-records", "20", "-o", "json"))
    assert found["records"] == 20
    assert found["p50_latency_ms"] > 0


def test_lines_of_a_file_at_a_rate(cluster: InProcessCluster, tmp_path: Path) -> None:
    cluster.create_topic("perf-lines")
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    done = perf(
        cluster, "produce", "perf-lines", "--num-records", "3", "--payload-file", str(file), "--throughput", "1000"
    )
    assert done.exit_code == 0, done.output
    assert "records\t3" in done.stdout.splitlines()
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    printed = CliRunner().invoke(main, ["offsets", "perf-lines"], env=environment)
    assert printed.stdout.splitlines()[1:] == ["perf-lines\t0\t3"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "region-.*"),
        ("perf", "produce", "region-.*", "--num-records", "3", "--record-size", "9"),
        ("perf", "e2e", "--topic", "region-.*"),
        ("verifiable", "produce", "region-.*"),
    ],
)
def test_commands_that_write_take_no_regular_expression(cluster: InProcessCluster, arguments: tuple[str, ...]) -> None:
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    done = CliRunner().invoke(main, arguments, env=environment)
    assert done.exit_code == 2
    assert "'region-.*' is not the name of a topic" in done.stderr
    assert "writes to one topic" in done.stderr


def test_what_is_refused(cluster: InProcessCluster) -> None:
    assert perf(cluster, "produce", "perf", "--num-records", "3").exit_code == 2
    missing = perf(cluster, "produce", "missing", "--num-records", "3", "--record-size", "9")
    assert missing.exit_code == 1
    assert "'missing'" in missing.stderr
    fewer = perf(cluster, "consume", "perf", "--messages", "10000000", "--timeout", "500")
    assert fewer.exit_code == 1
    assert "of 10000000 records arrived; then none for 500 ms." in fewer.stderr


def test_verifiable_clients(cluster: InProcessCluster) -> None:
    """All that is written is read once, by the events that both print."""
    cluster.create_topic("verified", partitions=2)
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}

    def events(*arguments: str, status: int = 0) -> list[dict[str, Any]]:
        done = CliRunner().invoke(main, ["verifiable", *arguments], env=environment)
        assert done.exit_code == status, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    wrote = events("produce", "verified", "--max-messages", "50", "--value-prefix", "7", "--repeating-keys", "5")
    sent = [one for one in wrote if one["name"] == "producer_send_success"]
    assert {one["value"] for one in sent} == {f"7.{number}" for number in range(50)}
    assert [one["name"] for one in (wrote[0], *wrote[-2:])] == ["startup_complete", "shutdown_complete", "tool_data"]
    assert (wrote[-1]["sent"], wrote[-1]["acked"]) == (50, 50)
    read = events("consume", "verified", "--group-id", "v", "--max-messages", "50", "--verbose")
    found = {(one["partition"], one["offset"]): one["value"] for one in read if one["name"] == "record_data"}
    assert found == {(one["partition"], one["offset"]): one["value"] for one in sent}
    assert sum(one["count"] for one in read if one["name"] == "records_consumed") == 50
    committed = [one for one in read if one["name"] == "offsets_committed"]
    assert committed
    assert all(one["success"] for one in committed)
    assert any(one["name"] == "partitions_assigned" for one in read)
    assert read[-1]["name"] == "shutdown_complete"
    matched = events("consume", "verif(ied|y)", "--group-id", "w", "--max-messages", "50", "--verbose")
    assert {(one["topic"], one["value"]) for one in matched if one["name"] == "record_data"} == {
        ("verified", one["value"]) for one in sent
    }
    assert events("consume", "nothing-.*", "--group-id", "w", status=1) == []
    refused = events(
        "produce", "nosuchtopic", "--max-messages", "1", "--producer-property", "max.block.ms=500", status=1
    )
    assert [one["name"] for one in refused][1] == "producer_send_error"

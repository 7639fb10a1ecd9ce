"""The fuzzer itself: it reaches every method, makes the same calls from the same seed, spares what it must, finds what
is planted; and a short run of it.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from streamlog.api.pb import admin_pb2
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.services.admin.reads import ClusterReads

from .calls import Outcome
from .catalogue import methods
from .cluster import TOPICS, FuzzedCluster
from .known import Known
from .messages import MESSAGE_BYTES_MAX, Case, make_case
from .report import Report, load, save
from .session import Fuzzer, Limits, run
from .templates import templates
from .wire import ATTACKS

METHODS = methods()
KNOWN = Known(
    cluster_id="c", node_ids=(1, 2, 3), topics={"fuzz-0": b"a" * 16, "fuzz-1": b"b" * 16}, groups=("fuzz-group",)
)


def cases(count: int, seed: int = 7) -> list[Case]:
    return [make_case(seed, number, METHODS, KNOWN, 3) for number in range(count)]


def parsed(case: Case) -> list[Any]:
    """Those of its messages that are some."""
    found = []
    [kind] = [method.request for method in METHODS if method.path == case.method]
    for data in case.messages:
        try:
            found.append(kind.FromString(data))
        except DecodeError:
            pass
    return found


def test_every_service_is_in_the_catalogue() -> None:
    served = {method.path for method in METHODS}
    for internal in ("Raft/Exchange", "Replication/Replicate", "Controller/Register", "Coordination/WriteMarkers"):
        assert f"/streamlog.internal.v1.{internal}" in served
    assert "/streamlog.internal.v1.Identification/Identify" in served
    assert "/grpc.health.v1.Health/Check" in served
    assert "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" in served
    assert sum(path.startswith("/streamlog.v1.") for path in served) > 40


def test_a_seed_makes_the_same_calls() -> None:
    assert cases(200) == cases(200)
    assert cases(50, seed=8) != cases(50)


def test_calls_are_of_all_kinds_and_bounded() -> None:
    made = cases(3_000)
    assert {case.method for case in made} == {method.path for method in METHODS}
    strategies = Counter(case.strategy for case in made)
    assert set(strategies) == {"random", "valid", "mutated", "hostile", "huge", "real", "perturbed"}
    assert {case.shape for case in made} == {"whole", "half-open", "unread", "cancel", "short"}
    assert max(len(message) for case in made for message in case.messages) <= MESSAGE_BYTES_MAX
    assert max(len(message) for case in made for message in case.messages) > 1 << 20


def test_what_templates_make_is_of_the_methods_type() -> None:
    made = [case for case in cases(2_000) if case.strategy == "real"]
    assert len({case.method for case in made}) > 15
    for case in made:
        assert len(parsed(case)) == len(case.messages)
    assert sum(templates(method.request) is not None for method in METHODS) > 18


def test_what_is_a_callers_right_is_not_done() -> None:
    for case in cases(6_000):
        for message in parsed(case):
            match message.DESCRIPTOR.name:
                case "DrainNodeRequest" | "UnregisterNodeRequest" | "RemoveVoterRequest":
                    assert message.node_id not in KNOWN.node_ids
                case "AlterConfigsRequest":
                    of_others = any(one.resource.name not in KNOWN.topics for one in message.alterations)
                    assert message.validate_only or not of_others
                case "HeartbeatRequest" | "SuspectRequest" | "AlterPartitionRequest":
                    assert message.node_id not in KNOWN.node_ids or message.broker_epoch >= 1 << 40
                case "DeleteTopicsRequest":
                    assert not set(message.topics) & set(TOPICS)


def test_a_case_is_kept_with_its_bytes(tmp_path: Path) -> None:
    for case in cases(30):
        assert load(save(case, tmp_path)) == case


@pytest.mark.parametrize(
    ("outcome", "crashed"),
    [
        (Outcome("UNKNOWN", "", "the node failed to answer"), True),
        (Outcome("INTERNAL"), True),
        (Outcome("OK", "UNKNOWN_SERVER_ERROR"), True),
        (Outcome("UNKNOWN", "OUTCOME_UNKNOWN"), False),
        (Outcome("INVALID_ARGUMENT", "INVALID_REQUEST"), False),
    ],
)
def test_what_a_crash_is(outcome: Outcome, crashed: bool) -> None:
    assert outcome.crashed is crashed


def test_a_planted_defect_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that cannot bear one value of one field."""
    served = ClusterReads.list_topics

    async def cannot_bear_it(self: ClusterReads, request: admin_pb2.ListTopicsRequest, call: Any) -> Any:
        if request.page_size == 40_000:
            raise ZeroDivisionError
        return await served(self, request, call)

    monkeypatch.setattr(ClusterReads, "list_topics", cannot_bear_it)
    report = Report(seed=7)
    _list_topics(report, tmp_path)
    assert report.failures
    assert "Admin/ListTopics ended with UNKNOWN" in report.failures[0]
    [*files] = (tmp_path / "cases").iterdir()
    assert any(message.page_size == 40_000 for path in files for message in parsed(load(path)))
    assert "Admin/ListTopics" in "\n".join(report.lines())


def _list_topics(report: Report, directory: Path) -> None:
    with InProcessCluster(directory / "cluster", nodes=1) as cluster:
        fuzzer = Fuzzer(
            7,
            cluster.bootstrap_servers.split(","),
            KNOWN,
            report,
            directory / "cases",
            threads=1,
            only="Admin/ListTopics",
            calls=600,
        )
        fuzzer.start()
        fuzzer.join()


def test_a_seed_makes_the_same_raw_frames() -> None:
    for name, attack in ATTACKS.items():
        made = [b"".join(attack(random.Random(f"{seed} {name}"))) for seed in (1, 1, 2)]
        assert made[0] == made[1]
        assert len(made[0]) > 1_000


@pytest.mark.process
def test_a_short_run(tmp_path: Path) -> None:
    """Some seconds of `make fuzz`, the same calls each time."""
    with FuzzedCluster(tmp_path / "cluster") as cluster:
        report = run(cluster, 17, Limits(seconds=15, quiet_s=2, threads=6), tmp_path / "cases")
    shown = "\n".join(report.lines())
    assert report.ok, shown
    assert report.calls > 100, shown
    assert "raw connections" in shown
    assert "its latency during raw frames" in shown

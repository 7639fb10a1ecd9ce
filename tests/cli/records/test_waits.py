"""Why records wait for their acknowledgements."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.cli.common.target import Target
from streamlog.cli.records import waits
from streamlog.cli.records.waits import reason_of, report_silence, report_waits
from streamlog.client.admin.values import PartitionDescription, TopicDescription
from streamlog.model import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, TopicId
from tests.cli.served import ServedCluster


def topic(*partitions: tuple[int | None, tuple[int, ...]]) -> TopicDescription:
    """`partitions`: leader and in-sync replicas of each."""
    return TopicDescription(
        name="t",
        topic_id=TopicId(bytes(16)),
        partition_count=len(partitions),
        replication_factor=3,
        configs={},
        partitions=tuple(
            PartitionDescription(
                partition=PartitionId(number),
                leader=None if leader is None else BrokerId(leader),
                leader_epoch=LeaderEpoch(1),
                partition_epoch=PartitionEpoch(1),
                replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
                isr=tuple(map(BrokerId, isr)),
                elr=(),
                adding=(),
                removing=(),
                offline=(),
            )
            for number, (leader, isr) in enumerate(partitions)
        ),
        internal=False,
        error=None,
    )


def test_a_partition_without_a_leader() -> None:
    assert reason_of([topic((1, (1, 2, 3)), (None, (3,)))], 2) == "t-1 without a leader"


def test_an_isr_that_is_too_small() -> None:
    said = "t-0 with fewer in-sync replicas than min.insync.replicas=2"
    assert reason_of([topic((1, (1,)), (1, (1, 2)))], 2) == said


def test_nothing_prevents_it() -> None:
    assert reason_of([topic((1, (1, 2)))], 2) == ""


def test_a_long_list_is_cut() -> None:
    assert reason_of([topic(*[(None, ())] * 9)], 2) == "t-0, t-1, t-2, t-3, t-4 and 4 more without a leader"


async def test_a_lost_quorum_is_said_where_partitions_have_what_they_need(
    served: ServedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the leader is down, and no other can be elected."""
    looks = 0

    async def lost_quorum(_: Target) -> str:
        return "No metadata quorum: 1 of 3 voters answers (see: streamlogctl cluster quorum)"

    def waiting_for() -> object:
        nonlocal looks
        looks += 1
        if looks == 4:
            raise LookupError  # the end of the test
        return waits

    await asyncio.to_thread(served.run, "topic", "create", "t")
    monkeypatch.setattr(waits, "LOOK_S", 0.0)
    monkeypatch.setattr(waits, "lost_quorum", lost_quorum)
    with pytest.raises(LookupError):
        await report_waits(Target(servers=(served.address,), request_timeout_ms=60_000), "t", waiting_for)
    said = (
        "Waiting for acknowledgements: No metadata quorum: 1 of 3 voters answers (see: streamlogctl cluster quorum).\n"
    )
    assert capsys.readouterr().err == said, "once"


class Consumer:
    """That has received so many batches when it is looked at; the test ends with the last look."""

    def __init__(self, *counts: int | None) -> None:
        self._left = list(counts)

    def received(self) -> int | None:
        if not self._left:
            raise LookupError
        return self._left.pop(0)


async def silence(
    served: ServedCluster, topics: list[str], consumer: Consumer, monkeypatch: pytest.MonkeyPatch, *lost: str
) -> None:
    """`lost`: of the quorum, at one look after another."""
    said = iter(lost)

    async def lost_quorum(_: Target) -> str:
        return next(said)

    monkeypatch.setattr(waits, "SILENCE_S", 0.0)
    monkeypatch.setattr(waits, "lost_quorum", lost_quorum)
    with pytest.raises(LookupError):
        await report_silence(Target(servers=(served.address,), request_timeout_ms=60_000), topics, consumer.received)


async def test_a_consumer_whose_output_waits_for_its_reader_awaits_no_records(
    served: ServedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await silence(served, ["t"], Consumer(5, None, None, None, 5), monkeypatch)
    assert not capsys.readouterr().err


ONE, TWO = "No metadata quorum: 1 of 3 voters answers", "No metadata quorum: 0 of 3 voters answer"


async def test_a_consumer_that_receives_nothing_says_why_once(
    served: ServedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(served.run, "topic", "create", "t")
    await silence(served, ["t"], Consumer(5, 5, 5, 5, 5, 5, 5), monkeypatch, ONE, ONE, TWO, "")
    lines = [f"Waiting for records: {reason} (see: streamlogctl cluster health).\n" for reason in (ONE, TWO)]
    assert capsys.readouterr().err == "".join(lines)


async def test_a_consumer_that_receives_records_says_nothing(
    served: ServedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where one arrives while the reason is found."""
    await asyncio.to_thread(served.run, "topic", "create", "t")
    await silence(served, ["t"], Consumer(0, 1, 2, 2, 3, 4), monkeypatch, ONE)
    assert capsys.readouterr().err == ""


async def test_a_topic_that_does_not_exist_is_why_nothing_arrives(
    served: ServedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await silence(served, ["missing"], Consumer(0, 0, 0, 0), monkeypatch)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("Waiting for records: ")
    assert "missing" in line

"""`streamlogctl consume` with a consumer that reads lists."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from streamlog.cli.records import consume as command
from streamlog.model import Offset, PartitionId, TopicPartition


class ListConsumer:
    """Of topic t, the last partition first. A partition's list is one batch of what was not read; `grown` is written
    after the ends are known.
    """

    corrupt_batches_skipped = 0

    def __init__(self, logs: list[list[str]], grown: dict[int, str], owned: int) -> None:
        self.logs = logs
        self.grown = grown
        self.owned = owned  # partitions that the group assigns
        self.settings: dict[str, object] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.polls = 0
        self.positions_asked = 0

    def made(self, settings: dict[str, object]) -> ListConsumer:
        self.settings = settings
        return self

    async def __aenter__(self) -> ListConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def partition_count(self, _topic: str) -> int:
        return len(self.logs)

    def subscribe(self, _topics: list[str]) -> None:
        self.positions = {TopicPartition("t", PartitionId(number)): 0 for number in reversed(range(self.owned))}

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return tuple(self.positions)

    async def assign(self, wanted: list[TopicPartition], *, start: object = None) -> None:
        self.positions = dict.fromkeys(wanted, 0)

    async def end_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        ends = {one: Offset(len(self.logs[one.partition])) for one in wanted}
        self.logs += [[] for _ in range(self.owned - len(self.logs))]
        for partition, value in self.grown.items():
            self.logs[partition].append(value)
        return ends

    async def position(self, partition: TopicPartition) -> int:
        self.positions_asked += 1
        return self.positions[partition]

    def seek(self, partition: TopicPartition, to: int) -> None:
        self.positions[partition] = to

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= set(partitions)

    async def poll_batch(self, timeout_s: float | None) -> Any:
        self.polls += 1
        assert self.polls < 100, "it does not end"
        for one, at in self.positions.items():
            values = self.logs[one.partition]
            if at < len(values) and one not in self.paused:
                self.positions[one] = len(values)
                records = [(offset, 0, None, values[offset].encode(), ()) for offset in range(at, len(values))]
                return SimpleNamespace(
                    topic="t",
                    partition=one.partition,
                    first_offset=Offset(at),
                    next_offset=Offset(len(values)),
                    timestamp_type=0,
                    header=SimpleNamespace(leader_epoch=0),
                    fields=lambda: records,  # noqa: B023  it is called before the next poll
                )
        return None


def consume(consumer: ListConsumer, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    async def topics(*_: object) -> list[str]:
        return ["t"]

    @asynccontextmanager
    async def quiet(*_: object) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(command, "AsyncConsumer", consumer.made)
    monkeypatch.setattr(command, "matched_topics", topics)
    monkeypatch.setattr(command, "reporting_silence", quiet)
    command.consume.main(["t", "--bootstrap-server", "127.0.0.1:1", *arguments], standalone_mode=False)


def test_a_member_commits_what_it_printed_up_to_the_ends_and_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A writer's next record is in the last batch, or alone in one that is fetched while another partition is read."""
    consumer = ListConsumer([["a", "b"], [], ["c"]], grown={0: "later", 1: "later"}, owned=3)
    consume(consumer, monkeypatch, "--group", "g", "--from-beginning", "--until-end")
    assert capfd.readouterr().out == "c\na\nb\n"
    assert list(consumer.positions.values()) == [1, 0, 2]


def test_a_member_whose_partition_is_always_ahead_of_its_end_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No poll is without a batch until the partition is paused."""

    class Written(ListConsumer):
        async def poll_batch(self, timeout_s: float | None) -> Any:
            self.logs[0].append("later")
            return await super().poll_batch(timeout_s)

    consumer = Written([["a"]], grown={}, owned=1)
    consume(consumer, monkeypatch, "--group", "g", "--from-beginning", "--until-end")
    assert capfd.readouterr().out == "a\n"
    assert list(consumer.positions.values()) == [1]


def test_a_member_asks_for_all_positions_only_where_no_batch_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each batch they are as many calls as the square of the partitions; one without a leader may fail its call,
    before the others are read.
    """
    consumer = ListConsumer([["a"]] * 20, grown={}, owned=20)
    consume(consumer, monkeypatch, "--group", "g", "--from-beginning", "--until-end")
    assert list(consumer.positions.values()) == [1] * 20
    assert consumer.positions_asked == 20


def test_a_partition_that_is_added_while_the_member_reads_is_left_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    consumer = ListConsumer([["a"]], grown={1: "later"}, owned=2)
    consume(consumer, monkeypatch, "--group", "g", "--from-beginning", "--until-end")
    assert capfd.readouterr().out == "a\n"
    assert list(consumer.positions.values()) == [0, 1]


def test_a_group_among_the_settings_of_the_consumer_is_joined(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It did not join, and yet committed what it read."""
    consumer = ListConsumer([["a", "b"]], grown={}, owned=1)
    consume(consumer, monkeypatch, "--consumer-property", "group.id=g", "--max-messages", "1")
    assert capfd.readouterr().out == "a\n"
    assert list(consumer.positions.values()) == [1]
    with pytest.raises(click.UsageError, match="--group and --partition are mutually exclusive"):
        consume(consumer, monkeypatch, "--consumer-property", "group.id=g", "--partition", "0")


def test_a_group_of_the_file_is_not_read_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The file is an application's: without --group its commits are not moved."""
    file = tmp_path / "app.properties"
    file.write_text("group.id=billing\nfetch.max.wait.ms=7\n")
    consumer = ListConsumer([["a"]], grown={}, owned=1)
    arguments = ("--command-config", str(file), "--from-beginning", "--max-messages", "1")
    consume(consumer, monkeypatch, *arguments)
    assert (consumer.settings.get("group.id"), consumer.settings["fetch.max.wait.ms"]) == (None, "7")
    consume(consumer, monkeypatch, *arguments, "--group", "g")
    assert consumer.settings["group.id"] == "g"


def test_a_member_sends_heartbeats_while_a_slow_reader_holds_up_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe holds 64 KiB; its reader begins only after the event loop has gone on."""
    beaten = threading.Event()

    class Beating(ListConsumer):
        async def poll_batch(self, timeout_s: float | None) -> Any:
            asyncio.get_running_loop().call_soon(beaten.set)
            return await super().poll_batch(timeout_s)

    consumer = Beating([["x" * 1_000_000, "y"]], grown={}, owned=1)
    reading, writing = os.pipe()
    expected = b"x" * 1_000_000 + b"\ny\n"
    seen: list[object] = []

    def read() -> None:
        seen.append(beaten.wait(10))
        with open(reading, "rb") as pipe:
            seen.append(pipe.read(len(expected)))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with open(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        consume(consumer, monkeypatch, "--group", "g", "--from-beginning", "--max-messages", "2")
    reader.join(30)
    assert seen == [True, expected]


@pytest.mark.parametrize("is_pipe", [True, False])
def test_output_that_does_not_block_costs_no_thread(monkeypatch: pytest.MonkeyPatch, *, is_pipe: bool) -> None:
    """A thread for each batch costs many times as much as the batch."""
    reading, writing = os.pipe() if is_pipe else (None, os.open(os.devnull, os.O_WRONLY))
    threads: list[str] = []

    def written(fd: int, data: bytes) -> int:
        if fd == writing:
            threads.append(threading.current_thread().name)
        return real(fd, data)

    real = os.write
    value = "x" * 10_000
    consumer = ListConsumer([[value], ["", "y"]], grown={}, owned=2)
    with open(writing, "w") as stdout, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        patched.setattr(os, "write", written)
        consume(consumer, monkeypatch, "--from-beginning", "--max-messages", "3")
    assert set(threads) == {threading.main_thread().name}
    if reading is not None:
        expected = f"{value}\n\ny\n".encode()
        with open(reading, "rb") as pipe:
            assert pipe.read(len(expected)) == expected  # the watching thread may hold the other end


def test_the_isolation_level_of_the_file_holds_unless_one_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "app.properties"
    file.write_text("isolation.level=read_committed\n")
    consumer = ListConsumer([["a"]], grown={}, owned=1)
    arguments = ("--command-config", str(file), "--from-beginning", "--max-messages", "1")
    consume(consumer, monkeypatch, *arguments)
    assert consumer.settings["isolation.level"] == "read_committed"
    consume(consumer, monkeypatch, *arguments, "--isolation-level", "read_uncommitted")
    assert consumer.settings["isolation.level"] == "read_uncommitted"

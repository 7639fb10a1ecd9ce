"""Verifiable clients whose output is closed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pytest

from streamlog.cli.perf import verifiable
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.producer.batches.producer_batch import call_back


class ClosedAfterTheFirstLine(io.StringIO):
    def write(self, text: str) -> int:
        if self.getvalue():
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


class FakeClient:
    calls = 0

    def __init__(self, _settings: dict[str, str]) -> None:
        type(self).calls = 0

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @classmethod
    def _called(cls) -> None:
        cls.calls += 1
        assert cls.calls < 100, "it does not end"


class FakeProducer(FakeClient):
    async def enqueue(self, *_: object, **__: object) -> Any:
        self._called()
        sent = SimpleNamespace(result=lambda: SimpleNamespace(partition=0, offset=0))
        return SimpleNamespace(add_done_callback=lambda callback: call_back(callback, sent))


class FakeConsumer(FakeClient):
    commits = 0

    def subscribe(self, *_: object, on_assigned: Callable[..., None], **__: object) -> None:
        pass

    async def poll(self, *_: object, **__: object) -> list[ConsumerRecord]:
        self._called()
        return [SimpleNamespace(topic="t", partition=0, offset=self.calls)]  # type: ignore[list-item]

    async def commit(self) -> None:
        FakeConsumer.commits += 1


def run(monkeypatch: pytest.MonkeyPatch, command: click.Command, *arguments: str) -> None:
    async def reachable(_target: object) -> None:
        pass

    monkeypatch.setattr(verifiable, "check_reachable", reachable)
    monkeypatch.setattr(verifiable, "AsyncProducer", FakeProducer)
    monkeypatch.setattr(verifiable, "AsyncConsumer", FakeConsumer)
    monkeypatch.setattr(sys, "stdout", ClosedAfterTheFirstLine())
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # click replaces both
    with pytest.raises(SystemExit, match="1"):
        command.main(["t", "--bootstrap-server", "127.0.0.1:1", *arguments], standalone_mode=False)


def test_a_producer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, verifiable.produce)
    assert FakeProducer.calls == 1


def test_a_consumer_ends_and_commits_nothing_that_was_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, verifiable.consume, "--group-id", "g")
    assert (FakeConsumer.calls, FakeConsumer.commits) == (1, 0)

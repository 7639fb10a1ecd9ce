"""Ctrl-C in the first `send` to a topic, at each line in turn: the records that follow are written."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from streamlog.client import Producer
from streamlog.client.producer.batches.accumulator import Accumulator
from streamlog.client.producer.batches.pending_records import PendingRecords

pytestmark = pytest.mark.timeout(120)


def interrupted_at(line: int, producer: Producer, topic: str) -> bool:
    """Whether the code has so many lines."""
    codes = [one.__code__ for one in (Accumulator._send_pending, PendingRecords.add)]
    seen = 0

    def within(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return within

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: within if frame.f_code in codes else None)
    try:
        producer.send(topic, b"interrupted")
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_records_after_an_interrupted_first_send_are_written(streamlog_cluster: Any) -> None:
    with Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers, linger_ms=0) as producer:
        for line in range(1, 60):
            topic = f"interrupted-{line}"
            streamlog_cluster.create_topic(topic, partitions=1)
            if not interrupted_at(line, producer, topic):
                break
            assert producer.send(topic, b"next").result(10).partition == 0
        assert line > 10

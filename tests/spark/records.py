"""What is in a topic, for a test that wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamlog.client import EARLIEST, Consumer, ConsumerRecord, Producer

WITHIN_S = 120.0
"""For what must come to pass: a bound against hanging, not a measure."""


def write(servers: str, topic: str, values: list[bytes], **more: object) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, value, **more)  # type: ignore[arg-type]


def committed(servers: str, topic: str) -> list[ConsumerRecord]:
    """All records that a reader of committed ones sees now, up to the high watermarks: nothing may be open."""
    with Consumer(bootstrap_servers=servers, isolation_level="read_uncommitted") as consumer:
        parts = [(topic, number) for number in range(consumer.partition_count(topic))]
        ends = consumer.end_offsets(parts)
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        for partition, end in ends.items():
            consumer.assign({partition: EARLIEST})
            consumer.position(partition)
            while batches := consumer.poll_batches({partition: end}, bytes_max=1 << 20, timeout_s=WITHIN_S):
                found += [
                    ConsumerRecord(partition.topic, partition.partition, *each)
                    for batch in batches
                    for each in batch.records()
                ]
                if batches[-1].next_offset >= end:
                    break
    return found


def until(condition: Callable[[], object], what: str) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < WITHIN_S, f"not within {WITHIN_S:g} s: {what}"
        time.sleep(0.02)  # between two questions

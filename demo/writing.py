"""Writes at a steady rate, and keeps when and where each line was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from msgspec import Struct, field

from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.producer_batch import RecordFuture
from streamlog.errors import StreamlogError
from streamlog.model import Offset

# The interval of sends; the rate does not depend on acknowledgements.
TICK_S: Final = 0.01


class Ack(Struct, frozen=True):
    line: int  # its number, which is its key too
    offset: Offset
    sent_s: float  # on time.monotonic()
    acked_s: float


class Written(Struct):
    """The results of the writes, by partition."""

    sent: dict[int, int] = field(default_factory=dict)  # partition -> lines
    acks: dict[int, list[Ack]] = field(default_factory=dict)  # partition -> in the order of acknowledgement
    failures: list[str] = field(default_factory=list)

    def longest_pause_s(self, partition: int) -> float:
        """The longest time without an acknowledgement while lines were being sent."""
        acks = self.acks.get(partition, [])
        if not acks:
            return 0.0
        moments = [min(ack.sent_s for ack in acks), *sorted(ack.acked_s for ack in acks)]
        return max(later - earlier for earlier, later in pairwise(moments))


async def write_steadily(
    producer: AsyncProducer, topic: str, lines: Sequence[bytes], partitions: int, lines_per_s: int
) -> Written:
    """Line n goes to partition n modulo their count, with its number as key. Waits for all acknowledgements."""
    written = Written(acks={number: [] for number in range(partitions)})
    began = time.monotonic()
    count = 0  # of lines that were sent
    while count < len(lines):
        due = min(len(lines), int((time.monotonic() - began) * lines_per_s))
        for number in range(count, due):
            partition = number % partitions
            sent = producer.send(topic, lines[number], key=b"%d" % number, partition=partition)
            sent.add_done_callback(partial(_note, written, partition, number, time.monotonic()))
            written.sent[partition] = written.sent.get(partition, 0) + 1
        count = due
        await asyncio.sleep(TICK_S)
    await producer.flush()
    return written


def _note(written: Written, partition: int, number: int, sent_s: float, sent: RecordFuture) -> None:
    try:
        offset = sent.result().offset
    except StreamlogError as error:
        written.failures.append(f"line {number}: {error}")
    else:
        written.acks[partition].append(Ack(number, offset, sent_s, time.monotonic()))

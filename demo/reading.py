"""Reads a topic to its end, and compares its records with the acknowledged ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.consumer.start_positions import EARLIEST

READ_TIMEOUT_S: Final = 10.0


async def read_to_end(servers: str, topic: str) -> dict[int, list[ConsumerRecord]]:
    """All records by partition, in the order of their offsets."""
    async with AsyncConsumer(bootstrap_servers=servers) as consumer:
        await consumer.assign_topics([topic], start=EARLIEST)
        ends = await consumer.end_offsets(consumer.assignment)
        found: dict[int, list[ConsumerRecord]] = {int(one.partition): [] for one in ends}
        for one, end in ends.items():
            while await consumer.position(one) < end:
                for record in await consumer.poll(timeout_s=READ_TIMEOUT_S):
                    found[record.partition].append(record)
        return found


class Verdict(Struct, frozen=True):
    """The state of the acknowledged lines."""

    there: int  # once, with the text that was sent
    missing: int
    twice: int
    out_of_order: int

    @property
    def good(self) -> bool:
        return not (self.missing or self.twice or self.out_of_order)


def compare(acked: Sequence[int], records: Sequence[ConsumerRecord], lines: Mapping[int, bytes]) -> Verdict:
    """`acked`: numbers of the lines of one partition, in the order in which they were sent; `records`: all of that
    partition whose key is the number of a line.
    """
    seen = Counter(int(record.key) for record in records if record.key is not None and record.value is not None)
    exact = {int(record.key) for record in records if record.key is not None and record.value == lines[int(record.key)]}
    order = [int(record.key) for record in records if record.key is not None]
    return Verdict(
        there=sum(number in exact and seen[number] == 1 for number in acked),
        missing=sum(number not in exact for number in acked),
        twice=sum(count > 1 for count in seen.values()),
        out_of_order=sum(later < earlier for earlier, later in pairwise(order)),
    )

"""What Kafka 4's DumpLogSegments prints, in the words of `streamlogctl dump`."""

from __future__ import annotations

import re
from collections.abc import Iterator

BATCH = re.compile(
    r"baseOffset: .* producerId: (?P<producer_id>\S+) producerEpoch: (?P<epoch>\S+) .*"
    r"isTransactional: (?P<transactional>\S+) .*position: (?P<position>\d+) .*"
    r"magic: 2 compresscodec: (?P<codec>\S+) .*isvalid: (?P<valid>\S+)"
)
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<time>\w+: -?\d+) keySize: (?P<key_size>\S+) valueSize: (?P<value_size>\S+) "
    r"sequence: (?P<sequence>\S+) (?P<rest>headerKeys: .*)"
)


def lines(printed: str) -> list[str]:
    """Without what stands at the ends of lines, and with the older word for where a log starts."""
    renamed = printed.replace("\nLog starting offset:", "\nStarting offset:")
    return [line.rstrip() for line in renamed.split("\n")]


def as_classic(printed: list[str]) -> Iterator[str]:
    """Lines of Kafka 4 as Kafka 2 would have printed them: a line a record, with the fields of its batch."""
    batch: re.Match[str] | None = None
    for line in printed:
        if header := BATCH.fullmatch(line):
            batch = header
        elif record := RECORD.fullmatch(line):
            assert batch is not None
            yield (
                f"offset: {record['offset']} position: {batch['position']} {record['time']} isvalid: {batch['valid']} "
                f"keysize: {record['key_size']} valuesize: {record['value_size']} magic: 2 "
                f"compresscodec: {batch['codec'].upper()} producerId: {batch['producer_id']} "
                f"producerEpoch: {batch['epoch']} sequence: {record['sequence']} "
                f"isTransactional: {batch['transactional']} {record['rest']}"
            )
        else:
            yield line

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
# Magic 0 and 1.
ENTRY = re.compile(
    r"offset: .* position: (?P<position>\d+) .*magic: (?P<magic>[01]) compresscodec: (?P<codec>\S+) .*"
    r"isvalid: (?P<valid>\S+)"
)
MESSAGE = re.compile(  # the brace is Kafka's
    r"\| offset: (?P<offset>\d+) (?P<time>\w+: -?\d+) keySize: (?P<key_size>\S+) valueSize: (?P<value_size>\S+) "
    r"isValid: true (?P<crc>crc: \d+)\}(?P<rest>.*)"
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
        elif entry := ENTRY.fullmatch(line):
            batch = entry
        elif message := MESSAGE.fullmatch(line):
            assert batch is not None
            yield (
                f"offset: {message['offset']} position: {batch['position']} {message['time']} "
                f"isvalid: {batch['valid']} keysize: {message['key_size']} valuesize: {message['value_size']} "
                f"magic: {batch['magic']} compresscodec: {batch['codec'].upper()} {message['crc']}{message['rest']}"
            )
        else:
            yield line

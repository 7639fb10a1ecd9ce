"""Makes the files of a real Kafka that the tests of `streamlogctl dump` read, and what Kafka says of them.

    python -m tests.interop.golden      (needs Java and Maven)

`tests/cli/dump/kafka-4.2.0/` then holds partitions as the broker has left them after a clean stop, and `dump.txt`:
Kafka's own DumpLogSegments on them, in the classic form (`kafka_lines`). Times, producer ids and members differ from
run to run, so files and `dump.txt` are always made together.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.cli.dump.kafka_files import OFFSETS, SUFFIXES, TARGET, dumped_files, offsets_files

from . import workload
from .kafka_lines import as_classic, lines
from .real_kafka import Broker, Kafka

_PARTITIONS: Final = (
    *(f"codec-{codec}-0" for codec in workload.CODECS),
    "classic-0",
    "log-append-time-0",
    "compacted-0",
    "transactions-0",
)
_SEGMENTS_MAX: Final = 2  # of a partition: a few KB are enough


def make() -> None:
    kafka = Kafka()
    with tempfile.TemporaryDirectory() as root:
        broker = Broker(kafka, Path(root))
        try:
            broker.start()
            workload.fill(kafka, broker)
            broker.stop()
        finally:
            broker.kill()
        shutil.rmtree(TARGET, ignore_errors=True)
        for partition in (*_PARTITIONS, OFFSETS):
            _copy(broker.data / partition, TARGET / partition)
        shutil.copy(broker.data / "recovery-point-offset-checkpoint", TARGET)
    (TARGET / "dump.txt").write_text(_dumped(kafka))


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    logs = sorted(file for file in source.iterdir() if file.suffix == ".log" and file.stat().st_size)
    for log in logs[:_SEGMENTS_MAX]:
        for suffix in SUFFIXES:
            file = log.with_suffix(suffix)
            if file.exists():
                shutil.copy(file, target)
    shutil.copy(source / "leader-epoch-checkpoint", target)


def _dumped(kafka: Kafka) -> str:
    plain = kafka.dump(dumped_files(TARGET), "--print-data-log", compacted=True)
    offsets = kafka.dump(offsets_files(TARGET), "--offsets-decoder")
    return "\n".join(as_classic(lines((plain + offsets).replace(f"{TARGET}/", ""))))


if __name__ == "__main__":
    make()

"""Where the files of a real Kafka are that `python -m tests.interop.golden` has made."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).parent / "kafka-4.2.0"
OFFSETS: Final = "__consumer_offsets-0"
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def dumped_files(directory: Path) -> list[Path]:
    """The files that `dump.txt` is about, in its order; all but those of __consumer_offsets."""
    return sorted(file for file in directory.rglob("*") if file.suffix in SUFFIXES and file.parent.name != OFFSETS)


def offsets_files(directory: Path) -> list[Path]:
    """The log that stands last in `dump.txt`, decoded."""
    return sorted((directory / OFFSETS).glob("*.log"))

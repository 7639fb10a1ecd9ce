"""One real broker fills two data directories for the whole run; tests work on copies of what they change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from . import workload
from .real_kafka import Broker, Kafka, why_not


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return Kafka()


@pytest.fixture(scope="session")
def _filled(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("real-kafka")
    broker, clean = Broker(kafka, root), root / "clean"
    try:
        broker.start()
        workload.fill(kafka, broker)
        broker.stop()
        shutil.copytree(broker.data, clean)
        broker.start()
        workload.fill_more(kafka, broker)
    finally:
        broker.kill()
    return clean, broker.data


@pytest.fixture(scope="session")
def clean_data(_filled: tuple[Path, Path]) -> Path:
    """A real broker's data directory after a clean stop. Read only: copy what a test changes."""
    return _filled[0]


@pytest.fixture(scope="session")
def unclean_data(_filled: tuple[Path, Path]) -> Path:
    """The same directory after more appends and a kill -9. Read only: copy what a test changes."""
    return _filled[1]


def copy_directory(source: Path, target: Path) -> Path:
    """Copy with holes kept: each preallocated index of an unclean stop is 10 MiB of zeros."""
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)
    return target

"""A temporary folder for a part, on the disk to be measured."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(part: str) -> Iterator[Path]:
    """An empty folder, removed afterwards."""
    base = Path("build/bench").absolute() / part
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)

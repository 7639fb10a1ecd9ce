"""Release 0.1.0 as it was, from the frozen copy in release-0.1.0: the code of its nodes and clients, to be run in
processes of their own.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

RELEASE: Final = Path(__file__).parent / "release-0.1.0"
LEVEL: Final = 2
"""Its highest metadata.version."""


def unpack_code(directory: Path) -> Path:
    """What PYTHONPATH must be for its code."""
    unpack(RELEASE / "streamlog.tar.xz", directory)
    return directory


def unpack(archive: Path, directory: Path) -> None:
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):  # not before Python 3.11.4
            opened.extraction_filter = tarfile.data_filter
        opened.extractall(directory)


@contextmanager
def started_from(code: Path) -> Iterator[None]:
    """Nodes and programs that are started in the block run this code; its directory comes before the installed one."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(code)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before

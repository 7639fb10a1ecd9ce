"""Files that others must not read, such as keys and settings with passwords."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, replace: bool = False) -> None:
    """Whole or not at all; readable by the owner alone unless `mode` says otherwise."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        temporary.replace(path)
    else:
        os.link(temporary, path)  # fails if it exists
        temporary.unlink()

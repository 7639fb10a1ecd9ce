"""Reads a file that a user named: a regular one, up to a size, without ever waiting.

To open a FIFO waits for its writer, and a device may never end: neither may stop a program that reads its settings, a
key or a secret.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_regular(path: str | Path, bytes_max: int) -> tuple[bytes, int]:
    """Content and mode. OSError, with `strerror`: also where it is no regular file, or larger."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", str(path))
    return data, stat.S_IMODE(mode)

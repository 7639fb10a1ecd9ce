"""Reads a file that a user names as text: settings, a plan. What else may stand under the name is refused in a
sentence, whatever its size: a log, a disk image, /dev/zero.

A FIFO is read like a file, for shells make one of `<(...)`; no more of it is read than may be in a file.
"""

from __future__ import annotations

import os
from typing import Final

from streamlog.config import PropertiesFile
from streamlog.config.properties import TEXT_LENGTH_MAX
from streamlog.errors import InvalidConfigError

_UTF8_BYTES_MAX: Final = 4  # of a character


def read_properties(path: str) -> PropertiesFile:
    """InvalidConfigError, OSError."""
    return PropertiesFile(path, read_text(path, bytes_max=_UTF8_BYTES_MAX * TEXT_LENGTH_MAX))


def read_text(path: str, *, bytes_max: int) -> str:
    """InvalidConfigError where it is longer or no text in UTF-8; OSError."""
    with open(path, "rb", buffering=0) as file:
        data = bytearray()
        # In pieces: a FIFO gives what is in it, a device as much as it is asked for.
        while len(data) <= bytes_max and (piece := file.read(min(1 << 16, bytes_max + 1 - len(data)))):
            data += piece
    if len(data) > bytes_max:
        raise InvalidConfigError(
            f"{path} has more than {bytes_max} bytes: it is no such file, name another one", field=path, limit=bytes_max
        )
    nul = data.find(b"\0")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _no_text(path, f"byte {error.start} is not UTF-8") from None
    if nul >= 0:
        raise _no_text(path, f"byte {nul} is NUL")
    return text


def write_private(path: str | os.PathLike[str], text: str) -> None:
    """The whole content; nobody but its owner reads it."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def private(path: str, flags: int) -> int:
    """An opener for `open`: a file that is made, or was here before, is its owner's alone (0600)."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _no_text(path: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(f"{path} is no text file: {why}", field=path)

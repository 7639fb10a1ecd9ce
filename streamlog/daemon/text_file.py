"""Reads text files that a user names: settings, a plan. Anything else under that name (a log, a disk image, /dev/zero)
is refused with a message, whatever its size.

A FIFO is read like a file, since shells make one of `<(...)`, up to the maximum size of a file.
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
    """InvalidConfigError if it is longer or not UTF-8 text; OSError."""
    with open(path, "rb", buffering=0) as file:
        data = bytearray()
        # In pieces: a FIFO returns what is in it, a device as much as is requested.
        while len(data) <= bytes_max and (piece := file.read(min(1 << 16, bytes_max + 1 - len(data)))):
            data += piece
    if len(data) > bytes_max:
        raise InvalidConfigError(
            f"{path} has more than {bytes_max} bytes, too many for this kind of file: name another one",
            field=path,
            limit=bytes_max,
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
    """Write the whole file, readable by its owner only."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def private(path: str, flags: int) -> int:
    """An opener for `open`: the file, new or not, gets mode 0600."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _no_text(path: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(f"{path} is not a text file: {why}", field=path)

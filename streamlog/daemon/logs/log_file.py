"""The log file of `-daemon`: rotated by size, `streamlogd-1.log` to `.log.1`, `.log.2`, ...; the oldest is removed.

    write --> the file would exceed daemon.log.max.bytes --> files renamed, a new one opened, stdout and stderr follow
          --> the line is written

A rotation that fails (a directory that cannot be written) leaves the file as it is: the node goes on writing to it, and
tries again with the next line. All files have mode 0600.
"""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from streamlog.daemon.text_file import private


class LogFile(RotatingFileHandler):
    """An output of lines. `max_bytes` 0, or `kept` 0: never rotated."""

    terminator = ""

    def __init__(self, path: Path, *, max_bytes: int, kept: int) -> None:
        """OSError."""
        self._follows: tuple[int, ...] = ()
        super().__init__(path, maxBytes=max_bytes, backupCount=kept, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private)

    def write(self, text: str) -> None:
        """OSError if the line is lost."""
        record = logging.makeLogRecord({"msg": text})
        if self.stream is None:
            self.stream = self._open()
            self._redirect()
        if self.backupCount > 0 and self.shouldRollover(record):
            self._rotate()
        self.stream.write(text)

    def _rotate(self) -> None:
        try:
            self.doRollover()
        except OSError:
            if self.stream is None:
                self.stream = self._open()
        self._redirect()

    def redirect(self, *descriptors: int) -> None:
        """Make these descriptors write to the file, also after rotations: libraries and the interpreter use them."""
        self._follows = descriptors
        self._redirect()

    def _redirect(self) -> None:
        assert self.stream is not None
        for descriptor in self._follows:
            os.dup2(self.stream.fileno(), descriptor)

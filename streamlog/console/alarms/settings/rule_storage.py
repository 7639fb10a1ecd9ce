"""The file of rules on disk: read when it changed, replaced atomically. All calls block on the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from streamlog.console.alarms.settings.rule_file import DEFAULT_SETTINGS, AlarmSettings, RuleFileError, read_settings
from streamlog.regular_file import read_regular

FILE_BYTES_MAX: Final = 1 << 20
_Version = tuple[int, int, int] | str
"""Inode, modification time, size; empty: there is no file; else why it cannot be read."""


class RuleStorage:
    """`settings`: of the last valid file. `problems`: why the present one is not used; empty: it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings: AlarmSettings = DEFAULT_SETTINGS
        self.problems: list[str] = []
        self._version: _Version | None = None  # None: not read yet

    @property
    def complete(self) -> bool:
        """False: rules of the file may be missing in `settings`."""
        return not self.problems

    def reload(self) -> bool:
        """True: the file changed since the last call."""
        before = self._version
        try:
            self._version = self._current()
            if self._version == before:
                return False
            self.settings = read_settings(self.text()) if self._version else DEFAULT_SETTINGS
            self.problems = []
        except RuleFileError as error:
            self.problems = [f"{self.path}: {one}" for one in error.problems]
        except OSError as error:
            self._version = str(error.strerror)
            self.problems = [f"{self.path}: {error.strerror}"]
        return self._version != before

    def _current(self) -> _Version:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ""
        return found.st_ino, found.st_mtime_ns, found.st_size

    def text(self) -> str:
        """Empty: there is no file. OSError, RuleFileError."""
        try:
            data, _ = read_regular(self.path, FILE_BYTES_MAX)
        except FileNotFoundError:
            return ""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise RuleFileError([f"not UTF-8, at byte {error.start}"]) from None

    def edit(self, change: Callable[[str], str]) -> None:
        """Replaces the text by `change` of it, if that is valid. RuleFileError, OSError: the file is unchanged."""
        text = change(self.text())
        read_settings(text)
        target = self.path.resolve()  # a link stays one
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
            directory = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        finally:
            beside.unlink(missing_ok=True)
        self.reload()


def check_file(path: Path) -> AlarmSettings:
    """For scripts. RuleFileError with the path in each problem; OSError."""
    storage = RuleStorage(path)
    path.stat()
    storage.reload()
    if storage.problems:
        raise RuleFileError(storage.problems)
    return storage.settings

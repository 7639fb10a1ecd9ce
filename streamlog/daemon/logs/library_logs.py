"""What libraries log, warn of, or raise where no code catches it: as lines of the node's log, in its format.

Python's own handlers would write to stderr as they like: no time, no level, control characters as they come, and no
JSON. Levels follow those of the node's loggers (`LogLevels`), so that a library makes no record that is not logged.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Final

from streamlog.daemon.logs.log_lines import LogLines
from streamlog.ports.log_levels import LIBRARIES, ROOT, LogLevel, LogLevels

TEXT_LENGTH_MAX: Final = 10_000  # characters of one line with its traceback


class _Lines(logging.Handler):
    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the handler's lock: a record that is made within the write of a line, by the garbage collector, would
        wait for the thread that has this lock and waits for that write.
        """
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001  a library's arguments do not fit its text
            text = f"{record.msg!r} ({type(error).__name__} when it was formatted)"
        self._lines.write(_level(record.levelno), f"{record.name}: {_bounded(text)}", logger=record.name)


def _level(number: int) -> str:
    return next((level for level in reversed(LogLevel) if number >= level), LogLevel.DEBUG).name


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}…"


def install(lines: LogLines, levels: LogLevels) -> None:
    """For the rest of the process."""
    root = logging.getLogger()
    root.handlers[:] = [_Lines(lines)]
    logging.captureWarnings(True)

    def follow() -> None:
        root.setLevel(levels.level(ROOT))
        for name in LIBRARIES:
            logging.getLogger(name).setLevel(levels.level(name))

    follow()
    levels.listen(follow)

    def failed(what: str, error: BaseException | None) -> None:
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        lines.write("ERROR", _bounded(f"{what}: {error!r}\n{text}"))

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_type is not SystemExit:
            failed(f"thread {arguments.thread.name if arguments.thread else '?'} failed", arguments.exc_value)

    threading.excepthook = in_thread
    sys.unraisablehook = lambda ignored: failed(f"ignored in {ignored.object!r}", ignored.exc_value)

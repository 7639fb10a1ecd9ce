"""With what a Python process of Spark is started."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Final

THREADS: Final = "OMP_NUM_THREADS"
SINGLE: Final = "1"
TASKS: Final = "pyspark.worker"
QUIET: Final = "STREAMLOG_SPARK_QUIET"
"""A variable, 1: each daemon is to be `QUIET_DAEMON`, also those for which Spark has no setting of the module."""
QUIET_DAEMON: Final = "streamlog.spark.runtime.quiet_daemon"
_DAEMON: Final = "pyspark.daemon"
_DAEMONS: Final = (_DAEMON, QUIET_DAEMON)
_OTHERS: Final = (TASKS, "pyspark.sql.")
_END: Final = b"\0"
"""Of an argument, of a variable: they cannot contain it."""


def variables(texts: Iterable[str]) -> dict[str, str]:
    """From name=value. The first of a name is the one that counts, as for Python."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        found.setdefault(name, value)
    return found


def is_of_spark(module: str) -> bool:
    """Whether Spark runs it, as its worker."""
    return module in _DAEMONS or module.startswith(_OTHERS)


class Start:
    """A Python process that Spark starts: `python -m module arguments`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], *, programs: str) -> None:
        """`programs`: the directory of the program that Spark has started."""
        self.programs = programs
        self.module = module
        self.arguments = arguments
        self.environment = environment

    def encode(self) -> bytes:
        texts = [self.programs, self.module, str(len(self.arguments)), *self.arguments]
        texts += [f"{name}={value}" for name, value in self.environment.items()]
        return b"".join(os.fsencode(text) + _END for text in texts)

    @classmethod
    def decode(cls, encoded: bytes) -> Start:
        """ValueError."""
        programs, module, count, *texts = [os.fsdecode(text) for text in encoded.removesuffix(_END).split(_END)]
        if not encoded.endswith(_END) or not 0 <= int(count) <= len(texts):
            raise ValueError("cut short")
        return cls(module, texts[: int(count)], variables(texts[int(count) :]), programs=programs)

    @property
    def is_daemon(self) -> bool:
        return self.module in _DAEMONS

    def may_be_forked(self) -> bool:
        """False: it is not Spark's, or numpy, which the fork server has imported for one thread, is to have several."""
        return is_of_spark(self.module) and self.environment.get(THREADS, SINGLE) == SINGLE

    def run(self) -> None:
        """As `python -m` does it."""
        import runpy

        module = QUIET_DAEMON if self.module == _DAEMON and self.environment.get(QUIET) == "1" else self.module
        sys.argv = [module, *self.arguments]
        sys.modules.pop(module, None)  # imported by the fork server, it would not be run, or with a warning
        runpy.run_module(module, run_name="__main__", alter_sys=True)

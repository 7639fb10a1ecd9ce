"""With what a Python process of Spark is started."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

THREADS: Final = "OMP_NUM_THREADS"
SINGLE: Final = "1"


class Start(NamedTuple):
    """A Python process that Spark starts: `python -m module arguments`."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, encoded: bytes) -> Start:
        """ValueError, TypeError."""
        return cls(*json.loads(encoded))

    def may_be_forked(self) -> bool:
        """False: numpy, which the fork server has imported for one thread, is to have several."""
        return self.environment.get(THREADS, SINGLE) == SINGLE

    def run(self) -> None:
        """As `python -m` does it."""
        sys.argv = [self.module, *self.arguments]
        sys.modules.pop(self.module, None)  # imported by the fork server, it would not be run, or with a warning
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)

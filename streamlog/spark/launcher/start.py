"""With what a Python process of Spark is started."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

THREADS: Final = "OMP_NUM_THREADS"
SINGLE: Final = "1"
_END: Final = b"\0"
"""Of an argument, of a variable: they cannot contain it."""


class Start:
    """A Python process that Spark starts: `python -m module arguments`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.module = module
        self.arguments = arguments
        self.environment = environment

    def encode(self) -> bytes:
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        texts = [self.module, str(len(self.arguments)), *self.arguments, *variables]
        return b"".join(os.fsencode(text) + _END for text in texts)

    @classmethod
    def decode(cls, encoded: bytes) -> Start:
        """ValueError."""
        module, count, *texts = [os.fsdecode(text) for text in encoded.removesuffix(_END).split(_END)]
        if not encoded.endswith(_END) or not 0 <= int(count) <= len(texts):
            raise ValueError("cut short")
        arguments, variables = texts[: int(count)], texts[int(count) :]
        pairs = [text.partition("=") for text in variables]
        return cls(module, arguments, {name: value for name, _, value in pairs})

    def may_be_forked(self) -> bool:
        """False: numpy, which the fork server has imported for one thread, is to have several."""
        return self.environment.get(THREADS, SINGLE) == SINGLE

    def run(self) -> None:
        """As `python -m` does it."""
        import runpy

        sys.argv = [self.module, *self.arguments]
        sys.modules.pop(self.module, None)  # imported by the fork server, it would not be run, or with a warning
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)

"""Forked processes: clients need threads, their own and gRPC's, which a forked process does not have.

In a forked process, a call of an inherited client would wait for ever, and a new client hangs or crashes in gRPC, whose
locks were copied in the state they had. So both are refused. A process whose ancestors have not used the network may.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from streamlog.errors import ClientClosedError


class _Process(Struct):
    uses_network: bool = False
    is_forked: bool = False  # from one that used the network, or from a fork of such a process


_this: Final = _Process()


def is_forked() -> bool:
    """Whether this process was forked from one that had used the network."""
    return _this.is_forked


def check_process() -> None:
    """ClientClosedError."""
    if _this.is_forked:
        raise ClientClosedError(
            "this process was forked from one that had used a streamlog client, and no client works in it: create the"
            " first client after the fork, or spawn processes, as multiprocessing.set_start_method('spawn') does"
        )


def note_use() -> None:
    """Note that this process uses the network. ClientClosedError."""
    check_process()
    _this.uses_network = True


def _in_child() -> None:
    _this.is_forked |= _this.uses_network


os.register_at_fork(after_in_child=_in_child)

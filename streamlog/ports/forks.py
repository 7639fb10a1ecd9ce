"""Forked processes: clients live in threads, their own and gRPC's, and a fork leaves all of them behind.

A call of a client that came along with the fork would wait for ever, a new one hangs or crashes in gRPC, whose locks
came along as they stood. So both are refused. A process whose ancestors have used no network may use one.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from streamlog.errors import ClientClosedError


class _Process(Struct):
    uses_network: bool = False
    is_forked: bool = False  # from one that used the network, or was itself forked from such a one


_this: Final = _Process()


def is_forked() -> bool:
    """Whether this process was forked from one that had used the network."""
    return _this.is_forked


def check_process() -> None:
    """ClientClosedError."""
    if _this.is_forked:
        raise ClientClosedError(
            "this process was forked from one that had used a streamlog client, and none works in it: make the first"
            " one after the fork, or start processes by spawn, as multiprocessing.set_start_method('spawn') does"
        )


def note_use() -> None:
    """That this process uses the network. ClientClosedError."""
    check_process()
    _this.uses_network = True


def _in_child() -> None:
    _this.is_forked |= _this.uses_network


os.register_at_fork(after_in_child=_in_child)

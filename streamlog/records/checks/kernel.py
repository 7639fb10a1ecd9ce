"""The optional package streamlog-kernel (kernel/ in the repository): a batch's records checked and decoded in C.

Its one answer is "valid". Where it is not installed, or has no answer, Python decides: `record_check` for what clients
send, `record_loop` for what logs hold. So it changes what records cost, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from streamlog.records.header import Buffer

# Records, their count, base timestamp, whether keys are required; smallest and largest timestamp of valid records.
ValidTimes: TypeAlias = Callable[[Buffer, int, int, bool], tuple[int, int] | None]
# Records, their count, base offset, last offset delta, base timestamp, whether it is that of all; head, kind: rows of
# that kind of tuple, with the values of `head` before the fields of Record.
Rows: TypeAlias = Callable[[bytes, int, int, int, int, bool, tuple[Any, ...], type], Iterator[Any] | None]

_INTERFACE: Final = 3


class _Kernel(NamedTuple):
    valid_times: ValidTimes | None
    rows: Rows | None


def _found() -> _Kernel:
    try:
        import streamlog_kernel
    except ImportError:
        return _Kernel(None, None)
    if streamlog_kernel.INTERFACE != _INTERFACE:
        return _Kernel(None, None)
    return _Kernel(streamlog_kernel.valid_times, streamlog_kernel.rows)


valid_times, rows = _found()

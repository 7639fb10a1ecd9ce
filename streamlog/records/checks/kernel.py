"""The optional package streamlog-kernel (kernel/ in the repository): the check of a batch's records in C.

Its one answer is "valid". Where it is not installed, or has no answer, the Python of `record_check` decides: so it
changes what a check costs, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from streamlog.records.header import Buffer

# Records, their count, base timestamp, whether keys are required; smallest and largest timestamp of valid records.
ValidTimes: TypeAlias = Callable[[Buffer, int, int, bool], tuple[int, int] | None]

_INTERFACE: Final = 1


def _found() -> ValidTimes | None:
    try:
        import streamlog_kernel
    except ImportError:
        return None
    found: ValidTimes | None = streamlog_kernel.valid_times if streamlog_kernel.INTERFACE == _INTERFACE else None
    return found


valid_times: Final = _found()

"""The header `traceparent` of W3C Trace Context: which of its values are valid. Pure.

    00-<32 hex digits: trace>-<16: span>-<2: flags>

Values come from strangers, in records and requests. One that is not valid is ignored, as the specification requires,
and never an error.
"""

from __future__ import annotations

import re
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACEPARENT_LENGTH: Final = 55  # of version 00, the only one; others begin with as many characters of the same form
TRACESTATE_LENGTH_MAX: Final = 512
_FORM: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


def is_traceparent(text: str) -> bool:
    return len(text) == TRACEPARENT_LENGTH and _FORM.fullmatch(text) is not None


def is_sampled(traceparent: str) -> bool:
    """Whether its caller records it. Of a valid one."""
    return bool(int(traceparent[-1], 16) & 1)

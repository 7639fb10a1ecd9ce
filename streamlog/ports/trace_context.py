"""The header `traceparent` of W3C Trace Context: which of its values are valid. Pure.

    00-<32 hex digits: trace>-<16: span>-<2: flags>

Values come from strangers, in records and requests. One that is not valid is ignored, as the specification requires,
and never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from streamlog.ports.tracing import LINKS_MAX

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


def contexts_in(headers: Iterable[Sequence[tuple[str, bytes | None]]]) -> list[str]:
    """Of records with these headers: each context once, at most LINKS_MAX; the sampled ones, or the first one where
    none is. Nodes record nothing below one that is not sampled.
    """
    found: dict[str, None] = {}
    unsampled = ""
    for text in _traceparents(headers):
        if is_sampled(text):
            found[text] = None
            if len(found) == LINKS_MAX:
                break
        else:
            unsampled = unsampled or text
    return list(found) or ([unsampled] if unsampled else [])


def _traceparents(headers: Iterable[Sequence[tuple[str, bytes | None]]]) -> Iterator[str]:
    last: object = None  # records of `send_many` share their headers
    for one in headers:
        if one and one is not last:
            last = one
            given = next((value for name, value in reversed(one) if name == TRACEPARENT), None)
            if given is not None and len(given) == TRACEPARENT_LENGTH:
                text = given.decode("latin-1")
                if is_traceparent(text):
                    yield text

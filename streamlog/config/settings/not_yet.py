"""Settings that have no effect in this release, each with the reason.

A value other than the default gives a warning (`WARNED`); for a security setting a warning is not enough (`REFUSED`).
tests/config/test_read.py compares the list with the code: a setting that is read must not be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PEM: Final = "keys and certificates are always PEM"

NOT_YET: Final[Mapping[str, str]] = {
    "ssl.keystore.type": _PEM,
    "ssl.truststore.type": _PEM,
    "ssl.client.auth": "a certificate is always required: nodes and clients share one listener, where gRPC cannot make "
    "it optional",
    "exclude.internal.topics": "topics cannot be selected by a pattern",
    "offsets.commit.timeout.ms": "a commit waits until the deadline of its call",
}

# A node that ignored one of these would be open where its operator believes it protected.
REFUSED: Final = ("ssl.client.auth",)
WARNED: Final = frozenset(NOT_YET)

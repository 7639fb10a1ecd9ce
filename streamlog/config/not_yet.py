"""Settings that have no effect in this release, each with the reason.

A value other than the default gives a warning (`WARNED`); for a security setting a warning is not enough (`REFUSED`).
tests/config/test_read.py compares the list with the code: a setting that is read must not be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PEM: Final = "keys and certificates are always PEM"
_AUTHORIZATION: Final = "there is no authorization yet: any caller with a connection may do everything"

NOT_YET: Final[Mapping[str, str]] = {
    "ssl.keystore.type": _PEM,
    "ssl.truststore.type": _PEM,
    "ssl.client.auth": "it is always required: nodes are known by their certificates",
    "bearer.token": _AUTHORIZATION,
    "bearer.tokens.file": _AUTHORIZATION,
    "authorizer.class.name": _AUTHORIZATION,
    "super.users": _AUTHORIZATION,
    "allow.everyone.if.no.acl.found": _AUTHORIZATION,
    "audit.log.file": "there is no audit log yet",
    "exclude.internal.topics": "topics cannot be selected by a pattern",
    "offsets.commit.timeout.ms": "a commit waits until the deadline of its call",
}

# A node that ignored one of these would be open where its operator believes it protected.
REFUSED: Final = ("bearer.tokens.file", "authorizer.class.name", "audit.log.file")
WARNED: Final = frozenset(NOT_YET) - {"bearer.token"}

"""Settings that have no effect in this release, each with the reason.

A value other than the default gives a warning (`WARNED`); for a security setting a warning is not enough (`REFUSED`).
tests/config/test_read.py compares the list with the code: a setting that is read must not be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TLS: Final = "there is no TLS yet"
_AUTHORIZATION: Final = "there is no authentication or authorization yet: all clients may do everything"

NOT_YET: Final[Mapping[str, str]] = {
    "ssl.keystore.type": _TLS,
    "ssl.keystore.location": _TLS,
    "ssl.keystore.key": _TLS,
    "ssl.keystore.certificate.chain": _TLS,
    "ssl.truststore.type": _TLS,
    "ssl.truststore.location": _TLS,
    "ssl.truststore.certificates": _TLS,
    "ssl.client.auth": _TLS,
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
# TLS settings need no warning: a listener or security.protocol with TLS is refused.
WARNED: Final = frozenset(name for name, why in NOT_YET.items() if why != _TLS and name != "bearer.token")

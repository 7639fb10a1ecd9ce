"""Settings that nothing reads in this release, each with what it is for.

Whoever sets one to anything but its default is told (`TOLD`). Of a setting that would protect something, a warning is
not enough (`REFUSED`). tests/config/test_read.py holds this against the code: what is read leaves the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TLS: Final = "there is no TLS yet"
_AUTHORIZATION: Final = "nobody is told apart, and everything is allowed to everybody"

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
    "audit.log.file": "nothing is audited",
    "exclude.internal.topics": "topics are not chosen by a pattern",
    "offsets.commit.timeout.ms": "a commit waits as long as its call",
}

# A node that has one of these set, and does not heed it, would be open where its owner believes it closed.
REFUSED: Final = ("bearer.tokens.file", "authorizer.class.name", "audit.log.file")
# Of TLS nothing need be told: what asks for it, a listener or security.protocol, is refused.
TOLD: Final = frozenset(name for name, why in NOT_YET.items() if why != _TLS and name != "bearer.token")

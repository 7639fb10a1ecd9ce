"""Settings that have no effect in this release, each with the reason.

A value other than the default gives a warning (`WARNED`). A security setting must not be in the list: a node that
ignored it would be open where its operator believes it protected, so what is not possible is refused by a rule.
tests/config/test_read.py compares the list with the code: a setting that is read must not be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PEM: Final = "keys and certificates are always PEM"

NOT_YET: Final[Mapping[str, str]] = {
    "ssl.keystore.type": _PEM,
    "ssl.truststore.type": _PEM,
    "exclude.internal.topics": "a pattern never selects internal topics",
    "offsets.commit.timeout.ms": "a commit waits until the deadline of its call",
}

WARNED: Final = frozenset(NOT_YET)

"""Logins with passwords, and what callers were refused. All are 0 without an authorizer."""

from __future__ import annotations

from streamlog.metrics.families import Family, counter
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer


def access_families(authorizer: Authorizer, logins: Authenticator | None) -> list[Family]:
    """`logins`: None without an authorizer."""
    accepted, refused = (0, 0) if logins is None else (logins.accepted, logins.refused)
    return [
        counter(
            "streamlog_logins_total",
            "Passwords of callers that were checked, and attempts that came too soon after failed ones; one that was "
            "accepted is not checked again for ten minutes.",
            [(("accepted",), accepted), (("refused",), refused)],
            ("result",),
        ),
        counter(
            "streamlog_authorization_refused_total",
            "Rights that callers lacked, by kind of resource; topics that were only left out of an answer are not "
            "counted.",
            [((kind.name.lower(),), count) for kind, count in authorizer.refused.items()],
            ("resource",),
        ),
    ]

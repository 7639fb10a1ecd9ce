"""Logins with passwords and tokens, and what callers were refused. All are 0 without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.metrics.families import Family, counter
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer

if TYPE_CHECKING:
    from streamlog.services.access.token_logins import TokenLogins


def access_families(
    authorizer: Authorizer, logins: Authenticator | None, tokens: TokenLogins | None = None
) -> list[Family]:
    """`logins`: None without an authorizer. `tokens`: None without an issuer."""
    accepted, refused = (0, 0) if logins is None else (logins.accepted, logins.refused)
    verified, rejected = (0, 0) if tokens is None else (tokens.accepted, tokens.refused)
    return [
        counter(
            "streamlog_logins_total",
            "Passwords of callers that were checked, and attempts that came too soon after failed ones; one that was "
            "accepted is not checked again for ten minutes.",
            [(("accepted",), accepted), (("refused",), refused)],
            ("result",),
        ),
        counter(
            "streamlog_token_logins_total",
            "Bearer tokens of callers that were verified; one that was accepted is not verified again for ten minutes.",
            [(("accepted",), verified), (("refused",), rejected)],
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

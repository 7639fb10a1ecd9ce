"""The access file (`--access FILE`): TOML, meant to be versioned, so it holds no secret.

    [[values]]                              # what of records is not shown to whom; see values.py
    topics = "payments.*"
    roles = ["viewer", "operator"]
    hide = ["value"]

    [oidc]                                  # logins by a provider of OpenID Connect; see oidc.py
    issuer = "https://login.example/realms/main"
    client_id = "streamlog-console"
    client_secret_file = "/etc/streamlog/oidc.secret"
    claim = "groups"
    [oidc.roles]
    admin = ["sre"]
    viewer = ["dev", "support"]

Unknown names, wrong types and rules that can have no effect are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from streamlog.console.access.database import AccessError
from streamlog.console.access.roles import UserRole
from streamlog.console.access.values import ValueRule
from streamlog.regular_file import read_regular

BYTES_MAX: Final = 1 << 20
RULES_MAX: Final = 1_000


class OidcSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`roles`: role -> values of the claim. The highest role that matches is the user's; without one it is refused."""

    issuer: str
    client_id: str
    client_secret_file: str = ""  # empty: a public client, protected by PKCE alone
    claim: str = "groups"  # dots: of nested objects, such as realm_access.roles
    roles: Mapping[str, tuple[str, ...]]
    name_claim: str = "preferred_username"  # else email, else sub
    scopes: tuple[str, ...] = ("openid", "profile", "email")


class AccessSettings(Struct, frozen=True, forbid_unknown_fields=True):
    values: tuple[ValueRule, ...] = field(default=())
    oidc: OidcSettings | None = None


def load(path: Path) -> AccessSettings:
    """AccessError."""
    try:
        data, _ = read_regular(path, BYTES_MAX)
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}.") from None
    try:
        found = msgspec.toml.decode(data, type=AccessSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: {error}.") from None
    problem = _problem(found)
    if problem:
        raise AccessError(f"{path}: {problem}.")
    return found


def _problem(found: AccessSettings) -> str:
    if len(found.values) > RULES_MAX:
        return f"{len(found.values)} rules in [[values]]; the limit is {RULES_MAX}"
    for number, rule in enumerate(found.values, 1):
        if problem := _problem_of_rule(rule):
            return f"[[values]] number {number}: {problem}"
    return "" if found.oidc is None else _problem_of_oidc(found.oidc)


def _problem_of_rule(rule: ValueRule) -> str:
    if not rule.topics:
        return "topics is empty; '*' means all"
    if not rule.roles:
        return "roles is empty: the rule applies to no one"
    if not rule.hide and not rule.mask:
        return "neither hide nor mask is given: the rule has no effect"
    for path in rule.mask:
        if not path or not all(path.split(".")):
            return f"mask {path!r} has an empty name"
    return _problem_of_roles(rule.roles)


def _problem_of_roles(roles: tuple[str, ...]) -> str:
    for label in roles:
        try:
            UserRole.of(label)
        except ValueError as error:
            return str(error)
    return ""


def _problem_of_oidc(found: OidcSettings) -> str:
    issuer = urlsplit(found.issuer)
    if not issuer.hostname or issuer.scheme not in ("https", "http"):
        return f"[oidc]: issuer {found.issuer!r} is not an address such as https://login.example"
    if issuer.scheme == "http" and not is_loopback(issuer.hostname):
        return f"[oidc]: issuer {found.issuer} must use https"
    if not found.client_id:
        return "[oidc]: client_id is empty"
    if "openid" not in found.scopes:
        return "[oidc]: scopes must contain openid"
    if not any(found.roles.values()):
        return "[oidc.roles] is empty: no one could log in"
    problem = _problem_of_roles(tuple(found.roles))
    return f"[oidc.roles]: {problem}" if problem else ""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

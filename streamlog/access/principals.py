"""The principal of a certificate: its distinguished name, as mapped by `ssl.principal.mapping.rules` (KIP-371).

    RULE:pattern/replacement/[LU]    the first rule whose pattern matches the whole name: its replacement, with $1 for
                                     a group, in lower or upper case
    DEFAULT                          the name itself

Without a rule that matches, the name itself, which is as RFC 2253 writes it: `CN=orders,O=streamlog`. A listener may
have rules of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

ANONYMOUS: Final = "User:ANONYMOUS"
DISTINGUISHED_NAME_MAX: Final = 900
_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP: Final = re.compile(r"\$([0-9])")


class MappingRule(Struct, frozen=True):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str = ""
    case: str = ""  # `L`, `U`


class PrincipalMapping:
    """The rules of a node's listeners."""

    def __init__(
        self, common: Sequence[MappingRule] = (), of_listeners: Mapping[str, Sequence[MappingRule]] | None = None
    ) -> None:
        """`of_listeners`: by name, of those that have their own."""
        self._common = common
        self._of_listeners = of_listeners or {}

    def principal(self, subject: str, listener: str) -> str:
        """`User:` and the mapped name. `listener`: by which the caller came; empty: the only one."""
        return principal_of(subject, self._of_listeners.get(listener, self._common))


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Separated by commas. ValueError."""
    rules: list[MappingRule] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ValueError(f"must be RULE:pattern/replacement/[LU] or DEFAULT at {text[at : at + 40]!r}")
        at = match.end()
        if match[1]:
            rules.append(MappingRule(None))
        else:
            rules.append(_rule(match[2], match[3], match[4]))
        rest = re.compile(r"\s*(,\s*|$)").match(text, at)
        if rest is None:
            raise ValueError(f"must have a comma between rules at {text[at : at + 40]!r}")
        at = rest.end()
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> MappingRule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
    wanted = max((int(match[1]) for match in _GROUP.finditer(replacement)), default=0)
    if wanted > compiled.groups:
        raise ValueError(f"replacement {replacement!r} has ${wanted}, the pattern only {compiled.groups} groups")
    return MappingRule(compiled, replacement, case)


def principal_of(subject: str, rules: Sequence[MappingRule]) -> str:
    """`User:` and the mapped name."""
    subject = subject[:DISTINGUISHED_NAME_MAX]
    for rule in rules:
        if rule.pattern is None:
            break
        match = rule.pattern.fullmatch(subject)
        if match is not None:
            return f"User:{_cased(_replaced(match, rule.replacement), rule.case)}"
    return f"User:{subject}"


def _replaced(match: re.Match[str], replacement: str) -> str:
    return _GROUP.sub(lambda group: match[int(group[1])] or "", replacement)


def _cased(name: str, case: str) -> str:
    if case == "L":
        return name.lower()
    return name.upper() if case == "U" else name

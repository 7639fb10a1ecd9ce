"""Hiding and masking what records hold, by topic and role. Pure.

    rule      topics (a glob), roles, `hide` (key, value, headers), `mask` (paths of JSON fields in the value)

All rules that match a topic and a role apply. A record is protected as soon as it is read: before a search looks into
it, before it is decoded, shown, downloaded or sent to a live page. So what is masked can neither be seen nor be found.

A path has names separated by dots. `*` is any one name or list index, `**` any number of them; lists need not be named:
`persons.iban` masks the field in each element. What cannot be masked is hidden: a value that is not a JSON object or
list, and one that is nested too deeply.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from streamlog.client import ConsumerRecord
from streamlog.console.access.roles import UserRole

HIDDEN: Final = "(hidden)"
MASKED: Final = "***"
_HIDDEN: Final = HIDDEN.encode()

Part = Literal["key", "value", "headers"]
Path = tuple[str, ...]


class ValueRule(Struct, frozen=True, forbid_unknown_fields=True):
    """As in the access file (`[[values]]`)."""

    topics: str
    roles: tuple[str, ...]
    hide: tuple[Part, ...] = ()
    mask: tuple[str, ...] = ()


class Protection(Struct, frozen=True):
    """What one user may not see of one topic."""

    hide: frozenset[str] = frozenset()
    mask: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hide or self.mask)

    def record(self, record: ConsumerRecord) -> ConsumerRecord:
        if not self:
            return record
        key = record.key
        if key is not None and "key" in self.hide:
            key = _HIDDEN
        headers = record.headers
        if "headers" in self.hide:
            headers = tuple((name, None if value is None else _HIDDEN) for name, value in headers)
        return record._replace(key=key, value=self._value(record.value), headers=headers)

    def document(self, document: object) -> object:
        """A value that was decoded by a schema. Fields that are masked are replaced."""
        if "value" in self.hide:
            return HIDDEN
        if not self.mask:
            return document
        return _masked(document, frozenset(self.mask)) if isinstance(document, dict | list) else HIDDEN

    def _value(self, value: bytes | None) -> bytes | None:
        if value is None or not (self.mask or "value" in self.hide):
            return value
        if "value" in self.hide:
            return _HIDDEN
        try:
            document = json.loads(value)
            if not isinstance(document, dict | list):
                return _HIDDEN
            return json.dumps(_masked(document, frozenset(self.mask)), ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # not JSON, lone surrogates, too deep
            return _HIDDEN


NOTHING: Final = Protection()


def protection(rules: Sequence[ValueRule], topic: str, role: UserRole) -> Protection:
    matching = [one for one in rules if role.label in one.roles and fnmatch.fnmatchcase(topic, one.topics)]
    if not matching:
        return NOTHING
    return Protection(
        hide=frozenset(part for one in matching for part in one.hide),
        mask=tuple(dict.fromkeys(tuple(path.split(".")) for one in matching for path in one.mask)),
    )


def _masked(document: object, paths: frozenset[Path]) -> object:
    """`paths`: what is left of each from here on."""
    if isinstance(document, list):
        below = frozenset(rest for path in paths for rest in _after(path, None))
        if () in below:
            return [MASKED] * len(document)
        return [_masked(one, paths | below) for one in document]
    if not isinstance(document, dict):
        return document
    found: dict[str, object] = {}
    for name, value in document.items():
        below = frozenset(rest for path in paths for rest in _after(path, name))
        found[name] = MASKED if () in below else _masked(value, below)
    return found


def _after(path: Path, name: str | None) -> list[Path]:
    """What is left of a path below a field; `name` is None for a list's element."""
    first, rest = path[0], path[1:]
    if first == "**":  # none of the names, or one more
        return [path, *_after(rest, name)] if rest else [()]
    return [rest] if first == "*" or first == name else []

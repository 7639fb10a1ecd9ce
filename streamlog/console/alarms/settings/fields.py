"""The fields of a table of the file, each read with its type and bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from streamlog.console.alarms.durations import duration_s

TEXT_MAX: Final = 2_000
LIST_MAX: Final = 200
_REQUIRED: Final = object()


class FieldProblem(Exception):
    """A field that cannot be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


class Fields:
    """Every method raises FieldProblem. A field without a default is required."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._table

    @property
    def unread(self) -> list[str]:
        return [name for name in self._table if name not in self._read]

    def take(self, name: str, default: Any = _REQUIRED) -> Any:
        self._read.add(name)
        found = self._table.get(name, default)
        if found is _REQUIRED or found is None:
            raise FieldProblem(name, "missing")
        return found

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        return self._text(name, self.take(name, default))

    @staticmethod
    def _text(name: str, found: Any) -> str:
        if not isinstance(found, str):
            raise FieldProblem(name, f"must be text, not {_type(found)}")
        if len(found) > TEXT_MAX or not found.isprintable():
            raise FieldProblem(name, f"must be at most {TEXT_MAX} printable characters")
        return found

    def choice(self, name: str, choices: Sequence[str], default: Any = _REQUIRED) -> str:
        found = self.take(name, default)
        if found not in choices:
            raise FieldProblem(name, f"{found!r} must be one of {', '.join(choices)}")
        return str(found)

    def boolean(self, name: str, default: bool) -> bool:
        found = self.take(name, default)
        if not isinstance(found, bool):
            raise FieldProblem(name, f"must be true or false, not {_type(found)}")
        return found

    def number(self, name: str, default: Any, least: float, most: float) -> float:
        found = self.take(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise FieldProblem(name, f"must be a number, not {_type(found)}")
        if not least <= found <= most:
            raise FieldProblem(name, f"{found} must be in {least:g}..{most:g}")
        return float(found)

    def duration(self, name: str, default: Any) -> float:
        """In seconds; `default` as well."""
        found = self.take(name, default)
        if name not in self._table:
            return float(found)
        if not isinstance(found, str):
            raise FieldProblem(name, f'must be a duration in quotes, such as "30s" or "5m", not {_type(found)}')
        try:
            return duration_s(found)
        except ValueError as error:
            raise FieldProblem(name, f"{found[:40]!r} {error}") from None

    def texts(self, name: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        found = self.take(name, default)
        if name not in self._table:
            return tuple(found)
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            raise FieldProblem(name, 'must be a list of texts, such as ["orders*"]')
        if not 1 <= len(found) <= LIST_MAX:
            raise FieldProblem(name, f"must have 1 to {LIST_MAX} entries")
        return tuple(self._text(name, one) for one in found)

    def integers(self, name: str) -> tuple[int, ...]:
        found = self.take(name, [])
        if not isinstance(found, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
            raise FieldProblem(name, "must be a list of node ids, such as [1, 2]")
        if len(found) > LIST_MAX:
            raise FieldProblem(name, f"must have at most {LIST_MAX} entries")
        return tuple(found)

    def urls(self, name: str, count_max: int) -> tuple[str, ...]:
        found = self.texts(name, ())
        if len(found) > count_max:
            raise FieldProblem(name, f"must have at most {count_max} entries")
        for one in found:
            check_url(name, one)
        return found

    def mapping(self, name: str) -> dict[str, str]:
        found = self.take(name, {})
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
            raise FieldProblem(name, "must be a table of texts")
        return {key: self._text(name, one) for key, one in found.items()}


def check_url(name: str, text: str) -> None:
    """FieldProblem. The URL itself is not repeated: it may be secret."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise FieldProblem(name, "must be a URL of http or https")


def _type(found: object) -> str:
    return {
        dict: "a table",
        list: "a list",
        bool: "true or false",
        str: "text",
        int: "a number",
        float: "a number",
    }.get(type(found), type(found).__name__)

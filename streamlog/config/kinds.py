"""Types of settings: how the text is parsed, the range of values, and the name of the type in Kafka.

A kind parses text into a value of a built-in type, or raises ValueError with a reason that names neither the setting
nor its source: `Setting` adds the one, the loader the other. It never evaluates or expands anything. White space around
a value is trimmed, as in Kafka.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from streamlog.model import INT32_MAX

T_co = TypeVar("T_co", covariant=True)

INT64_MAX: Final = 2**63 - 1
# Longer than any number, and below what int() takes quadratic time for.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_REAL: Final = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
TEXT_LENGTH_MAX: Final = 4_096


class ValueKind(Struct, Generic[T_co], frozen=True):
    """Immutable. `type_name` is Kafka's name of the type, as in DescribeConfigs."""

    @property
    @abstractmethod
    def type_name(self) -> str: ...

    @property
    @abstractmethod
    def limit(self) -> str:
        """The allowed values, for people; empty: any."""

    @abstractmethod
    def parse(self, text: str) -> T_co:
        """ValueError with the reason."""

    def format(self, value: object) -> str:
        """The text that `parse` reads as `value`; empty for None."""
        return format_value(value)


def format_value(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


class Boolean(ValueKind[bool], frozen=True):
    @property
    def type_name(self) -> str:
        return "boolean"

    @property
    def limit(self) -> str:
        return "true, false"

    def parse(self, text: str) -> bool:
        match text.strip().lower():
            case "true":
                return True
            case "false":
                return False
        raise ValueError("must be true or false")


class Integer(ValueKind[int], frozen=True):
    """The range is inclusive. `unit`: "bytes", "ms"; empty: a plain number."""

    low: int
    high: int
    long: bool = False  # 64 bits: Kafka calls it so
    unit: str = ""

    @property
    def type_name(self) -> str:
        return "long" if self.long else "int"

    @property
    def limit(self) -> str:
        high = "" if self.high == (INT64_MAX if self.long else INT32_MAX) else str(self.high)
        return f"{self.low}..{high}"

    def parse(self, text: str) -> int:
        text = text.strip()
        if _INTEGER.fullmatch(text) is None:
            raise ValueError("must be a whole number")
        value = int(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"must be in {self.low}..{self.high}")
        return value


def count(low: int = 0, high: int = INT32_MAX) -> Integer:
    return Integer(low, high)


def long(low: int = 0, high: int = INT64_MAX) -> Integer:
    return Integer(low, high, long=True)


def size_bytes(low: int = 0, high: int = INT32_MAX) -> Integer:
    return Integer(low, high, long=high > INT32_MAX, unit="bytes")


def duration_ms(low: int = 0, high: int = INT32_MAX) -> Integer:
    return Integer(low, high, long=high > INT32_MAX, unit="ms")


class Real(ValueKind[float], frozen=True):
    """The range is inclusive. Neither infinite nor NaN."""

    low: float
    high: float

    @property
    def type_name(self) -> str:
        return "double"

    @property
    def limit(self) -> str:
        return f"{self.low:g}..{self.high:g}"

    def parse(self, text: str) -> float:
        text = text.strip()
        if _REAL.fullmatch(text) is None:
            raise ValueError("must be a number")
        value = float(text)
        if not math.isfinite(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be in {self.low:g}..{self.high:g}")
        return value


class Text(ValueKind[str], frozen=True):
    """One line, unless `multiline` (a certificate in PEM)."""

    length_max: int = TEXT_LENGTH_MAX
    may_be_empty: bool = False
    multiline: bool = False
    secret: bool = False

    @property
    def type_name(self) -> str:
        return "password" if self.secret else "string"

    @property
    def limit(self) -> str:
        return "" if self.may_be_empty else "not empty"

    def parse(self, text: str) -> str:
        text = text.strip()
        if not text and not self.may_be_empty:
            raise ValueError("must not be empty")
        if len(text) > self.length_max:
            raise ValueError(f"must have at most {self.length_max} characters, has {len(text)}")
        if _CONTROL.search(text.replace("\n", "").replace("\r", "") if self.multiline else text):
            raise ValueError("must not contain control characters")
        return text


class FunctionName(ValueKind[str], frozen=True):
    """A function of a Python module; given as text, or in a program as the function itself."""

    @property
    def type_name(self) -> str:
        return "class"

    @property
    def limit(self) -> str:
        return "module:function"

    def parse(self, text: str) -> str:
        text = text.strip()
        if len(text) > TEXT_LENGTH_MAX or _FUNCTION.fullmatch(text) is None:
            raise ValueError("must be module:function, of a function that can be imported")
        return text

    def format(self, value: object) -> str:
        if not callable(value):
            return format_value(value)
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"


class OneOf(ValueKind[str], frozen=True):
    """`aliases`: other spellings -> the option."""

    options: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return ", ".join(name for name in (*self.options, *self.aliases) if name)

    def parse(self, text: str) -> str:
        text = text.strip()
        option = self.aliases.get(text, text)
        if option not in self.options:
            raise ValueError(f"must be one of {self.limit}")
        return option


class ListOf(ValueKind[tuple[T_co, ...]], frozen=True):
    """Items between separators, none of them empty or a duplicate. Order matters."""

    item: ValueKind[T_co]
    items_min: int = 0
    items_max: int = 1_000
    separator: str = ","

    @property
    def type_name(self) -> str:
        return "list"

    @property
    def limit(self) -> str:
        number = "not empty" if self.items_min == 1 else ""
        return "; ".join(part for part in (f"list of: {self.item.limit}" if self.item.limit else "", number) if part)

    def parse(self, text: str) -> tuple[T_co, ...]:
        if not text.strip():
            if self.items_min:
                raise ValueError("must not be empty")
            return ()
        if text.count(self.separator) >= self.items_max:
            raise ValueError(f"must have at most {self.items_max} items")
        found: dict[T_co, None] = {}
        for part in text.split(self.separator):
            item = self._item(part.strip())
            if item in found:
                raise ValueError(f"{format_value(item)} is listed twice")
            found[item] = None
        return tuple(found)

    def format(self, value: object) -> str:
        return self.separator.join(map(format_value, value)) if isinstance(value, tuple) else format_value(value)

    def _item(self, text: str) -> T_co:
        if not text:
            raise ValueError("must not have an empty item")
        try:
            return self.item.parse(text)
        except ValueError as e:
            raise ValueError(f"item {shown(text)}: {e}") from None


def shown(text: str) -> str:
    """`text` for an error message: on one line, truncated, and without the login of a URL."""
    scheme, mark, rest = text.partition("://")
    if mark and "@" in rest:  # up to the last one: a password may have any character
        text = f"{scheme}://***@{rest.rpartition('@')[2]}"
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."

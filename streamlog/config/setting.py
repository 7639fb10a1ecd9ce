"""A setting as data, and tables of settings.

A module of settings is a list of constants; its name in capitals with `_` for `.` is the constant that reads it:

    NUM_PARTITIONS: Final = Setting("num.partitions", count(1), 1, doc="...")
    config[NUM_PARTITIONS]      # an int, for mypy too

So tools can find the readers of a setting, and settings that are never read.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from streamlog.config.kinds import ValueKind, shown
from streamlog.errors import InvalidConfigError, InvariantError

T_co = TypeVar("T_co", covariant=True)

HIDDEN: Final = "[hidden]"
# Suggestions are computed for names of this length at most: difflib's cost grows with its square.
GUESS_LENGTH_MAX: Final = 100


class Update(enum.Enum):
    """Whether a setting can change while the node runs; Kafka's names."""

    READ_ONLY = "read-only"  # from the file, at start
    PER_BROKER = "per-broker"  # dynamic, for one node or for all
    CLUSTER_WIDE = "cluster-wide"  # dynamic, for all nodes alike


class Setting(Struct, Generic[T_co], frozen=True):
    name: str
    kind: ValueKind[T_co]
    default: T_co  # None: there is no value, or it depends on the cluster; `default_doc` says which
    doc: str  # one sentence
    update: Update = Update.READ_ONLY
    sensitive: bool = False  # never printed, described or part of an error message
    required: bool = False  # must be given; `default` is a placeholder
    default_doc: str = ""  # describes the default where `default` does not
    kafka: str = ""  # Kafka's default or behaviour, where ours differs on purpose
    ours: bool = False  # Kafka has no such setting

    def parse(self, text: str) -> T_co:
        """InvalidConfigError, with `field` and `limit`."""
        try:
            return self.kind.parse(text)
        except ValueError as e:
            given = HIDDEN if self.sensitive else shown(text)
            # The reason may quote a part of the secret.
            reason = "is not valid" if self.sensitive else str(e)
            raise InvalidConfigError(f"{self.name}={given}: {reason}", field=self.name, limit=self.kind.limit) from None

    def format(self, value: object) -> str:
        """The text of a value of this setting; empty for None."""
        return self.kind.format(value)

    @property
    def default_text(self) -> str:
        """For people: the default, or its description."""
        if self.required:
            return "must be set"
        return self.default_doc or self.format(self.default) or "none"

    @property
    def constant(self) -> str:
        return self.name.upper().replace(".", "_")


class Section(Struct, frozen=True):
    """Settings of one subject, in print order."""

    title: str
    settings: tuple[Setting[Any], ...]


def section(title: str, module: Mapping[str, object]) -> Section:
    """All settings that a module defines (`globals()` at its end), in its order."""
    return Section(title, tuple(value for value in module.values() if isinstance(value, Setting)))


class Table:
    """All settings of one kind of thing: a node, a topic, a producer. Immutable."""

    def __init__(
        self, title: str, sections: Sequence[Section], named: Callable[[str], Setting[Any] | None] = lambda name: None
    ) -> None:
        """`named`: further settings, whose names have a part that the user chooses; the same object for each name."""
        self.title = title
        self.sections: Final = tuple(sections)
        self._named = named
        self._by_name = {setting.name: setting for part in sections for setting in part.settings}
        if len(self._by_name) != sum(len(part.settings) for part in sections):
            raise InvariantError(f"two settings of a {title} have the same name")

    def __iter__(self) -> Iterator[Setting[Any]]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Setting[Any] | None:
        return self._by_name.get(name) or self._named(name)

    def further(self, names: Iterable[str]) -> list[Setting[Any]]:
        """Those of the settings that have these names and are not among the table's own."""
        return [found for name in names if name not in self._by_name and (found := self._named(name)) is not None]

    def nearest(self, name: str) -> str | None:
        """The known name most similar to an unknown one; None: none is similar."""
        if len(name) > GUESS_LENGTH_MAX:
            return None
        found = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.75)
        return found[0] if found else None


def alike(one: str, other: str) -> float:
    """From 0 to 1."""
    return difflib.SequenceMatcher(None, one, other).ratio()

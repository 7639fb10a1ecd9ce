"""Loggers of nodes: requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from streamlog.api.convert.fields import distinct, each, enum_value
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.ports.log_levels import LOGGERS, LoggerState, LogLevel
from streamlog.printable import escaped

CHANGES_MAX: Final = 100
NAME_SHOWN_MAX: Final = 100
_LEVELS: Final[Mapping[int, LogLevel]] = {
    pb.LOG_LEVEL_DEBUG: LogLevel.DEBUG,
    pb.LOG_LEVEL_INFO: LogLevel.INFO,
    pb.LOG_LEVEL_WARN: LogLevel.WARN,
    pb.LOG_LEVEL_ERROR: LogLevel.ERROR,
}
_NUMBERS: Final = {level: pb.LogLevel.ValueType(number) for number, level in _LEVELS.items()}


def alterations(message: pb.AlterBrokerLoggersRequest) -> dict[str, LogLevel | None]:
    """None: back to the level above. InvalidRequestError."""
    changes = each(message.changes, "changes", _change, count_min=1, count_max=CHANGES_MAX)
    distinct([name for name, _ in changes], "changes")
    return dict(changes)


def _change(message: pb.LoggerChange) -> tuple[str, LogLevel | None]:
    if message.name not in LOGGERS:
        raise InvalidRequestError(
            f"there is no logger {escaped(message.name[:NAME_SHOWN_MAX])!r}: there are {', '.join(LOGGERS)}",
            field="name",
        )
    if message.level == pb.LOG_LEVEL_UNSPECIFIED:
        return message.name, None
    return message.name, enum_value(message.level, _LEVELS, pb.LogLevel, "level")


def described(loggers: Iterable[LoggerState]) -> list[pb.BrokerLogger]:
    return [pb.BrokerLogger(name=one.name, level=_NUMBERS[one.level], is_set=one.is_set) for one in loggers]

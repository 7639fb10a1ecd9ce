"""The loggers of the admin client: the levels of a node's own log, until it restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from streamlog.api.calls import unary
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.admin.values import BrokerLogger, LoggerLevel
from streamlog.client.connection.any_node import AnyNode

_ADMIN: Final = "streamlog.v1.Admin"
_DESCRIBE: Final = unary(f"{_ADMIN}/DescribeBrokerLoggers", pb.DescribeBrokerLoggersResponse)
_ALTER: Final = unary(f"{_ADMIN}/AlterBrokerLoggers", pb.AlterBrokerLoggersResponse)
_NUMBERS: Final = {
    None: pb.LOG_LEVEL_UNSPECIFIED,
    LoggerLevel.DEBUG: pb.LOG_LEVEL_DEBUG,
    LoggerLevel.INFO: pb.LOG_LEVEL_INFO,
    LoggerLevel.WARN: pb.LOG_LEVEL_WARN,
    LoggerLevel.ERROR: pb.LOG_LEVEL_ERROR,
}
_LEVELS: Final = {number: level for level, number in _NUMBERS.items() if level is not None}


class LoggerAdmin:
    """The loggers of AsyncAdmin, whose `start` sets the attributes."""

    _nodes: AnyNode

    async def describe_broker_loggers(self, node_id: int) -> tuple[BrokerLogger, ...]:
        """The root first, then by rising name."""
        response = await self._nodes.ask(_DESCRIBE, pb.DescribeBrokerLoggersRequest(node_id=node_id))
        return _loggers(response.loggers)

    async def alter_broker_loggers(
        self, node_id: int, changes: Mapping[str, LoggerLevel | None]
    ) -> tuple[BrokerLogger, ...]:
        """None: back to the level of the logger above. All are changed, or none; a restart resets them. Returns all
        loggers.
        """
        rows = [pb.LoggerChange(name=name, level=_NUMBERS[level]) for name, level in changes.items()]
        request = pb.AlterBrokerLoggersRequest(node_id=node_id, changes=rows)
        response = await self._nodes.ask(_ALTER, request)
        return _loggers(response.loggers)


def _loggers(rows: Iterable[pb.BrokerLogger]) -> tuple[BrokerLogger, ...]:
    return tuple(BrokerLogger(name=one.name, level=_LEVELS.get(one.level), is_set=one.is_set) for one in rows)

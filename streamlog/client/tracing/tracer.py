"""What spans of a client have in common: the tracer, names, attributes, and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode, Tracer

from streamlog.config import Config
from streamlog.config.settings import client_settings
from streamlog.errors import StreamlogError
from streamlog.release import RELEASE

Attributes = dict[str, str | int]

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
CLIENT_ID: Final = "messaging.client.id"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
OFFSET: Final = "messaging.streamlog.offset"
GROUP: Final = "messaging.consumer.group.name"
COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"


def tracer() -> Tracer:
    """Of the TracerProvider that the program has set, or sets later."""
    return trace.get_tracer("streamlog.client", RELEASE)


def attributes(config: Config | None, name: str, kind: str, more: Mapping[str, str | int]) -> Attributes:
    """`name`, `kind`: of the operation."""
    found: Attributes = {SYSTEM: "streamlog", OPERATION_NAME: name, OPERATION_TYPE: kind, **more}
    if config is not None and config[client_settings.CLIENT_ID]:
        found[CLIENT_ID] = config[client_settings.CLIENT_ID]
    return found


def end_failed(span: Span, error: BaseException) -> None:
    kind = error.code if isinstance(error, StreamlogError) else type(error).__name__
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR, str(error)[:1_000])
    span.end()

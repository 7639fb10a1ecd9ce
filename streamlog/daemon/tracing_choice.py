"""Whether this node is traced (`tracing.exporter`). OpenTelemetry is loaded only where it is."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from streamlog.config import Config
from streamlog.config.settings import node_tracing_settings as settings
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.errors import InvalidConfigError

if TYPE_CHECKING:
    from streamlog.daemon.tracing import NodeSpans

NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.grpc")


def check_tracing(config: Config) -> None:
    """InvalidConfigError where the package is missing. Loads nothing: the process may fork after this."""
    exporter = config[settings.TRACING_EXPORTER]
    if exporter != "none" and not all(map(_is_installed, NEEDED)):
        raise InvalidConfigError(
            f"{settings.TRACING_EXPORTER.name}={exporter} needs OpenTelemetry, which is not installed: "
            "pip install 'streamlog[otel]'",
            field=settings.TRACING_EXPORTER.name,
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def open_tracing(config: Config, lines: LogLines) -> NodeSpans | None:
    """None where tracing is off. InvalidConfigError."""
    if config[settings.TRACING_EXPORTER] == "none":
        return None
    from streamlog.daemon.tracing import NodeSpans

    return NodeSpans(config, lines)

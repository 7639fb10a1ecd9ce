"""The settings of a client, given as arguments (`linger_ms=5`), as a mapping (`"linger.ms": "5"`), or as both."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from streamlog.client.connection.backoff import Backoff
from streamlog.client.producer.given_records import shown
from streamlog.config import Config, Loaded
from streamlog.config.kinds import Text
from streamlog.config.settings import client_settings
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config_providers import with_chosen_values
from streamlog.errors import InvalidConfigError
from streamlog.ports import Network, Random


def merged(config: Mapping[str, object] | None, arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments override the mapping. `_` in an argument's name stands for `.`. InvalidConfigError."""
    if config is not None and not isinstance(config, Mapping):
        raise InvalidConfigError(
            f"settings are a mapping or named arguments, not {config!r}: give addresses as bootstrap_servers=..., and "
            "a consumer's topics to subscribe()"
        )
    values = dict(config or {})
    values.update({name.replace("_", "."): value for name, value in arguments.items()})
    servers = values.get("bootstrap.servers")
    if isinstance(servers, list | tuple):
        values["bootstrap.servers"] = ",".join(map(str, servers))
    return values


def _problem(name: str, value: object) -> InvalidConfigError | None:
    """With what would be read as a text, and is none; other kinds of settings say so themselves. None is the default,
    but mostly a mistake where addresses are wanted.
    """
    setting = PRODUCER.get(name) or CONSUMER.get(name) or ADMIN.get(name)
    if setting is None:
        return None
    if value is None:
        if setting is not client_settings.BOOTSTRAP_SERVERS:
            return None
        wanted = f"must be addresses, not None: leave it out for {setting.default_text}"
    elif isinstance(setting.kind, Text) and not (isinstance(value, str) or hasattr(value, "__fspath__")):
        wanted = f"must be a str, not {type(value).__name__ if setting.sensitive else shown(value)}"
    else:
        return None
    return InvalidConfigError(f"{name} {wanted}", field=name)


def loaded(
    load: Callable[[Mapping[str, object]], Loaded], config: Mapping[str, object] | None, arguments: Mapping[str, object]
) -> Config:
    """InvalidConfigError, which names everything that is wrong. What is only suspicious is a UserWarning."""
    given = merged(config, arguments)
    problems = [problem for name, value in given.items() if (problem := _problem(name, value)) is not None]
    try:
        found = load(with_chosen_values(given))
    except InvalidConfigError as error:
        problems.append(error)
    if problems:
        raise InvalidConfigError("\n".join(map(str, problems)), **problems[0].details)
    for text in found.warnings:
        warnings.warn(text, UserWarning, stacklevel=4)
    return found.config


def bootstrap(config: Config) -> list[str]:
    return [str(address) for address in config[client_settings.BOOTSTRAP_SERVERS]]


def servers(config: Config) -> str:
    """For messages."""
    return ",".join(bootstrap(config))


def name_of(kind: str, config: Config, group: str | None = None) -> str:
    """For messages: its client.id, its group, or where it connects to."""
    client_id = config[client_settings.CLIENT_ID]
    if client_id:
        return f"{kind} {client_id!r}"
    return f"{kind} of group {group!r}" if group is not None else f"{kind} of {servers(config)}"


def backoff(config: Config, random: Random) -> Backoff:
    return Backoff(
        random,
        first_s=config[client_settings.RETRY_BACKOFF_MS] / 1000,
        longest_s=config[client_settings.RETRY_BACKOFF_MAX_MS] / 1000,
    )


def tracing(module: str) -> Any:
    """A module of `streamlog.client.tracing`, loaded where tracing.enable=true alone. InvalidConfigError."""
    try:
        return importlib.import_module(f"streamlog.client.tracing.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise InvalidConfigError(
            "tracing.enable=true needs OpenTelemetry, which is not installed: pip install 'streamlog[otel]'",
            field="tracing.enable",
        ) from None


def calling_network(config: Config, network: Network) -> Network:
    """Whose unary calls carry the current trace context, where tracing.enable=true."""
    if not config[client_settings.TRACING_ENABLE]:
        return network
    traced: Network = tracing("calls").TracedNetwork(network)
    return traced


def background(config: Config) -> AbstractContextManager[None]:
    """Tasks that are made in the block belong to no trace."""
    if not config[client_settings.TRACING_ENABLE]:
        return nullcontext()
    made: AbstractContextManager[None] = tracing("calls").detached()
    return made

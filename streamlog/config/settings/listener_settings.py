"""Settings of one listener, Kafka's `listener.name.NAME.SETTING`: of the same kind as the node's SETTING."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from streamlog.config.addresses import LISTENER_NAME_MAX
from streamlog.config.setting import Setting
from streamlog.config.settings.security_settings import SSL_CLIENT_AUTH, SSL_PRINCIPAL_MAPPING_RULES
from streamlog.config.settings.tls_settings import TLS

T = TypeVar("T")

PREFIX: Final = "listener.name."
_NAME: Final = re.compile(rf"listener\.name\.([a-z0-9][a-z0-9_-]{{0,{LISTENER_NAME_MAX - 1}}})\.(.+)")
OF_LISTENERS: Final = {one.name: one for one in (*TLS.settings, SSL_CLIENT_AUTH, SSL_PRINCIPAL_MAPPING_RULES)}
"""The settings that a listener may have of its own."""


def listener_setting(listener: str, setting: Setting[T]) -> Setting[T]:
    """`setting` of this listener alone; it has no default."""
    return _made(listener.lower(), setting.name)


def listener_setting_named(name: str) -> Setting[Any] | None:
    """By its whole name, such as `listener.name.client.ssl.keystore.location`; None: there is no such setting."""
    match = _NAME.fullmatch(name)
    return None if match is None or match[2] not in OF_LISTENERS else _made(match[1], match[2])


def listener_in(name: str) -> str | None:
    """The listener in such a name, in capitals."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1].upper()


@lru_cache(maxsize=1_024)
def _made(listener: str, name: str) -> Setting[Any]:
    common = OF_LISTENERS[name]
    return replace(
        common, name=f"{PREFIX}{listener}.{name}", doc=f"Of listener {listener.upper()}. {common.doc}", kafka=""
    )

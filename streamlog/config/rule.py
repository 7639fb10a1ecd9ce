"""Rules between settings.

A rule checks a whole configuration and names the setting at fault. A violated rule prevents a node from starting and
refuses a change; a hint is a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from streamlog.config.effective import Config
from streamlog.config.setting import HIDDEN, Setting
from streamlog.config.settings import tls_settings as tls


class Rule(Struct, frozen=True):
    """`broken` returns the reason ("must be ..."), None where the rule holds. `hint`: a warning only."""

    setting: Setting[Any]
    broken: Callable[[Config], str | None]
    hint: bool = False

    def complaint(self, config: Config) -> str | None:
        reason = self.broken(config)
        return None if reason is None else f"{is_now(config, self.setting)}: {reason}"


def is_now(config: Config, setting: Setting[Any]) -> str:
    """`name=value` for a message."""
    text = HIDDEN if setting.sensitive else setting.format(config[setting])
    return f"{setting.name}={text}"


def below(lower: Setting[int], upper: Setting[int]) -> Rule:
    def broken(config: Config) -> str | None:
        return None if config[lower] < config[upper] else f"must be below {is_now(config, upper)}"

    return Rule(lower, broken)


def at_most(lower: Setting[Any], upper: Setting[Any], *, hint: bool = False) -> Rule:
    """Holds where one of the two has no value."""

    def broken(config: Config) -> str | None:
        low, high = config[lower], config[upper]
        return f"must be at most {is_now(config, upper)}" if None not in (low, high) and low > high else None

    return Rule(lower, broken, hint)


def not_both(one: Setting[Any], other: Setting[Any]) -> Rule:
    def broken(config: Config) -> str | None:
        both = config[one] is not None and config[other] is not None
        return f"must not be set together with {other.name}" if both else None

    return Rule(one, broken)


def has_key(config: Config) -> bool:
    inline = config[tls.SSL_KEYSTORE_KEY] is not None and config[tls.SSL_KEYSTORE_CERTIFICATE_CHAIN] is not None
    return config[tls.SSL_KEYSTORE_LOCATION] is not None or inline


def has_trust(config: Config) -> bool:
    return any(config[one] is not None for one in (tls.SSL_TRUSTSTORE_LOCATION, tls.SSL_TRUSTSTORE_CERTIFICATES))


KEY_MISSING: Final = (
    f"needs {tls.SSL_KEYSTORE_LOCATION.name}, or {tls.SSL_KEYSTORE_KEY.name} and "
    f"{tls.SSL_KEYSTORE_CERTIFICATE_CHAIN.name}"
)
TRUST_MISSING: Final = f"needs {tls.SSL_TRUSTSTORE_LOCATION.name} or {tls.SSL_TRUSTSTORE_CERTIFICATES.name}"

TLS_RULES: Final = (
    not_both(tls.SSL_KEYSTORE_LOCATION, tls.SSL_KEYSTORE_KEY),
    not_both(tls.SSL_TRUSTSTORE_LOCATION, tls.SSL_TRUSTSTORE_CERTIFICATES),
)

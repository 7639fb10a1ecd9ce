"""References in the values of settings, with the syntax of Kafka's configuration providers. Pure.

    ${file:/etc/streamlog/secrets.properties:password}    the value of a key in a properties file
    ${env:STREAMLOG_PASSWORD}                              an environment variable

A value may hold several, among other text; what they stand for is not searched again. Text in `${...}` of another form
is no reference. The caller reads what a reference names (`streamlog.config_providers`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

ReadReference: TypeAlias = Callable[[str, str, str], str]
"""Provider, path (empty: none) and key to the value; ValueError with the reason, without the value."""

PROVIDERS: Final = ("file", "env")
CONFIG_PROVIDERS: Final = "config.providers"
"""Kafka's setting that names them, and the beginning of those that set them up."""
_REFERENCE: Final = re.compile(r"\$\{(file|env):(?:([^}:]*):)?([^}]*)\}")


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def resolved(text: str, read: ReadReference) -> str:
    """With the values in place of the references. ValueError."""
    return _REFERENCE.sub(lambda found: read(found[1], found[2] or "", found[3]), text)


def is_of_providers(name: str) -> bool:
    """Whether a setting only says which providers there are, and how Kafka makes them."""
    return name == CONFIG_PROVIDERS or name.startswith(CONFIG_PROVIDERS + ".")

"""Reads what the references in settings name (`streamlog.config.references`): Kafka's FileConfigProvider and
EnvVarConfigProvider.

A file of secrets must be a regular file that only its owner can read, as a private key's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from streamlog.config.properties import parse_properties
from streamlog.config.references import CONFIG_PROVIDERS, PROVIDERS, is_of_providers, resolved
from streamlog.errors import InvalidConfigError
from streamlog.regular_file import OTHERS, read_regular

FILE_BYTES_MAX: Final = 1 << 20


def read_reference(provider: str, path: str, key: str) -> str:
    """A ReadReference. Blocks. ValueError."""
    if provider == "env":
        if path or key not in os.environ:
            raise ValueError(f"environment variable {f'{path}:{key}' if path else key} is not set")
        return os.environ[key]
    if not path:
        raise ValueError("a reference to a file is ${file:PATH:KEY}")
    try:
        data, mode = read_regular(path, FILE_BYTES_MAX)
        text = data.decode()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file") from None
    if mode & OTHERS:
        raise ValueError(f"other users can read the secrets in {path} (mode {mode:04o}): chmod 600 {path}")
    try:
        found = [entry.value for entry in parse_properties(text, path) if entry.key == key]
    except InvalidConfigError:
        raise ValueError(f"{path} is not a properties file") from None  # its text may be quoted, and is secret
    if not found:
        raise ValueError(f"{path} has no key {key}")
    return found[-1]


def with_values(settings: Mapping[str, str], where: str) -> dict[str, str]:
    """The settings of a file with the values of their references. `where`: the file. InvalidConfigError."""
    found: dict[str, str] = {}
    for name, text in settings.items():
        if not is_of_providers(name):
            try:
                found[name] = resolved(text, read_reference)
            except ValueError as error:
                raise InvalidConfigError(f"{where}: {name}: {error}", field=name) from None
    return found


def with_chosen_values(settings: Mapping[str, object]) -> dict[str, object]:
    """A program's settings: only where `config.providers` among them names the provider, as in Kafka's clients, since
    a program may get the others from elsewhere. InvalidConfigError.
    """
    named = str(settings.get(CONFIG_PROVIDERS) or "")
    if not named:
        return dict(settings)
    chosen = {name.strip() for name in named.split(",")}
    unknown = sorted(chosen - set(PROVIDERS))
    if unknown:
        raise InvalidConfigError(
            f"{CONFIG_PROVIDERS}={named}: unknown provider {', '.join(unknown)}; there are {', '.join(PROVIDERS)}",
            field=CONFIG_PROVIDERS,
            limit=",".join(PROVIDERS),
        )

    def read(provider: str, path: str, key: str) -> str:
        if provider not in chosen:
            raise ValueError(f"provider {provider} is not in {CONFIG_PROVIDERS}={named}")
        return read_reference(provider, path, key)

    found: dict[str, object] = {}
    for name, value in settings.items():
        if is_of_providers(name):
            continue
        try:
            found[name] = resolved(value, read) if isinstance(value, str) else value
        except ValueError as error:
            raise InvalidConfigError(f"{name}: {error}", field=name) from None
    return found

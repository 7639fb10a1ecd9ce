"""References to secrets: `${env:NAME}`, `${file:/path}`. Read when they are used, so that a changed secret is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from streamlog.regular_file import OTHERS, read_regular

REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]{1,1000})\}")
SECRET_BYTES_MAX: Final = 64 << 10


class SecretError(Exception):
    """The message names the reference, never a value."""


def resolved(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """With the values in place of the references; trailing newlines of files are not part of them. Blocks on a disk."""

    def value(match: re.Match[str]) -> str:
        source, name = match.groups()
        found = environment.get(name, "") if source == "env" else _file(name)
        if not found:
            raise SecretError(f"environment variable {name} is not set" if source == "env" else f"{name} is empty")
        if not found.isprintable():
            raise SecretError(f"{match[0]} has characters that are not printable")
        return found

    return REFERENCE.sub(value, text)


def _file(name: str) -> str:
    try:
        data, mode = read_regular(name, SECRET_BYTES_MAX)
    except OSError as error:
        raise SecretError(f"{name} cannot be read: {error.strerror}") from None
    if mode & OTHERS:
        raise SecretError(f"other users can read {name} (mode {mode:04o}): chmod 600 {name}")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"{name} is not UTF-8") from None

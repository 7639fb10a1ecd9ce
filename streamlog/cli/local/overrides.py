"""Checks the overrides of a local cluster: each one is applied, or refused by name.

At the first start they become lines of server.properties, and a name that a node would only warn about in its log is
an error here. Afterwards the file is the user's: an override that it has already is accepted, another is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamlog.config.properties import parse_properties
from streamlog.config.settings.node_settings import NODE
from streamlog.config.unknown import explain
from streamlog.daemon.text_file import read_properties
from streamlog.errors import InvalidConfigError

_OPTION: Final = "--override"


def check_overrides(overrides: Mapping[str, str]) -> None:
    """InvalidConfigError: names that are not settings of nodes, or have no effect here."""
    problems = [f"{_OPTION} {name}: {explain(NODE, name)}" for name in overrides if NODE.get(name) is None]
    if problems:
        raise InvalidConfigError("; ".join(problems), field=_OPTION)


def check_kept(file: Path, overrides: Mapping[str, str]) -> None:
    """InvalidConfigError: overrides that `file`, of a node that was started before, does not have. OSError."""
    properties = read_properties(str(file))
    kept = {entry.key: entry.value for entry in parse_properties(properties.text, properties.name)}
    problems = [
        f"{_OPTION} {name}={value} is not applied: {file} has {_held(kept, name)}; change it there, then "
        "'streamlogctl local restart'"
        for name, value in overrides.items()
        if kept.get(name) != value
    ]
    if problems:
        raise InvalidConfigError("; ".join(problems), field=_OPTION)


def _held(kept: Mapping[str, str], name: str) -> str:
    return f"{name}={kept[name]}" if name in kept else f"no {name}"

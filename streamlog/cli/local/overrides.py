"""Checks the overrides of a local cluster: each one is applied, or refused by name.

At the first start they become lines of server.properties, and a name that a node would only warn about in its log is
an error here. Afterwards the file is the user's: an override that it has already is accepted, another is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamlog.config.properties import parse_properties
from streamlog.config.settings.log_settings import LOG_DIR, LOG_DIRS
from streamlog.config.settings.node_settings import (
    ADVERTISED_LISTENERS,
    HTTP_LISTENERS,
    LISTENERS,
    METADATA_LOG_DIR,
    NODE,
    NODE_ID,
)
from streamlog.config.unknown import explain
from streamlog.daemon.local_cluster import PORT_0
from streamlog.daemon.text_file import read_properties
from streamlog.errors import InvalidConfigError

_OPTION: Final = "--override"
_OF_EACH: Final = tuple(
    setting.name for setting in (LISTENERS, ADVERTISED_LISTENERS, LOG_DIR, LOG_DIRS, METADATA_LOG_DIR)
)
"""Settings that must differ between the nodes of a machine."""


def check_overrides(overrides: Mapping[str, str], count: int) -> None:
    """InvalidConfigError: names that are not settings of nodes, have no effect here, or would be the same for `count`
    nodes, and must differ.
    """
    problems = [f"{_OPTION} {name}: {explain(NODE, name)}" for name in overrides if NODE.get(name) is None]
    if NODE_ID.name in overrides:
        problems.append(
            f"{_OPTION} {NODE_ID.name}: 'streamlogctl local start' numbers the nodes from 1 on: leave it out"
        )
    if count > 1:
        problems += [
            f"{_OPTION} {name}: all {count} nodes would have the same value, which must differ: leave it out, or start "
            "one node with --nodes 1"
            for name in _OF_EACH
            if name in overrides
        ]
    if problems:
        raise InvalidConfigError("; ".join(problems), field=_OPTION)


def check_kept(file: Path, overrides: Mapping[str, str]) -> None:
    """InvalidConfigError: overrides that `file`, of a node that was started before, does not have. OSError."""
    properties = read_properties(str(file))
    kept = {entry.key: entry.value for entry in parse_properties(properties.text, properties.name)}
    problems = [
        f"{_OPTION} {name}={value} is not applied: {file} has {_held(kept, name)}; change it in the server.properties "
        f"of every node, then 'streamlogctl local restart --dir {file.parents[1]}'"
        for name, value in overrides.items()
        if not _is_kept(name, value, kept.get(name))
    ]
    if problems:
        raise InvalidConfigError("; ".join(problems), field=_OPTION)


def _is_kept(name: str, value: str, kept: str | None) -> bool:
    """At the first start ports 0 of http.listeners were replaced (`LocalCluster.create`)."""
    if kept is None or name != HTTP_LISTENERS.name:
        return kept == value
    return re.fullmatch(":[0-9]+".join(map(re.escape, PORT_0.split(value))), kept) is not None


def _held(kept: Mapping[str, str], name: str) -> str:
    return f"{name}={kept[name]}" if name in kept else f"no {name}"

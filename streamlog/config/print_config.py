"""A whole configuration as a properties file: each setting with its description, range and source.

The file can be loaded again and gives the same values, except for secrets, which are not printed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Final

from streamlog.config.effective import Config, Effective
from streamlog.config.kinds import Integer
from streamlog.config.properties import escape_value
from streamlog.config.setting import Setting

WIDTH: Final = 110


def print_config(config: Config) -> str:
    """The file's text, ending with a newline."""
    lines = [f"# The effective settings of a {config.table.title}."]
    for part in config.table.sections:
        lines += ["", f"# ---- {part.title} ----"]
        for setting in part.settings:
            lines += ["", *_entry(config.effective(setting))]
    own = {setting.name for part in config.table.sections for setting in part.settings}
    further = [one for one in config if one.setting.name not in own]
    if further:
        lines += ["", "# ---- Of single listeners ----"]
    for one in further:
        lines += ["", *_entry(one)]
    return "\n".join(lines) + "\n"


def type_text(setting: Setting[Any]) -> str:
    """Type and range, for people: `int (ms), 10..3600000`."""
    kind = setting.kind
    unit = f" ({kind.unit})" if isinstance(kind, Integer) and kind.unit else ""
    limit = "" if kind.type_name == "boolean" or not kind.limit else f", {kind.limit}"
    return f"{kind.type_name}{unit}{limit}"


def default_text(setting: Setting[Any]) -> str:
    """The default, with Kafka's where it differs: `3000 (Kafka: 9000)`."""
    if setting.ours:
        return f"{setting.default_text} (not in Kafka)"
    return f"{setting.default_text} (Kafka: {setting.kafka})" if setting.kafka else setting.default_text


def _entry(effective: Effective) -> Iterator[str]:
    setting = effective.setting
    yield from textwrap.wrap(setting.doc, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    facts = f"{type_text(setting)}; default: {default_text(setting)}; {setting.update.value}; {effective.source.value}"
    yield from textwrap.wrap(facts, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
    text = effective.text or ""
    # Where the default is not empty, an empty value has to be given again.
    absent = effective.value is None or (not text and effective.value == setting.default)
    yield f"#{setting.name}={text}" if absent or setting.sensitive else f"{setting.name}={escape_value(text)}"

"""Writes docs/configuration.md from the tables of streamlog/config; `--check` only reports whether it is out of date.

python tools/generate_config_docs.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from streamlog.config.print_config import default_text, type_text
from streamlog.config.setting import Section, Setting
from streamlog.config.settings.client_settings import ADMIN, COMMON, CONSUMER, PRODUCER, TRACING
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.tls_settings import TLS
from streamlog.config.settings.token_settings import TOKENS
from streamlog.config.settings.topic_defaults import SYNONYMS
from streamlog.config.settings.topic_settings import TOPIC

PATH = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

INTRODUCTION = """# Configuration

This page is generated from `streamlog/config` by `make docs`: change it there.

The names are Kafka's. Where a default differs from Kafka's on purpose, Kafka's is given too; settings that Kafka does
not have are marked. A node reads a properties file and `--override name=value`, which overrides the file;
`streamlogd --print-config` shows the result. Sizes are in bytes, and durations in the unit at the end of the name.
*Changes* is whether a setting can be changed while the nodes run (`streamlogctl`, `AlterConfigs`): read-only ones
cannot, per-broker ones can for one node or for all, cluster-wide ones only for all nodes.

`listener.name.NAME.ssl.*` are the settings `ssl.*` of the section Security for one listener,
`listener.name.https.ssl.*` those for the `HTTPS://` addresses of `http.listeners` ([listeners](security.md#listeners)).
A value may be a reference, `${file:PATH:KEY}` or `${env:NAME}`; in Python clients with `config.providers=file,env`
([secrets](security.md#secrets)).
"""


def page() -> str:
    parts = [INTRODUCTION]
    parts.append("## Nodes\n\nThe settings of `server.properties`.\n")
    parts += [_section(part, changes=True) for part in NODE.sections]
    parts.append(
        "## Topics\n\nA topic without a value of its own uses the node's value, of the setting in the last column.\n"
    )
    parts.append(_topics())
    parts.append("## Clients\n")
    producing, consuming, administering = (table.sections[1] for table in (PRODUCER, CONSUMER, ADMIN))
    sections = (COMMON, producing, consuming, administering, TLS, TOKENS, TRACING)
    parts += [_section(part, changes=False) for part in sections]
    return "\n".join(parts)


def _section(part: Section, *, changes: bool) -> str:
    head = ["Setting", "What it says", "Type and range", "Default", *(["Changes"] if changes else [])]
    rows = [[*_facts(setting), *([setting.update.value] if changes else [])] for setting in part.settings]
    return "\n".join([f"### {part.title}", "", *_table(head, rows), ""])


def _topics() -> str:
    head = ["Setting", "What it says", "Type and range", "Default", "Of the node"]
    rows = [[*_facts(setting), _synonyms(setting)] for setting in TOPIC]
    return "\n".join([*_table(head, rows), ""])


def _facts(setting: Setting[object]) -> list[str]:
    return [f"`{setting.name}`", setting.doc, type_text(setting), default_text(setting)]


def _synonyms(setting: Setting[object]) -> str:
    return ", else ".join(f"`{synonym.setting.name}`" for synonym in SYNONYMS[setting.name])


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    for row in rows:
        yield _row([cell.replace("|", "\\|").replace("__", "\\_\\_") for cell in row])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    content = page()
    if PATH.exists() and PATH.read_text() == content:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PATH.name} is out of date: run `make docs`")
        return 1
    PATH.write_text(content)
    print(f"{PATH.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

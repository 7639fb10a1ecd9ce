"""Every setting is read by the code, or listed as not supported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamlog
from streamlog.config import load_consumer, load_node
from streamlog.config.setting import Setting
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config.settings.log_settings import LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.not_yet import NOT_YET
from streamlog.config.settings.topic_defaults import SYNONYMS
from streamlog.config.settings.topic_settings import TOPIC

PACKAGE = Path(streamlog.__file__).parent
CONFIG = PACKAGE / "config"
SETTINGS = {setting.name: setting for table in (NODE, TOPIC, PRODUCER, CONSUMER, ADMIN) for setting in table}
# Where settings stand, are explained, or held against each other; what resolves a topic's, and decides by rules, reads.
TABLES = re.compile(r"(settings/.*|unknown|client_rules|rule|__init__)\.py")
# A node's default of a topic's setting is read through the topic's.
DEFAULTS = {one.setting.name: own for own, nodes in SYNONYMS.items() for one in nodes}


def words_of_readers() -> frozenset[str]:
    files = [
        path
        for path in PACKAGE.rglob("*.py")
        if "pb" not in path.parts
        and not (path.is_relative_to(CONFIG) and TABLES.fullmatch(path.relative_to(CONFIG).as_posix()))
    ]
    return frozenset(word for path in files for word in re.findall(r"[A-Z][A-Z0-9_]+", path.read_text()))


READERS = words_of_readers()


def is_read(setting: Setting[object]) -> bool:
    own = SETTINGS.get(DEFAULTS.get(setting.name, ""), setting)
    return setting.constant in READERS or own.constant in READERS


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_setting_is_read_or_listed(name: str) -> None:
    if name in NOT_YET:
        assert not is_read(SETTINGS[name]), "it is read now: take it from NOT_YET"
    else:
        assert is_read(SETTINGS[name]), "the code does not read it: use it, or add it to NOT_YET"


def test_a_setting_without_effect_gives_a_warning() -> None:
    warnings = load_node(overrides=["node.id=1", "offsets.commit.timeout.ms=1"]).warnings
    assert any("offsets.commit.timeout.ms has no effect in this release" in line for line in warnings)
    assert LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS.name not in NOT_YET
    warnings = load_consumer({"exclude.internal.topics": False}).warnings
    assert [line.partition("release: ")[2] for line in warnings] == ["a pattern never selects internal topics"]

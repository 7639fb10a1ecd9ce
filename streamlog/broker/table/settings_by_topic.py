"""The settings of the topics that have replicas on this node, as they apply now: resolved on first use, and again when
a configuration changes.

A value that cannot be parsed, of a newer release, changes nothing: the previous settings stay. The logs of a deleted
topic keep its settings, which determine how long their files stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import InvalidConfigError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.ports import Probe


class SettingsByTopic:
    """Owned by the partition table."""

    def __init__(self, configs: NodeConfigs, probe: Probe) -> None:
        self._configs = configs
        self._probe = probe
        self._settings: dict[str, TopicSettings] = {}

    def of(self, topic: str) -> TopicSettings:
        found = self._settings.get(topic)
        if found is None:
            found = self._settings[topic] = self._resolve(topic, TopicSettings.DEFAULT)
        return found

    def forget(self, topic: str) -> None:
        self._settings.pop(topic, None)

    def keep(self, exists: Callable[[str], bool]) -> None:
        """Forget the topics that do not exist."""
        self._settings = {name: one for name, one in self._settings.items() if exists(name)}

    def clear(self) -> None:
        """They are resolved again when they are needed."""
        self._settings.clear()

    def update(self, topics: Sequence[str] | None, exists: Callable[[str], bool]) -> dict[str, TopicSettings]:
        """Configurations of these topics (None: of any) may have changed; returns the settings that have."""
        changed: dict[str, TopicSettings] = {}
        for topic in tuple(self._settings) if topics is None else topics:
            old = self._settings.get(topic)
            if old is None or not exists(topic):
                continue
            if (new := self._resolve(topic, old)) != old:
                changed[topic] = self._settings[topic] = new
        return changed

    def _resolve(self, topic: str, otherwise: TopicSettings) -> TopicSettings:
        try:
            return TopicSettings.of(self._configs, topic)
        except InvalidConfigError as e:
            self._probe("topic_config_refused", topic=topic, reason=str(e))
            return otherwise

"""The effective settings of one node: its file, overridden by dynamic configs.

    topic's own (image) > this node's (image) > all nodes' (image) > server.properties and --override > defaults

Values are resolved on access and cached until their sources change. Topics with equal values of their own, as most
have, share what these resolve to: a change for all nodes applies to thousands of topics at once. The image holds a
value that this release refuses only if a newer release accepted it; then InvalidConfigError is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from streamlog.config import (
    Config,
    Layer,
    LogValues,
    Operation,
    Scope,
    changed_value,
    check_together,
    node_config,
    node_layers,
    resolve_log_settings,
    topic_config,
)
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import ALL_BROKERS, ConfigTarget, ConfigTargetType
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId

SHARED_MAX: Final = 1_000
"""Different values of topics' own whose results are kept for other topics."""

OwnValues: TypeAlias = tuple[tuple[str, str], ...]
"""A topic's, by name: hashable."""

ConfigListener: TypeAlias = Callable[[Sequence[str] | None], None]
"""Called with the names of topics whose own settings have changed (or that were deleted); None: the node's settings
have changed, so any topic's may have. Called on the event loop; must not block.
"""


class NodeConfigs:
    def __init__(self, static: Mapping[str, str], node_id: BrokerId, view: MetadataView) -> None:
        """`static`: `config.Loaded.given`. InvalidConfigError."""
        self._static = dict(static)
        self._own = ConfigTarget(ConfigTargetType.BROKER, str(node_id))
        self._view = view
        self._listeners: tuple[ConfigListener, ...] = ()
        self._layers = self._layers_of(view.image)
        self._node = node_config(self._layers)
        self._topics: dict[str, Config] = {}  # resolved; only of existing topics
        self._logs: dict[str, LogValues] = {}
        self._topic_config = lru_cache(SHARED_MAX)(self._resolve_topic)
        self._log_settings = lru_cache(SHARED_MAX)(self._resolve_log)
        view.listen(self._changed)

    @property
    def node(self) -> Config:
        return self._node

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Of the node, by precedence; a topic's own values precede them."""
        return self._layers

    def topic(self, name: str) -> Config:
        """The settings of a topic; the node's defaults for an unknown one."""
        found = self._topics.get(name)
        if found is None:
            found = self._topic_config(self._values(name))
            if self._view.image.topic_named(name) is not None:
                self._topics[name] = found
        return found

    def log_values(self, topic: str) -> LogValues:
        """The settings of a topic's logs."""
        found = self._logs.get(topic)
        if found is None:
            found = self._log_settings(self._values(topic))
            if self._view.image.topic_named(topic) is not None:
                self._logs[topic] = found
        return found

    def listen(self, listener: ConfigListener) -> Callable[[], None]:
        """Notify from the next change on. Call the result to unregister."""
        own: ConfigListener = lambda topics: listener(topics)  # noqa: E731  the same listener may be registered twice
        self._listeners = (*self._listeners, own)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not own)

        return stop

    # The controller's rules (metadata.decision.ConfigRules).

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        return changed_value(scope, name, operation, given, old)

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None:
        """Relative to this node's own file: the other nodes' files are not known here."""
        layers = self._layers
        if scope is Scope.ALL_NODES:
            layers = node_layers(self._static, cluster=values, node=dict(self._view.image.config(self._own).items()))
        elif scope is Scope.NODE:
            cluster = dict(self._view.image.config(ALL_BROKERS).items())
            layers = node_layers(self._static, cluster=cluster, node=values)
        check_together(scope, values, layers)

    def _values(self, topic: str) -> OwnValues:
        return tuple(self._view.image.config(ConfigTarget(ConfigTargetType.TOPIC, topic)).items())

    def _resolve_topic(self, values: OwnValues) -> Config:
        return topic_config(dict(values), self._layers)

    def _resolve_log(self, values: OwnValues) -> LogValues:
        return resolve_log_settings(dict(values), self._layers)

    def _layers_of(self, image: MetadataImage) -> tuple[Layer, ...]:
        return node_layers(
            self._static,
            cluster=dict(image.config(ALL_BROKERS).items()),
            node=dict(image.config(self._own).items()),
        )

    def _changed(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        topics: list[str] = []
        whole = delta is None
        for resource in () if delta is None else delta.changed_configs():
            if resource.type is ConfigTargetType.TOPIC:
                topics.append(resource.name)
            elif resource in (ALL_BROKERS, self._own):
                whole = True
        if whole:
            self._layers = self._layers_of(image)
            self._node = node_config(self._layers)
            self._topics.clear()
            self._logs.clear()
            self._topic_config.cache_clear()
            self._log_settings.cache_clear()
        gone = [] if delta is None else [topic.name for topic in delta.removed_topics()]
        for name in (*topics, *gone):
            self._topics.pop(name, None)
            self._logs.pop(name, None)
        if whole or topics:
            for listener in self._listeners:
                listener(None if whole else topics)

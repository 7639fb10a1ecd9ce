"""The settings that hold on one node now: its file, and over it what the cluster has set while it runs.

    topic's own (image) > this node's (image) > all nodes' (image) > server.properties and --override > defaults

Values are resolved when asked for, and kept until what they were made of changes. The image never holds a value that
this release refuses unless a newer one has let it in; then InvalidConfigError tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

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

ConfigListener: TypeAlias = Callable[[Sequence[str] | None], None]
"""Told the names of the topics whose own settings have changed (or that are gone); None: the node's settings have, so
any topic's may. Called on the event loop; must not wait.
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
        self._topics: dict[str, Config] = {}  # resolved already; of topics that exist
        self._logs: dict[str, LogValues] = {}
        view.listen(self._changed)

    @property
    def node(self) -> Config:
        return self._node

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Of the node, nearest first; a topic's own values go before them."""
        return self._layers

    def topic(self, name: str) -> Config:
        """The settings of a topic. One that this node has not heard of: the node's defaults."""
        found = self._topics.get(name)
        if found is None:
            found = topic_config(self._values(name), self._layers)
            if self._view.image.topic_named(name) is not None:
                self._topics[name] = found
        return found

    def log_values(self, topic: str) -> LogValues:
        """What the logs of a topic go by."""
        found = self._logs.get(topic)
        if found is None:
            found = resolve_log_settings(self._values(topic), self._layers)
            if self._view.image.topic_named(topic) is not None:
                self._logs[topic] = found
        return found

    def listen(self, listener: ConfigListener) -> Callable[[], None]:
        """From the next change on. The answer stops it."""
        own: ConfigListener = lambda topics: listener(topics)  # noqa: E731  the same listener may come twice
        self._listeners = (*self._listeners, own)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not own)

        return stop

    # The controller's rules (metadata.decision.ConfigRules).

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        return changed_value(scope, name, operation, given, old)

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None:
        """Over this node's own file: the others' cannot be seen from here."""
        layers = self._layers
        if scope is Scope.ALL_NODES:
            layers = node_layers(self._static, cluster=values, node=dict(self._view.image.config(self._own).items()))
        elif scope is Scope.NODE:
            cluster = dict(self._view.image.config(ALL_BROKERS).items())
            layers = node_layers(self._static, cluster=cluster, node=values)
        check_together(scope, values, layers)

    def _values(self, topic: str) -> dict[str, str]:
        return dict(self._view.image.config(ConfigTarget(ConfigTargetType.TOPIC, topic)).items())

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
        gone = [] if delta is None else [topic.name for topic in delta.removed_topics()]
        for name in (*topics, *gone):
            self._topics.pop(name, None)
            self._logs.pop(name, None)
        if whole or topics:
            for listener in self._listeners:
                listener(None if whole else topics)

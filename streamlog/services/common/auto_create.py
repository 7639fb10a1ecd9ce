"""Topics that are created on first use: `auto.create.topics.enable`, off by default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.config.settings.node_settings import AUTO_CREATE_TOPICS_ENABLE
from streamlog.errors import StreamlogError, TopicAlreadyExistsError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.view import MetadataView


class AutoCreate:
    def __init__(
        self,
        view: MetadataView,
        configs: NodeConfigs,
        create: Callable[[pb.CreateTopicsRequest, Call], Awaitable[pb.CreateTopicsResponse]],
    ) -> None:
        """`create`: Admin.CreateTopics, which returns once the topics are in this node's image."""
        self._view = view
        self._configs = configs
        self._create = create

    async def missing(self, names: Iterable[str], call: Call) -> Mapping[str, StreamlogError]:
        """Create the topics that do not exist, if the settings allow it. Returns the errors of those that failed."""
        if not self._configs.node[AUTO_CREATE_TOPICS_ENABLE]:
            return {}
        image = self._view.image
        wanted = [name for name in names if image.topic_named(name) is None and name not in INTERNAL_TOPICS]
        refused: dict[str, StreamlogError] = {}
        if call.info.guard is not None:
            found = ((name, call.info.guard.creation_refusal(name)) for name in wanted)
            refused = {name: refusal for name, refusal in found if refusal is not None}
            wanted = [name for name in wanted if name not in refused]
        if not wanted:
            return refused
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name=name) for name in wanted])
        response = await self._create(request, call)
        errors = {row.name: from_message(row.error) for row in response.results if row.HasField("error")}
        # A concurrent request created it first.
        failed = {name: error for name, error in errors.items() if not isinstance(error, TopicAlreadyExistsError)}
        return {**refused, **failed}

    async def ensure(self, name: str, call: Call) -> None:
        """As `missing`, for one topic. StreamlogError."""
        for error in (await self.missing((name,), call)).values():
            raise error

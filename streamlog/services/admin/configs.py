"""DescribeConfigs: effective values, and where each comes from.

Dynamic configs are in the image of every node. A node's file is known to that node alone, so the configs of another
node are requested from it. A topic is described over the settings of the node that serves the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.api.convert.admin import configs as convert
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.config import Effective, Layer, Source, node_config
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.metadata.configs.changes import check_exists
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.records import ALL_BROKERS, ConfigTarget, ConfigTargetType
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.services.common.forwarding import Peers, is_forwarded, only, timeout_of
from streamlog.services.common.paging import PAGE_BYTES

_DESCRIBE_CONFIGS: Final = "/streamlog.v1.Admin/DescribeConfigs"


class ConfigDescriptions:
    def __init__(self, node_id: BrokerId, view: MetadataView, configs: NodeConfigs, peers: Peers) -> None:
        self._me = ConfigTarget(ConfigTargetType.BROKER, str(node_id))
        self._view = view
        self._configs = configs
        self._peers = peers

    async def describe(self, request: pb.DescribeConfigsRequest, call: Call) -> pb.DescribeConfigsResponse:
        resources, names = convert.describe_configs(request)
        response, used = pb.DescribeConfigsResponse(), 0
        for index, resource in enumerate(resources):
            description = await self._described(resource, names, call)
            response.resources.append(description)
            used += description.ByteSize()
            if used > PAGE_BYTES:
                raise InvalidRequestError(
                    f"the configs of {len(resources)} resources exceed {PAGE_BYTES} bytes: request {index or 1} at a "
                    "time, or some configs by name",
                    field="resources",
                    limit=index or 1,
                )
        return response

    async def _described(self, resource: ConfigTarget, names: frozenset[str], call: Call) -> pb.ConfigDescription:
        try:
            check_exists(resource, self._view.image)
            if resource.type is ConfigTargetType.TOPIC:
                values: Iterable[Effective] = self._configs.topic(resource.name)
            elif resource == ALL_BROKERS:
                values = self._of_all_nodes()
            elif resource == self._me or is_forwarded(call):
                values = self._configs.node
            else:
                return await self._of_other_node(resource, names, call)
            return convert.described(resource, (v for v in values if not names or v.setting.name in names))
        except StreamlogError as error:
            return convert.not_described(resource, error)

    def _of_all_nodes(self) -> list[Effective]:
        """Only configs that are set for all nodes: the rest differs from node to node."""
        wide = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        layer = Layer(wide, dict(self._view.image.config(ALL_BROKERS).items()))
        return [value for value in node_config((layer,)) if value.source is wide]

    async def _of_other_node(self, resource: ConfigTarget, names: frozenset[str], call: Call) -> pb.ConfigDescription:
        request = pb.DescribeConfigsRequest(resources=[convert.resource_message(resource)], names=sorted(names))
        node, response_type = BrokerId(int(resource.name)), pb.DescribeConfigsResponse
        response = await self._peers.call(node, _DESCRIBE_CONFIGS, request, response_type, timeout_of(call))
        return only(response.resources, node)

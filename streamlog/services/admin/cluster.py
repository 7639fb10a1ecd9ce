"""Cluster.Describe: this node's release, features and limits."""

from __future__ import annotations

from typing import Final

from streamlog.api.pb import cluster_pb2 as pb
from streamlog.api.requests import PARTITIONS_PER_REQUEST_MAX, RECEIVE_BYTES_MAX, RESPONSE_BYTES
from streamlog.api.service import Call, Method, unary
from streamlog.config.settings.node_settings import FETCH_MAX_BYTES, SOCKET_REQUEST_MAX_BYTES
from streamlog.config.settings.topic_defaults import MESSAGE_MAX_BYTES
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.features import METADATA_VERSION_MAX, METADATA_VERSION_MIN
from streamlog.metadata.topics.creation import PARTITIONS_PER_REQUEST_MAX as NEW_PARTITIONS_MAX
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports import Probe

_CLIENT_VERSION_LENGTH_MAX: Final = 200
# By name; each has one level so far.
_FEATURES: Final = ("batches", "idempotence", "legacy-batches", "records", "watch-metadata")
_METADATA_VERSION: Final = "metadata.version"


class ClusterService:
    def __init__(self, node_id: BrokerId, release: str, view: MetadataView, configs: NodeConfigs, probe: Probe) -> None:
        self._node_id = node_id
        self._release = release
        self._view = view
        self._configs = configs
        self._probe = probe

    async def describe(self, request: pb.ClusterDescribeRequest, call: Call) -> pb.ClusterDescribeResponse:
        if request.client_version:
            version = request.client_version[:_CLIENT_VERSION_LENGTH_MAX]
            self._probe("client", peer=call.info.peer, version=version)
        return pb.ClusterDescribeResponse(
            version=self._release,
            cluster_id=self._view.image.cluster_id,
            node_id=self._node_id,
            features=self._features(),
            limits=self._limits(),
        )

    def _features(self) -> list[pb.Feature]:
        features = [pb.Feature(name=name, level_min=1, level_max=1, level=1) for name in _FEATURES]
        features.append(
            pb.Feature(
                name=_METADATA_VERSION,
                level_min=METADATA_VERSION_MIN,
                level_max=METADATA_VERSION_MAX,
                level=self._view.image.metadata_version,
            )
        )
        return sorted(features, key=lambda feature: feature.name)

    def _limits(self) -> pb.Limits:
        node = self._configs.node
        return pb.Limits(
            request_bytes_max=node[SOCKET_REQUEST_MAX_BYTES],
            response_bytes=RESPONSE_BYTES,
            response_bytes_max=min(node[FETCH_MAX_BYTES], RECEIVE_BYTES_MAX),
            batch_bytes_max=node[MESSAGE_MAX_BYTES],
            partitions_per_request_max=PARTITIONS_PER_REQUEST_MAX,
            new_partitions_per_request_max=NEW_PARTITIONS_MAX,
        )

    def methods(self) -> list[Method]:
        return [unary("Describe", pb.ClusterDescribeRequest, pb.ClusterDescribeResponse, self.describe)]

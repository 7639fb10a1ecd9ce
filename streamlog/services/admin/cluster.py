"""Cluster.Describe: this node's release, features and limits."""

from __future__ import annotations

from typing import Final

from streamlog.api.convert.records.consume import RESPONSE_BYTES_MAX as CONSUME_BYTES_MAX
from streamlog.api.convert.records.publish import RECORDS_PER_REQUEST_MAX, publish_bytes_max
from streamlog.api.pb import cluster_pb2 as pb
from streamlog.api.requests import PARTITIONS_PER_REQUEST_MAX, RECEIVE_BYTES_MAX, RESPONSE_BYTES
from streamlog.api.service import REQUEST_BYTES_MAX, Call, Method, unary
from streamlog.config.settings.group_settings import TRANSACTION_TWO_PHASE_COMMIT_ENABLE
from streamlog.config.settings.node_settings import FETCH_MAX_BYTES, SOCKET_REQUEST_MAX_BYTES
from streamlog.config.settings.topic_defaults import MESSAGE_MAX_BYTES
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.topics.creation import PARTITIONS_PER_REQUEST_MAX as NEW_PARTITIONS_MAX
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports import Probe
from streamlog.services.admin.features import features

_CLIENT_VERSION_LENGTH_MAX: Final = 200


class ClusterService:
    def __init__(
        self,
        node_id: BrokerId,
        release: str,
        view: MetadataView,
        configs: NodeConfigs,
        probe: Probe,
        *,
        authorizes: bool,
    ) -> None:
        """`authorizes`: the node has an authorizer."""
        self._authorizes = authorizes
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
            features=features(
                self._view.image.metadata_version,
                authorizes=self._authorizes,
                two_phase_commit=self._configs.node[TRANSACTION_TWO_PHASE_COMMIT_ENABLE],
            ),
            limits=self._limits(),
        )

    def _limits(self) -> pb.Limits:
        node = self._configs.node
        return pb.Limits(
            request_bytes_max=node[SOCKET_REQUEST_MAX_BYTES],
            publish_request_bytes_max=publish_bytes_max(node[SOCKET_REQUEST_MAX_BYTES]),
            other_request_bytes_max=REQUEST_BYTES_MAX,
            records_per_request_max=RECORDS_PER_REQUEST_MAX,
            response_bytes=RESPONSE_BYTES,
            response_bytes_max=min(node[FETCH_MAX_BYTES], RECEIVE_BYTES_MAX),
            batch_bytes_max=node[MESSAGE_MAX_BYTES],
            partitions_per_request_max=PARTITIONS_PER_REQUEST_MAX,
            new_partitions_per_request_max=NEW_PARTITIONS_MAX,
            subscribe_response_bytes_max=RECEIVE_BYTES_MAX,
            consume_response_bytes_max=CONSUME_BYTES_MAX,
        )

    def methods(self) -> list[Method]:
        return [unary("Describe", pb.ClusterDescribeRequest, pb.ClusterDescribeResponse, self.describe)]

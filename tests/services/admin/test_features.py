"""Cluster.Describe: every feature is listed, and the limits are those that hold."""

from __future__ import annotations

from collections import Counter

import pytest
from google.protobuf.message import Message

from streamlog.api.pb import batches_pb2, cluster_pb2, groups_pb2, records_pb2
from streamlog.errors import RequestTooLargeError, StreamlogError
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import MetadataVersion
from streamlog.node.served_methods import CLIENT_FILES
from streamlog.services.admin.features import METHODS_OF_FEATURE, features
from tests.services.world import Cluster, simulate

PACKAGE = "/streamlog.v1."


def test_every_method_belongs_to_one_feature() -> None:
    services = [service for file in CLIENT_FILES for service in file.services_by_name.values()]
    served = [f"{service.name}/{method.name}" for service in services for method in service.methods]
    assert Counter(name for methods in METHODS_OF_FEATURE.values() for name in methods) == Counter(served)


def levels(version: int, *, authorizes: bool, two_phase_commit: bool) -> dict[str, int]:
    found = features(MetadataVersion(version), authorizes=authorizes, two_phase_commit=two_phase_commit)
    assert [one.name for one in found] == sorted({*METHODS_OF_FEATURE, "metadata.version"})
    return {one.name: one.level for one in found}


def test_what_is_off_has_level_0() -> None:
    everything = levels(METADATA_VERSION_MAX, authorizes=True, two_phase_commit=True)
    assert everything == {**dict.fromkeys(METHODS_OF_FEATURE, 1), "metadata.version": METADATA_VERSION_MAX}
    plain = levels(METADATA_VERSION_MAX, authorizes=False, two_phase_commit=False)
    assert {name for name, level in plain.items() if not level} == {"access-control", "two-phase-commit"}
    old = levels(2, authorizes=True, two_phase_commit=True)
    assert {name for name, level in old.items() if not level} == {"access-control", "client-quotas", "users"}


async def describe(cluster: Cluster) -> cluster_pb2.ClusterDescribeResponse:
    request = cluster_pb2.ClusterDescribeRequest()
    return await cluster.call(PACKAGE + "Cluster/Describe", request, cluster_pb2.ClusterDescribeResponse)


def test_a_node_describes_itself() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(transaction_two_phase_commit_enable="true")
        described = await describe(cluster)
        found = {one.name: one.level for one in described.features}
        assert found == levels(found["metadata.version"], authorizes=False, two_phase_commit=True)
        limits = described.limits
        assert (limits.subscribe_response_bytes_max, limits.consume_response_bytes_max) == (64 << 20, 3 << 20)

    simulate(story)


def padded(message: Message, size: int) -> bytes:
    """Of exactly this size, by an unknown field, which is ignored."""
    data = message.SerializeToString()
    for width in range(1, 6):
        body = size - len(data) - 2 - width
        length = bytes((body >> 7 * place) & 0x7F | (0x80 if place < width - 1 else 0) for place in range(width))
        if body >> 7 * width == 0:
            return data + b"\xfa\x7f" + length + bytes(body)
    raise AssertionError(size)


async def limit_named(cluster: Cluster, method: str, request: bytes) -> object:
    """By the refusal of a request that is too large; None: it is not too large, whatever else is wrong with it."""
    try:
        await cluster.call_raw(PACKAGE + method, request)
    except RequestTooLargeError as error:
        return error.details["limit"]
    except StreamlogError:
        pass
    return None


BOUNDS = [
    ("Records/Publish", records_pb2.PublishRequest(), "publish_request_bytes_max"),
    ("Batches/Metadata", batches_pb2.MetadataRequest(), "other_request_bytes_max"),
    ("Groups/FindCoordinator", groups_pb2.FindCoordinatorRequest(), "other_request_bytes_max"),
]


@pytest.mark.parametrize(("method", "request_", "limit"), BOUNDS, ids=[row[0] for row in BOUNDS])
def test_the_limits_of_requests_hold(method: str, request_: Message, limit: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        size = getattr((await describe(cluster)).limits, limit)
        assert await limit_named(cluster, method, padded(request_, size)) is None
        assert await limit_named(cluster, method, padded(request_, size + 1)) == size

    simulate(story)


def test_the_limit_of_records_holds() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        most = (await describe(cluster)).limits.records_per_request_max
        request = records_pb2.PublishRequest(topic="t", records=[records_pb2.PublishRecord()] * most)
        response = await cluster.call(PACKAGE + "Records/Publish", request, records_pb2.PublishResponse)
        assert [one.offset for one in response.results] == list(range(most))
        request.records.add()
        with pytest.raises(StreamlogError) as caught:
            await cluster.call(PACKAGE + "Records/Publish", request, records_pb2.PublishResponse)
        assert (caught.value.code, caught.value.details["limit"]) == ("INVALID_REQUEST", most)

    simulate(story)

"""The gate around changes of topics, in virtual time: what counts as a partition, and what is given back."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.access.quotas import CONTROLLER_MUTATION_RATE, VALUE_MIN
from streamlog.api.errors import from_rpc, to_message, to_rpc
from streamlog.api.pb import admin_pb2
from streamlog.errors import InvalidPartitionsError, InvalidRequestError, OutcomeUnknownError, ThrottledError
from streamlog.metadata.records import Partition, PartitionRecord, TopicRecord
from streamlog.metadata.topics.creation import PARTITIONS_PER_REQUEST_MAX
from streamlog.model import BrokerId, PartitionId, TopicId
from streamlog.ports import CallInfo, RpcError
from streamlog.services.quotas.limits import QuotaCaller
from streamlog.services.quotas.mutations import mutations_of
from streamlog.sim import SimLoop, run
from tests.services.quotas.gated import Setup, called

TOPIC = TopicId(bytes(16))


class Mutations(Setup):
    def __init__(self, loop: SimLoop, **how: Any) -> None:
        super().__init__(loop, **how)
        self.apply(
            TopicRecord(topic_id=TOPIC, name="t"),
            *(
                PartitionRecord(
                    topic_id=TOPIC, partition_id=PartitionId(number), partition=Partition(replicas=ONE, isr=ONE)
                )
                for number in range(4)
            ),
        )
        self.limit(2.0, CONTROLLER_MUTATION_RATE)

    async def call(
        self, method: str, request: Any, info: CallInfo | None = None, results: list[Any] | RpcError | None = None
    ) -> int:
        """`results`: of the response, or how the request fails."""
        response_type = getattr(admin_pb2, f"{method}Response")

        async def handler(data: bytes, info: CallInfo) -> bytes:
            if isinstance(results, RpcError):
                raise results
            return bytes(response_type(results=results).SerializeToString())

        gated = self.gate.unary(f"/streamlog.v1.Admin/{method}", handler, for_nodes=True)
        response = response_type.FromString(await gated(request.SerializeToString(), info or called()))
        waited: int = response.throttle_time_ms
        return waited


ONE = (BrokerId(1),)
CREATE = admin_pb2.CreateTopicsRequest
NO_REPLICAS = admin_pb2.ReplicaAssignment()


def new(name: str, partitions: int | None = None) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(name=name, partitions=partitions)


@pytest.mark.parametrize(
    ("method", "request_", "count"),
    [
        ("CreateTopics", CREATE(topics=[new("a", 5), new("b")]), 11),
        ("CreateTopics", CREATE(topics=[new("a", 5)], validate_only=True), 0),
        ("CreateTopics", CREATE(topics=[new("t", 5)]), 0),
        ("CreateTopics", CREATE(topics=[admin_pb2.NewTopic(name="a", assignments=3 * [NO_REPLICAS])]), 3),
        ("DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=["t", "unknown"]), 4),
        ("DeleteTopics", admin_pb2.DeleteTopicsRequest(topic_ids=[TOPIC, b"x"]), 4),
        (
            "CreatePartitions",
            admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.TopicGrowth(topic="t", partition_count=10)]),
            6,
        ),
        (
            "CreatePartitions",
            admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.TopicGrowth(topic="x", partition_count=10)]),
            0,
        ),
    ],
)  # fmt: skip
def test_each_partition_counts(method: str, request_: Any, count: int) -> None:
    async def main(loop: SimLoop) -> None:
        setup = Mutations(loop)
        path = f"/streamlog.v1.Admin/{method}"
        assert sum(mutations_of(path, request_.SerializeToString(), setup.view.image, 6)) == count
        assert mutations_of(path, b"\xff", setup.view.image, 6) == []
        assert await setup.call(method, request_) == 0
        bucket = setup.limits.bucket(CONTROLLER_MUTATION_RATE, QuotaCaller("ANONYMOUS", "etl"))
        assert bucket is not None
        assert bucket.end == count

    run(main, seed=0)


def test_all_windows_are_free_at_once_and_then_requests_wait_or_are_refused() -> None:
    async def main(loop: SimLoop) -> None:
        setup = Mutations(loop)
        assert await setup.call("CreateTopics", CREATE(topics=[new("a", 30)])) == 0, "22 are free, 8 are owed"
        assert await setup.call("CreateTopics", CREATE(topics=[new("b", 50)])) == pytest.approx(4_000, abs=20)
        with pytest.raises(RpcError, match="controller_mutation_rate=2") as refused:
            await setup.call("CreateTopics", CREATE(topics=[new("c", 1)]))
        assert isinstance(from_rpc(refused.value), ThrottledError)
        assert await setup.call("CreateTopics", CREATE(topics=[new("c", 1)]), called(principal="Node:1")) == 0

    run(main, seed=0)


REFUSED = admin_pb2.CreateTopicResult(error=to_message(InvalidPartitionsError("too many")))


def test_what_is_refused_does_not_count() -> None:
    async def main(loop: SimLoop) -> None:
        setup = Mutations(loop)
        mistaken = CREATE(topics=[new("a", 2_000_000_000), new("b", 10)])
        await setup.call("CreateTopics", mistaken, results=[REFUSED, admin_pb2.CreateTopicResult()])
        refusal = to_rpc(InvalidRequestError("too many topics"))
        with pytest.raises(RpcError, match="too many topics"):
            await setup.call("CreateTopics", CREATE(topics=[new("c", 2_000_000_000)]), results=refusal)
        assert await setup.call("CreateTopics", CREATE(topics=[new("c", 30)])) == 0, "12 are free still"
        assert await setup.call("CreateTopics", CREATE(topics=[new("d", 1)])) == pytest.approx(9_000, abs=20)

    run(main, seed=0)


def test_a_change_whose_outcome_is_unknown_counts_as_what_a_request_may_change_at_most() -> None:
    async def main(loop: SimLoop) -> None:
        setup = Mutations(loop)
        with pytest.raises(RpcError):
            await setup.call(
                "CreateTopics",
                CREATE(topics=[new("a", 2_000_000_000)]),
                results=to_rpc(OutcomeUnknownError("another controller")),
            )
        bucket = setup.limits.bucket(CONTROLLER_MUTATION_RATE, QuotaCaller("ANONYMOUS", "etl"))
        assert bucket is not None
        assert bucket.left_s(bucket.end, setup.clock.monotonic()) == (PARTITIONS_PER_REQUEST_MAX - 22) / 2

    run(main, seed=0)


def test_a_client_is_sent_away_for_an_hour_at_most() -> None:
    async def main(loop: SimLoop) -> None:
        setup = Mutations(loop)
        setup.limit(VALUE_MIN, CONTROLLER_MUTATION_RATE)
        many = [new(f"t{number}", PARTITIONS_PER_REQUEST_MAX) for number in range(10_000)]
        await setup.call("CreateTopics", CREATE(topics=many))
        with pytest.raises(RpcError, match=r"retry in \d{11}\.\d s") as refused:
            await setup.call("CreateTopics", CREATE(topics=[new("a", 1)]))
        error = from_rpc(refused.value)
        assert isinstance(error, ThrottledError)
        assert error.details["retry_after_ms"] == 3_600_000

    run(main, seed=0)

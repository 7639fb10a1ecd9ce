"""Calls of a client with raw stubs: a few methods of streamlog.v1 over the network port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from streamlog.api.errors import from_message, from_rpc
from streamlog.api.pb import admin_pb2, batches_pb2
from streamlog.errors import StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, PartitionId
from streamlog.ports import Channel, Network, RpcError
from tests.storage.batches import batch

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class Calls:
    """One client. `close` it."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._channels: dict[str, Channel] = {}

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def call(
        self, address: str, method: str, request: Message, response_type: type[R], timeout_s: float = 5
    ) -> R:
        if address not in self._channels:
            self._channels[address] = self._network.connect(address)
        try:
            data = await self._channels[address].unary(
                f"/streamlog.v1.{method}", request.SerializeToString(), timeout_s=timeout_s
            )
        except RpcError as error:
            raise from_rpc(error) from None
        return response_type.FromString(data)

    async def create_topic(self, address: str, name: str, partitions: int = 1, replication_factor: int = 3) -> None:
        topic = admin_pb2.NewTopic(name=name, partitions=partitions, replication_factor=replication_factor)
        request = admin_pb2.CreateTopicsRequest(topics=[topic])
        answer = await self.call(address, "Admin/CreateTopics", request, admin_pb2.CreateTopicsResponse)
        if answer.results[0].HasField("error"):
            raise from_message(answer.results[0].error)

    async def produce(self, address: str, topic: str, partition: int, *values: bytes) -> int:
        """With acks=all. The offset of the first."""
        data = batches_pb2.PartitionBatches(topic=topic, partition=partition, batches=batch(values))
        request = batches_pb2.ProduceRequest(partitions=[data])
        answer = await self.call(address, "Batches/Produce", request, batches_pb2.ProduceResponse)
        (result,) = answer.results
        if result.HasField("error"):
            raise from_message(result.error)
        return result.base_offset

    async def fetch(self, address: str, topic: str, partition: int, offset: int) -> bytes:
        wanted = batches_pb2.FetchPartition(topic=topic, partition=partition, fetch_offset=offset)
        request = batches_pb2.FetchRequest(partitions=[wanted])
        answer = await self.call(address, "Batches/Fetch", request, batches_pb2.FetchResponse)
        (found,) = answer.partitions
        if found.HasField("error"):
            raise from_message(found.error)
        return found.batches


def leader_of(view: MetadataView, topic: str, partition: int = 0) -> BrokerId:
    """NO_BROKER if there is none, or the topic is not known there yet."""
    found = view.image.topic_named(topic)
    return NO_BROKER if found is None else found.partitions[PartitionId(partition)].leader


async def until_done(work: Callable[[], Awaitable[T]], pause_s: float = 0.02) -> T:
    """Retry, as a client does, while the error is retriable."""
    while True:
        try:
            return await work()
        except StreamlogError as error:
            if not error.retriable:
                raise
        except RpcError:
            pass
        await asyncio.sleep(pause_s)

"""Programs that call Publish as they would with generated stubs: several calls at a time, at any node.

A plain publisher has no token. What its call says must be so: OK is in the log once, OUTCOME_UNKNOWN (or no response)
at most once, and any other error not at all. One with a token repeats a call, at other nodes, until it gets a response.

Each call is a process of its own in the history: calls that overlap have no order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.errors import StreamlogError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.ports import Channel, Ports
from streamlog.services.records.gathering.batch_write import UNCERTAIN
from streamlog.sim.history import OperationHistory, Row

from ..checking.checks import PRODUCE, value_of
from ..checking.watch import Watch
from ..clients.workload import KEYS, Target

PUBLISH: Final = calls.unary("streamlog.v1.Records/Publish", pb.PublishResponse)
INIT: Final = calls.unary("streamlog.v1.Batches/InitProducerId", batches_pb2.InitProducerIdResponse)
AT_ONCE_MAX: Final = 12
PAUSE_S: Final = 0.3  # on average
TIMEOUTS_S: Final = (0.4, 2.0, 6.0)  # of a call
REPEAT_S: Final = 0.1


class Publisher:
    """One program on a client's host."""

    def __init__(
        self,
        name: str,
        ports: Ports,
        addresses: Sequence[str],
        history: OperationHistory,
        watch: Watch,
        rng: random.Random,
        *,
        value_bytes_max: int,
        with_token: bool,
    ) -> None:
        self._name = name
        self._addresses = addresses
        self._network = ports.network
        self._channels: dict[str, Channel] = {}
        self._history = history
        self._watch = watch
        self._rng = rng
        self._value_bytes_max = value_bytes_max
        self._with_token = with_token
        self._token = b""
        self._count = 0
        self.stopping = False

    async def run(self, targets: Sequence[Target]) -> None:
        while not self.stopping:
            if self._with_token:
                await self._repeated(self._rng.choice(targets))
            else:
                count = self._rng.randint(1, AT_ONCE_MAX)
                address = self._rng.choice(self._addresses)
                wanted = [self._rng.choice(targets) for _ in range(count)]
                await asyncio.gather(*(self._once(target, address) for target in wanted))
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    async def _once(self, target: Target, address: str) -> None:
        row, request = self._begin(target)
        try:
            result = await self._call(address, request, self._rng.choice(TIMEOUTS_S))
        except UNCERTAIN as error:
            self._history.info(row, f"{error.code}: {error}")
        except StreamlogError as error:
            self._history.fail(row, f"{error.code}: {error}")
        else:
            self._ok(row, target, result)

    async def _repeated(self, target: Target) -> None:
        """With the token of the response before."""
        row, request = self._begin(target)
        while True:
            address = self._rng.choice(self._addresses)
            try:
                if not self._token:
                    found = await INIT(self._channel(address), batches_pb2.InitProducerIdRequest(), timeout_s=2)
                    self._token = found.producer_token
                request.producer_token = self._token
                result = await self._call(address, request, self._rng.choice(TIMEOUTS_S))
            except StreamlogError as error:
                if self.stopping:
                    self._history.info(row, f"{error.code}: {error}")
                    return
                await asyncio.sleep(REPEAT_S)
            else:
                self._ok(row, target, result)
                return

    def _begin(self, target: Target) -> tuple[Row, pb.PublishRequest]:
        process = f"{self._name}.{self._count}"
        self._count += 1
        key = b"k%d" % self._rng.randrange(KEYS) if target.keyed else None
        value = value_of(process, 0, key, size_bytes=self._rng.randint(0, self._value_bytes_max))
        record = pb.PublishRecord(key=key, value=value)
        if self._rng.random() < 0.5:  # else the node chooses
            record.partition = target.partition.partition
        row = self._history.invoke(process, PRODUCE, sequence=0, value=value)
        return row, pb.PublishRequest(topic=target.partition.topic, records=[record])

    async def _call(self, address: str, request: pb.PublishRequest, timeout_s: float) -> pb.PublishResult:
        response = await PUBLISH(self._channel(address), request, timeout_s=timeout_s)
        if response.producer_token:
            self._token = response.producer_token
        (result,) = response.results
        if result.HasField("error"):
            raise from_message(result.error)
        return result

    def _ok(self, row: Row, target: Target, result: pb.PublishResult) -> None:
        partition = TopicPartition(target.partition.topic, PartitionId(result.partition))
        if result.offset < 0:  # a repetition of what the leader remembers no offset of
            self._history.info(row, "written, the offset is unknown")
            return
        row.partition = partition
        self._history.ok(row, offset=Offset(result.offset))
        self._watch.acknowledged(self._name, partition, Offset(result.offset), target.min_insync_replicas)

    def _channel(self, address: str) -> Channel:
        if address not in self._channels:
            self._channels[address] = self._network.connect(address)
        return self._channels[address]

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

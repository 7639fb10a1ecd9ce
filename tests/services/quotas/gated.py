"""A gate in virtual time, and callers of what is behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from streamlog.access.principals import PrincipalMapping
from streamlog.access.quotas import DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity
from streamlog.api.pb import batches_pb2, records_pb2
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import ClientQuotaRecord, MetadataRecord, MetadataVersionRecord
from streamlog.metadata.view import MetadataView
from streamlog.model import RaftIndex
from streamlog.ports import CLIENT_ID_HEADER, CallInfo
from streamlog.services.quotas.gate import QuotaGate
from streamlog.services.quotas.limits import QuotaLimits
from streamlog.sim import SimLoop, run
from streamlog.sim.clock import SimClock

PUBLISH, PRODUCE_STREAM = "/streamlog.v1.Records/Publish", "/streamlog.v1.Batches/ProduceStream"
FETCH, FETCH_STREAM = "/streamlog.v1.Batches/Fetch", "/streamlog.v1.Batches/FetchStream"
RATE = 10_000
ALL = QuotaEntity(client_id=DEFAULT)


class Setup:
    def __init__(self, loop: SimLoop, *, for_nodes: bool = True) -> None:
        self.for_nodes = for_nodes  # the listener
        self.view = MetadataView()
        self.index = 0
        self.clock = SimClock(loop)
        self.limits = QuotaLimits(self.view, self.clock, window_num=11, window_s=1)
        self.gate = QuotaGate(self.limits, self.clock, PrincipalMapping(), self.view, lambda: 6)
        self.handled: list[tuple[float, int]] = []  # when, how many bytes
        self.apply(MetadataVersionRecord(level=METADATA_VERSION_MAX))

    def apply(self, *records: MetadataRecord) -> None:
        self.index += 1
        self.view.machine.apply(RaftIndex(self.index), encode_batch(records))

    def limit(self, value: float | None, key: str = PRODUCER_BYTE_RATE, entity: QuotaEntity = ALL) -> None:
        self.apply(ClientQuotaRecord(entity=entity, key=key, value=value))

    async def publish(self, size: int, info: CallInfo | None = None) -> int:
        """Returns throttle_time_ms."""

        async def handler(request: bytes, info: CallInfo) -> bytes:
            self.handled.append((self.clock.monotonic(), len(request)))
            return records_pb2.PublishResponse(producer_token=b"t").SerializeToString()

        response = records_pb2.PublishResponse.FromString(
            await self.gate.unary(PUBLISH, handler, for_nodes=self.for_nodes)(bytes(size), info or called())
        )
        assert response.producer_token == b"t"
        return response.throttle_time_ms

    async def stream(self, sizes: list[int], info: CallInfo | None = None) -> list[int]:
        """A stream that is always ready to send. Returns throttle_time_ms of each response."""
        sent: list[int] = []

        async def handler(stream: Any, info: CallInfo) -> None:
            while (message := await stream.recv()) is not None:
                self.handled.append((self.clock.monotonic(), len(message)))
                await stream.send(batches_pb2.ProduceStreamResponse().SerializeToString())

        async def take(data: bytes) -> None:
            sent.append(batches_pb2.ProduceStreamResponse.FromString(data).throttle_time_ms)

        await self.gate.stream(PRODUCE_STREAM, handler, for_nodes=self.for_nodes)(
            Messages(sizes, take), info or called()
        )
        return sent

    def bytes_until(self, until: float) -> int:
        return sum(size for at, size in self.handled if at <= until)


class Messages:
    def __init__(self, sizes: list[int], on_sent: Callable[[bytes], Awaitable[None]]) -> None:
        self._left = list(sizes)
        self._on_sent = on_sent

    async def send(self, message: bytes) -> None:
        await self._on_sent(message)

    async def recv(self) -> bytes | None:
        return bytes(self._left.pop(0)) if self._left else None

    async def done_sending(self) -> None: ...


def called(**changes: Any) -> CallInfo:
    return replace(CallInfo(method="", peer="10.0.0.1:5000", metadata={CLIENT_ID_HEADER: "etl"}), **changes)


def story(work: Callable[[Setup], Awaitable[None]], **how: Any) -> None:
    async def main(loop: SimLoop) -> None:
        await work(Setup(loop, **how))

    run(main, seed=0)

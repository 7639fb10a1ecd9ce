"""Around the methods that quotas are for: what a caller uses counts against its limits, and it waits for its turn.

    write   each request counts its bytes, and is handled once it is its turn: until then nothing more is read from its
            stream, and a unary call is not begun. So neither many calls nor many streams get more than the limit.
    read    each response counts its bytes after it was sent; before the next one is read from the log the stream waits
            (`CallPace`) until it is its turn. It holds no response then.
    change  each request counts the partitions that it creates or deletes, and is handled once those before it are paid;
            what is refused does not count.
    all     each call counts the time that it takes (`call_times`), and the next one is handled once that is paid.

Responses say how long their stream or call was held up (throttle_time_ms). A use whose turn is more than TURN_MAX_S
away, or after the call's deadline, is refused with THROTTLED and RetryInfo; so are those beyond HELD_BYTES_MAX, which
bounds the bytes of requests that wait, and with CALL_BYTES for each their number: they are not among
max.concurrent.calls yet.

Nodes are never held up: calls that a node makes for a client have been counted by the node that the client called.
Over TLS a node is known by its certificate; where the listener for nodes is PLAINTEXT by NODE_HEADER, which anyone who
reaches it may send, as they may call the methods between nodes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from msgspec.structs import replace

from streamlog.access.principals import ANONYMOUS, PrincipalMapping
from streamlog.access.quotas import (
    CLIENT_ID_LENGTH_MAX,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER_LENGTH_MAX,
    name_of,
)
from streamlog.api.errors import to_rpc
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.wire_format import VARINT, tag, varint
from streamlog.errors import Status, ThrottledError
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.view import MetadataView
from streamlog.ports import (
    CLIENT_ID_HEADER,
    NODE_HEADER,
    CallInfo,
    Clock,
    RpcError,
    Stream,
    StreamHandler,
    UnaryHandler,
)
from streamlog.services.quotas import mutations
from streamlog.services.quotas.call_times import SERVED_WITHIN_A_WINDOW, StreamTime, timed
from streamlog.services.quotas.limits import QuotaCaller, QuotaLimits
from streamlog.services.quotas.rate_bucket import RateBucket
from streamlog.services.quotas.turns import WAIT_MIN_S, TurnQueue
from streamlog.tls.identity import node_of

TURN_MAX_S: Final = 20.0
"""Below the 30 s after which clients take a request for lost."""
RETRY_AFTER_MAX_S: Final = 3_600.0
"""A client is not sent away for longer: uses before it may be given back, and limits raised."""
HELD_BYTES_MAX: Final = 64 << 20
CALL_BYTES: Final = 16 << 10
"""Counted for each request that waits, besides its bytes: about what the port and the handler keep of a call."""
RESPONSE_BYTES_MIN: Final = 64 << 10
"""The least that responses are limited to, however small the rate."""

_USER: Final = "User:"
_WRITES: Final = (
    "/streamlog.v1.Batches/Produce",
    "/streamlog.v1.Batches/ProduceStream",
    "/streamlog.v1.Records/Publish",
    "/streamlog.v1.Records/PublishStream",
)
_READS: Final = (
    "/streamlog.v1.Batches/Fetch",
    "/streamlog.v1.Batches/FetchStream",
    "/streamlog.v1.Records/Subscribe",
    "/streamlog.v1.Records/Consume",
)
_OWED_AFTERWARDS: Final = frozenset({CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE})
"""A use is handled once those before it are paid."""
_COUNTED: Final = "/streamlog."
"""Not health checks and reflection."""
_NOTHING_DONE: Final = frozenset(
    {Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED, Status.RESOURCE_EXHAUSTED, Status.FAILED_PRECONDITION}
)
"""Of the other errors it is unknown whether the change was made."""
_THROTTLE_TIME: Final = varint(tag(pb.ProduceResponse.THROTTLE_TIME_MS_FIELD_NUMBER, VARINT))
"""The same number in all responses."""


_Counted: TypeAlias = Callable[[bytes, CallInfo, QuotaCaller, float], Awaitable[bytes]]
"""A handler behind limits; with how long the call was held up so far."""


class QuotaGate:
    def __init__(
        self,
        limits: QuotaLimits,
        clock: Clock,
        mapping: PrincipalMapping,
        view: MetadataView,
        default_partitions: Callable[[], int],
    ) -> None:
        """`mapping`: of certificates. `default_partitions`: num.partitions."""
        self.limits = limits
        self._view = view
        self._default_partitions = default_partitions
        self._clock = clock
        self._mapping = mapping
        self._held_bytes = 0
        self._queues: dict[RateBucket, TurnQueue] = {}  # of those in which uses wait
        self._quotas = view.image.quotas
        view.listen(lambda image, _: self._on_image(image))

    def _on_image(self, image: MetadataImage) -> None:
        """Uses that wait may have another limit now, or none."""
        if image.quotas is not self._quotas:
            self._quotas = image.quotas
            for queue in self._queues.values():
                queue.wake()

    def unary(self, method: str, handler: UnaryHandler, *, for_nodes: bool) -> UnaryHandler:
        """`for_nodes`: nodes connect to this listener."""
        counted = self._counted(method, handler)

        def handle(request: bytes, info: CallInfo) -> Awaitable[bytes]:
            caller = self._caller(info, for_nodes=for_nodes) if self.limits.active else None
            if caller is None:
                return handler(request, info)
            if self.limits.counts_time and method.startswith(_COUNTED):
                return self._timed(method, counted, request, info, caller)
            return counted(request, info, caller, 0.0)

        return handle

    def stream(self, method: str, handler: StreamHandler, *, for_nodes: bool) -> StreamHandler:
        if not method.startswith(_COUNTED):
            return handler

        async def handle(stream: Stream, info: CallInfo) -> None:
            caller = self._caller(info, for_nodes=for_nodes)
            if caller is None:
                await handler(stream, info)
                return
            time = StreamTime(self, caller, self._wait_max_s(method))
            if method in _WRITES:
                counting: Stream = _WriteStream(self, stream, caller, info, time)
            elif method in _READS:
                pace = _Pace(self, caller, time=time)
                counting, info = _ReadStream(self.limits, stream, pace), replace(info, pace=pace)
            else:
                counting = _OtherStream(stream, time)
            await time.run(handler(counting, info))

        return handle

    def _counted(self, method: str, handler: UnaryHandler) -> _Counted:
        if method in _WRITES:
            return self._unary_write(handler)
        if method in mutations.METHODS:
            return self._mutation(method, handler)
        if method in _READS:
            return self._unary_read(handler)
        return lambda request, info, caller, waited_s: handler(request, info)

    async def _timed(
        self, method: str, counted: _Counted, request: bytes, info: CallInfo, caller: QuotaCaller
    ) -> bytes:
        bucket = self.limits.bucket(REQUEST_PERCENTAGE, caller)
        if bucket is None:
            return await counted(request, info, caller, 0.0)
        expected = bucket.typical
        waited_s = await self.admit(
            REQUEST_PERCENTAGE, caller, expected, len(request), info, wait_max_s=self._wait_max_s(method)
        )
        return await timed(self, bucket, expected, counted(request, info, caller, waited_s))

    def _wait_max_s(self, method: str) -> float | None:
        return self.limits.window_s if method in SERVED_WITHIN_A_WINDOW else None

    def _unary_write(self, handler: UnaryHandler) -> _Counted:
        async def handle(request: bytes, info: CallInfo, caller: QuotaCaller, waited_s: float) -> bytes:
            waited_s += await self.admit(PRODUCER_BYTE_RATE, caller, len(request), len(request), info)
            return await handler(request, info) + throttle_field(waited_s)

        return handle

    def _mutation(self, method: str, handler: UnaryHandler) -> _Counted:
        async def handle(request: bytes, info: CallInfo, caller: QuotaCaller, waited_s: float) -> bytes:
            counts = mutations.mutations_of(method, request, self._view.image, self._default_partitions())
            bucket = self.limits.bucket(CONTROLLER_MUTATION_RATE, caller)
            waited_s += await self.admit(CONTROLLER_MUTATION_RATE, caller, sum(counts), len(request), info)
            refused = 0
            try:
                response = await handler(request, info)
                refused = mutations.refused_of(method, counts, response)
            except RpcError as error:
                refused = sum(counts) if error.status in _NOTHING_DONE else 0
                raise
            finally:
                if bucket is not None and refused:
                    bucket.refund(refused, self.now())
            return response + throttle_field(waited_s)

        return handle

    def _unary_read(self, handler: UnaryHandler) -> _Counted:
        async def handle(request: bytes, info: CallInfo, caller: QuotaCaller, waited_s: float) -> bytes:
            pace = _Pace(self, caller, info, waited_s=waited_s)
            response = await handler(request, replace(info, pace=pace))
            return pace.sent(response)

        return handle

    def _caller(self, info: CallInfo, *, for_nodes: bool) -> QuotaCaller | None:
        """None: a node."""
        principal = info.principal
        if not principal:
            if info.identity is None and for_nodes and NODE_HEADER in info.metadata:
                return None
            if node_of(info.names) is not None:
                return None
            principal = self._mapping.principal(info.identity, info.listener) if info.identity else ANONYMOUS
        if not principal.startswith(_USER):
            return None
        client_id = unquote(info.metadata.get(CLIENT_ID_HEADER, ""))
        return QuotaCaller(
            name_of(principal.removeprefix(_USER), USER_LENGTH_MAX), name_of(client_id, CLIENT_ID_LENGTH_MAX)
        )

    def now(self) -> float:
        return self._clock.monotonic()

    # -- turns

    async def admit(
        self,
        key: str,
        caller: QuotaCaller,
        amount: float,
        size: int,
        info: CallInfo,
        *,
        wait_max_s: float | None = None,
    ) -> float:
        """Wait until it is the turn of a request of `size` bytes that uses `amount`. Returns for how long, in seconds.
        RpcError where it is refused. `wait_max_s`: it is not refused, and waits no longer than this; not at all where
        no more bytes may wait.
        """
        bucket = self.limits.bucket(key, caller) if amount else None
        if bucket is None:
            return 0.0
        begin, place = bucket.end, bucket.place_of(amount)
        turn = begin if key in _OWED_AFTERWARDS else place
        size += CALL_BYTES
        if wait_max_s is None:
            self.check(key, bucket, turn, info, size)
        elif self._held_bytes + size > HELD_BYTES_MAX:
            wait_max_s = 0.0
        bucket.charge(amount, self.now())
        admitted = False
        self._held_bytes += size
        try:
            waited_s = await self.wait(key, caller, bucket, turn, wait_max_s)
            admitted = True
            return waited_s
        finally:
            self._held_bytes -= size
            if not admitted:
                bucket.give_back(begin, place, self.now())

    async def wait(
        self, key: str, caller: QuotaCaller, bucket: RateBucket, place: float, wait_max_s: float | None = None
    ) -> float:
        """Until it is the turn of `place`, or the caller has another limit. Returns for how long, in seconds."""
        now = began = self._clock.monotonic()
        left_s = bucket.left_s(place, now)
        if left_s <= 0:
            return 0.0
        totals = self.limits.totals[key]
        totals.delayed += 1
        bucket.throttled_count += 1
        bucket.waiting += 1
        queue = self._queues.get(bucket)
        if queue is None:
            queue = self._queues[bucket] = TurnQueue(bucket, self._clock)
        try:
            until = math.inf if wait_max_s is None else began + wait_max_s
            while left_s > 0 and now < until and self.limits.bucket(key, caller) is bucket:
                await queue.wait(place, None if wait_max_s is None else max(until - now, WAIT_MIN_S))
                now = self._clock.monotonic()
                left_s = bucket.left_s(place, now)
        finally:
            bucket.waiting -= 1
            if not bucket.waiting:
                del self._queues[bucket]
                bucket.on_sooner = None
            waited_s = self._clock.monotonic() - began
            totals.seconds += waited_s
            bucket.throttled_s += waited_s
        return waited_s

    def check(self, key: str, bucket: RateBucket, place: float, info: CallInfo, size: int = 0) -> None:
        """RpcError where the turn of `place` is too far, or `size` more bytes may not wait."""
        now = self.now()
        left_s = bucket.left_s(place, now)
        in_time = left_s <= TURN_MAX_S and (info.deadline is None or now + left_s <= info.deadline)
        if left_s <= 0 or (in_time and self._held_bytes + size <= HELD_BYTES_MAX):
            return
        self.limits.totals[key].refused += 1
        bucket.throttled_count += 1
        why = f", and requests of {self._held_bytes >> 20} MiB wait on this node already" if in_time else ""
        error = ThrottledError(
            f"the quota {key}={bucket.limit:g} ({KEYS[key]}) is exceeded{why}: retry in {left_s:.1f} s, or have an "
            "administrator raise it with streamlogctl quota set",
            field=key,
            limit=bucket.limit,
            retry_after_ms=round(min(left_s, RETRY_AFTER_MAX_S) * 1000),
        )
        raise to_rpc(error)


class _Pace:
    """The CallPace of one call that reads. `info`: of a unary call, which may be refused."""

    def __init__(
        self,
        gate: QuotaGate,
        caller: QuotaCaller,
        info: CallInfo | None = None,
        *,
        time: StreamTime | None = None,
        waited_s: float = 0.0,
    ) -> None:
        self._gate = gate
        self._caller = caller
        self._info = info
        self._bucket: RateBucket | None = None
        self._place = 0.0  # in this bucket, behind what was sent last
        # Not reported yet. `+= await` would read it before the wait, and so restore what is reported meanwhile.
        self._waited_s = waited_s
        self._time = time  # None: of a unary call

    @property
    def active(self) -> bool:
        return self._gate.limits.active

    @property
    def must_wait(self) -> bool:
        if self._time is not None and self._time.is_owed:
            return True
        bucket = self._gate.limits.bucket(CONSUMER_BYTE_RATE, self._caller)
        if bucket is None:
            return False
        return bucket is not self._bucket or bucket.left_s(self._place, self._gate.now()) > 0

    @property
    def bytes_max(self) -> int | None:
        bucket = self._gate.limits.bucket(CONSUMER_BYTE_RATE, self._caller)
        return None if bucket is None else max(RESPONSE_BYTES_MIN, int(bucket.rate / 4))

    async def wait(self) -> None:
        await self.wait_for_time()
        gate = self._gate
        bucket = gate.limits.bucket(CONSUMER_BYTE_RATE, self._caller)
        if bucket is None:
            return
        if bucket is not self._bucket:
            self._bucket, self._place = bucket, bucket.end
        if self._info is not None:
            gate.check(CONSUMER_BYTE_RATE, bucket, self._place, self._info)
        waited_s = await gate.wait(CONSUMER_BYTE_RATE, self._caller, bucket, self._place)
        self._waited_s += waited_s

    async def wait_for_time(self) -> None:
        """What the call has used of its caller's request_percentage is paid."""
        if self._time is not None:
            waited_s = await self._time.turn()
            self._waited_s += waited_s

    def sent(self, response: bytes) -> bytes:
        """Counts a response that is sent now; returns it with what was waited."""
        gate = self._gate
        if not gate.limits.active:
            return response
        bucket = gate.limits.bucket(CONSUMER_BYTE_RATE, self._caller)
        if bucket is not None:
            self._bucket, self._place = bucket, bucket.charge(len(response), gate.now())
        waited_s, self._waited_s = self._waited_s, 0.0
        return response + throttle_field(waited_s)


class _ReadStream:
    """Of a call that reads."""

    def __init__(self, limits: QuotaLimits, stream: Stream, pace: _Pace) -> None:
        self.done_sending = stream.done_sending
        self._recv, self._send = stream.recv, stream.send
        self._pace = pace
        self._limits = limits

    async def recv(self) -> bytes | None:
        await self._pace.wait_for_time()
        return await self._recv()

    def send(self, message: bytes) -> Coroutine[Any, Any, None]:
        return self._send(self._pace.sent(message) if self._limits.active else message)


class _WriteStream:
    """Of a call that writes."""

    def __init__(self, gate: QuotaGate, stream: Stream, caller: QuotaCaller, info: CallInfo, time: StreamTime) -> None:
        self.done_sending = stream.done_sending
        self._gate = gate
        self._limits = gate.limits
        self._recv, self._send = stream.recv, stream.send
        self._caller = caller
        self._info = info
        self._time = time
        self._waited_s = 0.0  # as in `_Pace`

    async def recv(self) -> bytes | None:
        if self._limits.counts_time:
            waited_s = await self._time.turn()
            self._waited_s += waited_s
        message = await self._recv()
        if self._limits.active and message is not None:
            waited_s = await self._gate.admit(PRODUCER_BYTE_RATE, self._caller, len(message), len(message), self._info)
            self._waited_s += waited_s
        return message

    def send(self, message: bytes) -> Coroutine[Any, Any, None]:
        if self._waited_s:
            waited_s, self._waited_s = self._waited_s, 0.0
            message += throttle_field(waited_s)
        return self._send(message)


class _OtherStream:
    """Of a call that neither writes nor reads records."""

    def __init__(self, stream: Stream, time: StreamTime) -> None:
        self.done_sending = stream.done_sending
        self._recv, self._send = stream.recv, stream.send
        self._time = time

    async def send(self, message: bytes) -> None:
        await self._time.turn()
        await self._send(message)

    async def recv(self) -> bytes | None:
        await self._time.turn()
        return await self._recv()


def throttle_field(waited_s: float) -> bytes:
    """The encoded throttle_time_ms, to be appended to a response: messages of protobuf may be joined."""
    return _THROTTLE_TIME + varint(max(1, round(waited_s * 1000))) if waited_s else b""

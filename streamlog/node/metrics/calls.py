"""Counts every call to the node, in the method router, through which all of them go; logs each, where that is wanted
(logger `streamlog.requests`).

A unary call has a latency; a stream is counted while it is open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from streamlog.errors import Status
from streamlog.metrics.families import Family, Sample, counter, gauge, histogram
from streamlog.metrics.histogram import Histogram
from streamlog.ports import CallInfo, Clock, LogLevels, Probe, RpcError

Input = TypeVar("Input")
Answer = TypeVar("Answer")
Handler = Callable[[Input, CallInfo], Awaitable[Answer]]


class MethodCalls:
    """The numbers of one method, such as `/streamlog.v1.Batches/Fetch`."""

    __slots__ = ("errors", "latency_s", "open", "started")

    def __init__(self) -> None:
        self.started = 0
        self.open = 0
        self.errors: dict[str, int] = {}  # by gRPC status
        self.latency_s = Histogram()  # of ended calls, failed ones too


class CallMeter:
    """Owned by the node. Methods are known from the start: the metrics of one that was never called are 0."""

    def __init__(self, clock: Clock, probe: Probe, levels: LogLevels) -> None:
        self._clock = clock
        self._probe = probe
        self._levels = levels
        self._unary: dict[str, MethodCalls] = {}
        self._streams: dict[str, MethodCalls] = {}

    def unary(self, method: str, handler: Handler[Input, Answer]) -> Handler[Input, Answer]:
        """The handler, with its calls counted."""
        return self._counted(method, self._unary.setdefault(method, MethodCalls()), handler)

    def stream(self, method: str, handler: Handler[Input, Answer]) -> Handler[Input, Answer]:
        return self._counted(method, self._streams.setdefault(method, MethodCalls()), handler)

    def _counted(self, method: str, calls: MethodCalls, handler: Handler[Input, Answer]) -> Handler[Input, Answer]:
        monotonic, levels = self._clock.monotonic, self._levels

        async def handle(request: Input, info: CallInfo) -> Answer:
            began_s = monotonic()
            calls.started += 1
            calls.open += 1
            status = "CANCELLED"
            try:
                answer = await handler(request, info)
                status = "OK"
                return answer
            except RpcError as error:
                status = error.status.name
                calls.errors[status] = calls.errors.get(status, 0) + 1
                raise
            except Exception:
                status = Status.INTERNAL.name
                calls.errors[status] = calls.errors.get(status, 0) + 1
                raise
            finally:
                calls.open -= 1
                took_s = monotonic() - began_s
                calls.latency_s.observe(took_s)
                if levels.requests:
                    self._log(method, info, status, took_s)

        return handle

    def _log(self, method: str, info: CallInfo, status: str, took_s: float) -> None:
        ms = round(took_s * 1000, 3)
        self._probe("request_served", method=method.lstrip("/"), peer=info.peer, status=status, ms=ms)

    def families(self) -> list[Family]:
        everything = sorted({**self._unary, **self._streams}.items())
        unary = sorted(self._unary.items())
        errors: list[Sample] = [
            ((method.lstrip("/"), status), number)
            for method, calls in everything
            for status, number in sorted(calls.errors.items())
        ]
        return [
            counter(
                "streamlog_rpc_requests_total",
                "Calls that this node has received; a stream is one call.",
                [((method.lstrip("/"),), calls.started) for method, calls in everything],
                ("method",),
            ),
            counter(
                "streamlog_rpc_errors_total",
                "Calls that ended with an error, by gRPC status.",
                errors,
                ("method", "status"),
            ),
            gauge(
                "streamlog_rpc_open",
                "Calls and streams that are open now.",
                [((method.lstrip("/"),), calls.open) for method, calls in everything],
                ("method",),
            ),
            histogram(
                "streamlog_rpc_duration_seconds",
                "From a unary call's arrival to its answer. Long polls and acks=all include what they wait for.",
                [((method.lstrip("/"),), calls.latency_s) for method, calls in unary if calls.started],
                ("method",),
            ),
        ]
